"""Machines become nodes, nodes fall silent and go, and pods follow."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from shared.api.quantity import parse_quantity
from tests.integration.controllers.rig import START, Rig, node_config

NODE = "n1.ec2.internal"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def ready(rig: Rig, node: str = NODE) -> str:
    conditions = rig.get(kinds.NODES, node)["status"]["conditions"]
    status: str = next(c["status"] for c in conditions if c["type"] == "Ready")
    return status


class TestJoining:
    def test_a_machine_is_a_node_after_its_boot_and_ready_seconds_later(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.run(seconds=19)
        assert not rig.exists(kinds.NODES, NODE)
        rig.run(seconds=17)
        assert rig.exists(kinds.NODES, NODE)
        rig.run(seconds=6)
        assert ready(rig) == "True"

    def test_it_is_tainted_until_it_has_been_ready_for_a_moment(self, rig: Rig) -> None:
        rig.machine("n1")
        while not rig.exists(kinds.NODES, NODE):
            rig.run(seconds=0.1)
        assert (NOT_READY, "NoSchedule") in rig.taints(NODE)
        while ready(rig) != "True":
            rig.run(seconds=0.1)
        assert (NOT_READY, "NoSchedule") in rig.taints(NODE)
        rig.run(seconds=0.3)
        assert rig.taints(NODE) == set()

    def test_it_has_the_labels_of_its_instance(self, rig: Rig) -> None:
        rig.machine("n1", zone="us-east-1b", architecture="arm64", instance_type="m7g.large")
        rig.settle()
        node = rig.get(kinds.NODES, NODE)
        assert node["spec"]["providerID"] == "aws:///us-east-1b/i-n1"
        expected = {
            "kubernetes.io/hostname": NODE,
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m7g.large",
            "topology.kubernetes.io/zone": "us-east-1b",
            "topology.kubernetes.io/region": "us-east-1",
        }
        assert expected.items() <= node["metadata"]["labels"].items()
        assert rig.exists(kinds.CSI_NODES, NODE)

    def test_it_carries_the_labels_and_taints_of_its_user_data(self, rig: Rig) -> None:
        flags = (
            "--node-labels=karpenter.sh/nodepool=default",
            "--register-with-taints=karpenter.sh/unregistered:NoExecute",
        )
        rig.machine("n1", user_data=node_config(flags=flags))
        rig.settle()
        assert rig.get(kinds.NODES, NODE)["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"
        assert rig.taints(NODE) == {("karpenter.sh/unregistered", "NoExecute")}

    def test_a_machine_with_another_clusters_user_data_does_not_join(self, rig: Rig) -> None:
        rig.machine("n1", user_data=node_config(name="other"))
        rig.settle()
        assert not rig.exists(kinds.NODES, NODE)
        assert rig.kubelets.failures == {"i-n1": 'the cluster name in the user data is "other", not "demo"'}

    def test_devices_are_reported_only_once_the_node_is_ready(self, rig: Rig) -> None:
        rig.machine("n1", devices={"nvidia.com/gpu": 1})
        while not rig.exists(kinds.NODES, NODE):
            rig.run(seconds=0.1)
        assert "nvidia.com/gpu" not in rig.get(kinds.NODES, NODE)["status"]["allocatable"]
        rig.settle()
        assert rig.get(kinds.NODES, NODE)["status"]["allocatable"]["nvidia.com/gpu"] == "1"

    def test_a_machine_terminated_during_boot_never_joins(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.run(seconds=5)
        rig.stop("n1")
        rig.settle()
        assert not rig.exists(kinds.NODES, NODE)

    def test_the_same_seed_gives_the_same_times(self) -> None:
        joined = []
        for _ in range(2):
            rig = Rig(seed=7)
            rig.machine("n1")
            rig.settle()
            joined.append(rig.now - START)
        assert joined[0] == joined[1]


class TestMisconduct:
    def test_a_node_may_never_join(self) -> None:
        rig = Rig(behavior=lambda _machine: MachineBehavior(never_joins=True))
        rig.machine("n1")
        rig.settle()
        assert not rig.exists(kinds.NODES, NODE)
        assert "i-n1" in rig.kubelets.failures

    def test_a_node_may_join_late(self) -> None:
        rig = Rig(behavior=lambda _machine: MachineBehavior(join_delay=timedelta(minutes=5)))
        rig.machine("n1")
        rig.run(seconds=300)
        assert not rig.exists(kinds.NODES, NODE)
        rig.settle()
        assert rig.exists(kinds.NODES, NODE)

    def test_a_node_may_never_be_ready(self) -> None:
        rig = Rig(behavior=lambda _machine: MachineBehavior(never_ready=True))
        rig.machine("n1")
        rig.pod("web")
        rig.settle()
        assert ready(rig) == "False"
        assert rig.node_of("web") == ""

    def test_a_node_may_have_less_memory(self) -> None:
        whole, missing = Rig(), Rig(behavior=lambda _machine: MachineBehavior(missing_memory=Fraction(1, 2)))
        sizes = []
        for rig in (whole, missing):
            rig.machine("n1")
            rig.settle()
            sizes.append(parse_quantity("memory", rig.get(kinds.NODES, NODE)["status"]["capacity"]["memory"]))
        assert sizes[1] < sizes[0] / 2

    def test_a_node_that_goes_not_ready_is_tainted_and_comes_back(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.settle()
        rig.kubelets.set_ready(NODE, rig.now, ready=False)
        rig.run(seconds=1)
        assert rig.taints(NODE) == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
        rig.kubelets.set_ready(NODE, rig.now, ready=True)
        rig.run(seconds=1)
        assert rig.taints(NODE) == set()


class TestPods:
    def test_a_bound_pod_runs_after_its_image_is_pulled(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.settle()
        rig.pod("web")
        rig.run(seconds=0.5)
        assert rig.get(kinds.PODS, "web")["status"]["phase"] == "Pending"
        rig.run(seconds=2)
        status = rig.get(kinds.PODS, "web")["status"]
        assert status["phase"] == "Running"
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
        assert status["podIP"]
        assert status["startTime"]

    def test_a_deleted_pod_is_removed_when_it_has_stopped(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.pod("web")
        rig.settle()
        rig.store.delete(kinds.PODS, "web", namespace="default")
        rig.run(seconds=0.5)
        assert rig.exists(kinds.PODS, "web")
        rig.run(seconds=1)
        assert not rig.exists(kinds.PODS, "web")

    @pytest.mark.parametrize(("stops", "gone_after"), [("10", 10), ("1000", 30)])
    def test_a_pod_takes_its_time_to_stop_but_no_more_than_its_grace(
        self, rig: Rig, stops: str, gone_after: int
    ) -> None:
        rig.machine("n1")
        rig.pod("web", annotations={"local.tenon.sh/stops-after-seconds": stops})
        rig.settle()
        rig.store.delete(kinds.PODS, "web", namespace="default")
        rig.run(seconds=gone_after - 2)
        assert rig.exists(kinds.PODS, "web")
        rig.run(seconds=3)
        assert not rig.exists(kinds.PODS, "web")

    @pytest.mark.parametrize(
        ("handler", "gone_after"),
        [
            ({"exec": {"command": ["/bin/sh", "-c", "sleep 12"]}}, 12),
            ({"sleep": {"seconds": 7}}, 7),
            ({"exec": {"command": ["sleep", "1000"]}}, 30),
            ({"exec": {"command": ["/drain"]}}, 1),
        ],
    )
    def test_a_pod_stops_after_its_pre_stop_hook_but_within_its_grace(
        self, rig: Rig, handler: dict[str, Any], gone_after: int
    ) -> None:
        rig.machine("n1")
        rig.pod("web", container={"lifecycle": {"preStop": handler}})
        rig.settle()
        rig.store.delete(kinds.PODS, "web", namespace="default")
        rig.run(seconds=gone_after - 0.5)
        assert rig.exists(kinds.PODS, "web")
        rig.run(seconds=3)
        assert not rig.exists(kinds.PODS, "web")

    def test_a_pod_with_kwoks_label_for_it_runs_but_is_never_ready(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.pod("web", labels={"kwok.x-k8s.io/stage": "unhealthy"})
        rig.settle()
        status = rig.get(kinds.PODS, "web")["status"]
        assert status["phase"] == "Running"
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"


class TestLosingNodes:
    def test_a_silent_node_is_unknown_after_forty_seconds_and_tainted(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.settle()
        rig.kubelets.stop_heartbeat(NODE, rig.now)
        rig.run(seconds=39)
        assert ready(rig) == "True"
        rig.run(seconds=2)
        assert ready(rig) == "Unknown"
        assert rig.taints(NODE) == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}

    def test_its_pods_are_not_ready_leave_after_five_minutes_and_linger(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.pod("web")
        rig.settle()
        rig.kubelets.stop_heartbeat(NODE, rig.now)
        rig.run(seconds=42)
        conditions = rig.get(kinds.PODS, "web")["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions}["Ready"] == "False"
        rig.run(seconds=297)
        assert "deletionTimestamp" not in rig.get(kinds.PODS, "web")["metadata"]
        rig.run(seconds=60)
        assert "deletionTimestamp" in rig.get(kinds.PODS, "web")["metadata"]

    def test_a_node_whose_instance_is_gone_is_deleted_and_its_pods_fifty_seconds_later(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.pod("web")
        rig.settle()
        rig.stop("n1")
        rig.run(seconds=44)
        assert rig.exists(kinds.NODES, NODE)
        rig.run(seconds=2)
        assert not rig.exists(kinds.NODES, NODE)
        rig.run(seconds=48)
        assert rig.exists(kinds.PODS, "web")
        rig.run(seconds=3)
        assert not rig.exists(kinds.PODS, "web")

    def test_a_node_with_a_finalizer_lingers_until_it_is_taken_off(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.settle()
        rig.patch(kinds.NODES, NODE, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        rig.stop("n1")
        rig.settle()
        assert "deletionTimestamp" in rig.get(kinds.NODES, NODE)["metadata"]
        rig.patch(kinds.NODES, NODE, {"metadata": {"finalizers": None}})
        assert not rig.exists(kinds.NODES, NODE)

    def test_a_cordon_is_a_taint_too(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.settle()
        rig.patch(kinds.NODES, NODE, {"spec": {"unschedulable": True}})
        rig.run(seconds=1)
        assert rig.taints(NODE) == {("node.kubernetes.io/unschedulable", "NoSchedule")}

    def test_a_no_execute_taint_evicts_pods_that_do_not_tolerate_it(self, rig: Rig) -> None:
        rig.machine("n1")
        rig.pod("stays", tolerations=[{"key": "team", "operator": "Exists"}])
        toleration = {"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        rig.pod("waits", tolerations=[toleration])
        rig.pod("goes")
        rig.settle()
        rig.patch(kinds.NODES, NODE, {"spec": {"taints": [{"key": "team", "effect": "NoExecute"}]}})
        rig.run(seconds=5)
        assert {p["metadata"]["name"] for p in rig.pods()} == {"stays", "waits"}
        rig.run(seconds=60)
        assert {p["metadata"]["name"] for p in rig.pods()} == {"stays"}


class TestStoppedInstances:
    SHUTDOWN = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")

    def test_the_node_stays_while_its_instance_is_stopped_and_comes_back_sooner_than_it_booted(self, rig: Rig) -> None:
        machine = rig.machine("n1")
        rig.settle()
        uid = rig.get(kinds.NODES, NODE)["metadata"]["uid"]
        rig.stop("n1")
        rig.cloud.stopped.add("i-n1")
        rig.run(seconds=3600)
        assert ready(rig) == "Unknown"
        assert {self.SHUTDOWN, (UNREACHABLE, "NoSchedule")} <= rig.taints(NODE)
        rig.cloud.stopped.discard("i-n1")
        rig.cloud.machines.append(machine)
        rig.run(seconds=11)
        assert ready(rig) == "Unknown"
        rig.run(seconds=16)
        assert (ready(rig), rig.taints(NODE)) == ("True", set())
        assert rig.get(kinds.NODES, NODE)["metadata"]["uid"] == uid

    def test_it_registers_again_if_its_node_was_deleted_meanwhile(self, rig: Rig) -> None:
        machine = rig.machine("n1", user_data=node_config(flags=("--register-with-taints=example.com/a:NoSchedule",)))
        rig.settle()
        rig.stop("n1")
        rig.cloud.stopped.add("i-n1")
        rig.run(seconds=60)
        rig.store.delete(kinds.NODES, NODE)
        rig.cloud.stopped.discard("i-n1")
        rig.cloud.machines.append(machine)
        rig.settle()
        assert (ready(rig), rig.taints(NODE)) == ("True", {("example.com/a", "NoSchedule")})

"""Machines become nodes, nodes fall silent and go, and pods follow."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from shared.api.quantity import parse_quantity
from tests.local.controllers.environment import START, Environment, node_config

NODE = "n1.ec2.internal"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def ready(env: Environment, node: str = NODE) -> str:
    conditions = env.get(kinds.NODES, node)["status"]["conditions"]
    status: str = next(c["status"] for c in conditions if c["type"] == "Ready")
    return status


class TestJoining:
    def test_a_machine_is_a_node_after_its_boot_and_ready_seconds_later(self, env: Environment) -> None:
        env.machine("n1")
        env.run(seconds=19)
        assert not env.exists(kinds.NODES, NODE)
        env.run(seconds=17)
        assert env.exists(kinds.NODES, NODE)
        env.run(seconds=6)
        assert ready(env) == "True"

    def test_it_is_tainted_until_it_has_been_ready_for_a_moment(self, env: Environment) -> None:
        env.machine("n1")
        while not env.exists(kinds.NODES, NODE):
            env.run(seconds=0.1)
        assert (NOT_READY, "NoSchedule") in env.taints(NODE)
        while ready(env) != "True":
            env.run(seconds=0.1)
        assert (NOT_READY, "NoSchedule") in env.taints(NODE)
        env.run(seconds=0.3)
        assert env.taints(NODE) == set()

    def test_it_has_the_labels_of_its_instance(self, env: Environment) -> None:
        env.machine("n1", zone="us-east-1b", architecture="arm64", instance_type="m7g.large")
        env.settle()
        node = env.get(kinds.NODES, NODE)
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
        assert env.exists(kinds.CSI_NODES, NODE)

    def test_it_carries_the_labels_and_taints_of_its_user_data(self, env: Environment) -> None:
        flags = (
            "--node-labels=karpenter.sh/nodepool=default",
            "--register-with-taints=karpenter.sh/unregistered:NoExecute",
        )
        env.machine("n1", user_data=node_config(flags=flags))
        env.settle()
        assert env.get(kinds.NODES, NODE)["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"
        assert env.taints(NODE) == {("karpenter.sh/unregistered", "NoExecute")}

    def test_a_machine_with_another_clusters_user_data_does_not_join(self, env: Environment) -> None:
        env.machine("n1", user_data=node_config(name="other"))
        env.settle()
        assert not env.exists(kinds.NODES, NODE)
        assert env.kubelets.failures == {"i-n1": 'the cluster name in the user data is "other", not "demo"'}

    def test_devices_are_reported_only_once_the_node_is_ready(self, env: Environment) -> None:
        env.machine("n1", devices={"nvidia.com/gpu": 1})
        while not env.exists(kinds.NODES, NODE):
            env.run(seconds=0.1)
        assert "nvidia.com/gpu" not in env.get(kinds.NODES, NODE)["status"]["allocatable"]
        env.settle()
        assert env.get(kinds.NODES, NODE)["status"]["allocatable"]["nvidia.com/gpu"] == "1"

    def test_a_machine_terminated_during_boot_never_joins(self, env: Environment) -> None:
        env.machine("n1")
        env.run(seconds=5)
        env.stop("n1")
        env.settle()
        assert not env.exists(kinds.NODES, NODE)

    def test_the_same_seed_gives_the_same_times(self) -> None:
        joined = []
        for _ in range(2):
            env = Environment(seed=7)
            env.machine("n1")
            env.settle()
            joined.append(env.now - START)
        assert joined[0] == joined[1]


class TestMisconduct:
    def test_a_node_may_never_join(self) -> None:
        env = Environment(behavior=lambda _machine: MachineBehavior(never_joins=True))
        env.machine("n1")
        env.settle()
        assert not env.exists(kinds.NODES, NODE)
        assert "i-n1" in env.kubelets.failures

    def test_a_node_may_join_late(self) -> None:
        env = Environment(behavior=lambda _machine: MachineBehavior(join_delay=timedelta(minutes=5)))
        env.machine("n1")
        env.run(seconds=300)
        assert not env.exists(kinds.NODES, NODE)
        env.settle()
        assert env.exists(kinds.NODES, NODE)

    def test_a_node_may_never_be_ready(self) -> None:
        env = Environment(behavior=lambda _machine: MachineBehavior(never_ready=True))
        env.machine("n1")
        env.pod("web")
        env.settle()
        assert ready(env) == "False"
        assert env.node_of("web") == ""

    def test_a_node_may_have_less_memory(self) -> None:
        whole, missing = (
            Environment(),
            Environment(behavior=lambda _machine: MachineBehavior(missing_memory=Fraction(1, 2))),
        )
        sizes = []
        for env in (whole, missing):
            env.machine("n1")
            env.settle()
            sizes.append(parse_quantity("memory", env.get(kinds.NODES, NODE)["status"]["capacity"]["memory"]))
        assert sizes[1] < sizes[0] / 2

    def test_a_node_that_goes_not_ready_is_tainted_and_comes_back(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.kubelets.set_ready(NODE, env.now, ready=False)
        env.run(seconds=1)
        assert env.taints(NODE) == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
        env.kubelets.set_ready(NODE, env.now, ready=True)
        env.run(seconds=1)
        assert env.taints(NODE) == set()


class TestPods:
    def test_a_bound_pod_runs_after_its_image_is_pulled(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.pod("web")
        env.run(seconds=0.5)
        assert env.get(kinds.PODS, "web")["status"]["phase"] == "Pending"
        env.run(seconds=2)
        status = env.get(kinds.PODS, "web")["status"]
        assert status["phase"] == "Running"
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
        assert status["podIP"]
        assert status["startTime"]

    def test_a_deleted_pod_is_removed_when_it_has_stopped(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("web")
        env.settle()
        env.store.delete(kinds.PODS, "web", namespace="default")
        env.run(seconds=0.5)
        assert env.exists(kinds.PODS, "web")
        env.run(seconds=1)
        assert not env.exists(kinds.PODS, "web")

    @pytest.mark.parametrize(("stops", "gone_after"), [("10", 10), ("1000", 30)])
    def test_a_pod_takes_its_time_to_stop_but_no_more_than_its_grace(
        self, env: Environment, stops: str, gone_after: int
    ) -> None:
        env.machine("n1")
        env.pod("web", annotations={"local.tenon.sh/stops-after-seconds": stops})
        env.settle()
        env.store.delete(kinds.PODS, "web", namespace="default")
        env.run(seconds=gone_after - 2)
        assert env.exists(kinds.PODS, "web")
        env.run(seconds=3)
        assert not env.exists(kinds.PODS, "web")

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
        self, env: Environment, handler: dict[str, Any], gone_after: int
    ) -> None:
        env.machine("n1")
        env.pod("web", container={"lifecycle": {"preStop": handler}})
        env.settle()
        env.store.delete(kinds.PODS, "web", namespace="default")
        env.run(seconds=gone_after - 0.5)
        assert env.exists(kinds.PODS, "web")
        env.run(seconds=3)
        assert not env.exists(kinds.PODS, "web")

    def test_a_pod_with_kwoks_label_for_it_runs_but_is_never_ready(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("web", labels={"kwok.x-k8s.io/stage": "unhealthy"})
        env.settle()
        status = env.get(kinds.PODS, "web")["status"]
        assert status["phase"] == "Running"
        assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "False"


class TestLosingNodes:
    def test_a_silent_node_is_unknown_after_forty_seconds_and_tainted(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.kubelets.stop_heartbeat(NODE, env.now)
        env.run(seconds=39)
        assert ready(env) == "True"
        env.run(seconds=2)
        assert ready(env) == "Unknown"
        assert env.taints(NODE) == {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}

    def test_its_pods_are_not_ready_leave_after_five_minutes_and_linger(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("web")
        env.settle()
        env.kubelets.stop_heartbeat(NODE, env.now)
        env.run(seconds=42)
        conditions = env.get(kinds.PODS, "web")["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions}["Ready"] == "False"
        env.run(seconds=297)
        assert "deletionTimestamp" not in env.get(kinds.PODS, "web")["metadata"]
        env.run(seconds=60)
        assert "deletionTimestamp" in env.get(kinds.PODS, "web")["metadata"]

    def test_a_node_whose_instance_is_gone_is_deleted_and_its_pods_fifty_seconds_later(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("web")
        env.settle()
        env.stop("n1")
        env.run(seconds=44)
        assert env.exists(kinds.NODES, NODE)
        env.run(seconds=2)
        assert not env.exists(kinds.NODES, NODE)
        env.run(seconds=48)
        assert env.exists(kinds.PODS, "web")
        env.run(seconds=3)
        assert not env.exists(kinds.PODS, "web")

    def test_a_node_with_a_finalizer_lingers_until_it_is_taken_off(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.patch(kinds.NODES, NODE, {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        env.stop("n1")
        env.settle()
        assert "deletionTimestamp" in env.get(kinds.NODES, NODE)["metadata"]
        env.patch(kinds.NODES, NODE, {"metadata": {"finalizers": None}})
        assert not env.exists(kinds.NODES, NODE)

    def test_a_cordon_is_a_taint_too(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.patch(kinds.NODES, NODE, {"spec": {"unschedulable": True}})
        env.run(seconds=1)
        assert env.taints(NODE) == {("node.kubernetes.io/unschedulable", "NoSchedule")}

    def test_a_no_execute_taint_evicts_pods_that_do_not_tolerate_it(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("stays", tolerations=[{"key": "team", "operator": "Exists"}])
        toleration = {"key": "team", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        env.pod("waits", tolerations=[toleration])
        env.pod("goes")
        env.settle()
        env.patch(kinds.NODES, NODE, {"spec": {"taints": [{"key": "team", "effect": "NoExecute"}]}})
        env.run(seconds=5)
        assert {p["metadata"]["name"] for p in env.pods()} == {"stays", "waits"}
        env.run(seconds=60)
        assert {p["metadata"]["name"] for p in env.pods()} == {"stays"}


class TestStoppedInstances:
    SHUTDOWN = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule")

    def test_the_node_stays_while_its_instance_is_stopped_and_comes_back_sooner_than_it_booted(
        self, env: Environment
    ) -> None:
        machine = env.machine("n1")
        env.settle()
        uid = env.get(kinds.NODES, NODE)["metadata"]["uid"]
        env.stop("n1")
        env.cloud.stopped.add("i-n1")
        env.run(seconds=3600)
        assert ready(env) == "Unknown"
        assert {self.SHUTDOWN, (UNREACHABLE, "NoSchedule")} <= env.taints(NODE)
        env.cloud.stopped.discard("i-n1")
        env.cloud.machines.append(machine)
        env.run(seconds=11)
        assert ready(env) == "Unknown"
        env.run(seconds=16)
        assert (ready(env), env.taints(NODE)) == ("True", set())
        assert env.get(kinds.NODES, NODE)["metadata"]["uid"] == uid

    def test_it_registers_again_if_its_node_was_deleted_meanwhile(self, env: Environment) -> None:
        machine = env.machine("n1", user_data=node_config(flags=("--register-with-taints=example.com/a:NoSchedule",)))
        env.settle()
        env.stop("n1")
        env.cloud.stopped.add("i-n1")
        env.run(seconds=60)
        env.store.delete(kinds.NODES, NODE)
        env.cloud.stopped.discard("i-n1")
        env.cloud.machines.append(machine)
        env.settle()
        assert (ready(env), env.taints(NODE)) == ("True", {("example.com/a", "NoSchedule")})


class TestRebootedInstances:
    def boot_id(self, env: Environment) -> str:
        boot_id: str = env.get(kinds.NODES, NODE)["status"]["nodeInfo"]["bootID"]
        return boot_id

    def test_the_same_node_comes_back_with_another_boot_id_and_its_pods(self, env: Environment) -> None:
        env.machine("n1")
        env.pod("web")
        env.settle()
        node, pod, boot_id = env.get(kinds.NODES, NODE), env.pods()[0], self.boot_id(env)
        env.cloud.rebooted["i-n1"] = 1
        env.run(seconds=11)
        assert self.boot_id(env) == boot_id
        env.settle()
        assert self.boot_id(env) != boot_id
        assert (ready(env), env.taints(NODE)) == ("True", set())
        assert env.get(kinds.NODES, NODE)["metadata"]["uid"] == node["metadata"]["uid"]
        (after,) = env.pods()
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
        assert after["status"]["containerStatuses"][0]["restartCount"] == 1
        assert after["status"]["startTime"] == pod["status"]["startTime"]

    def test_a_kubelet_that_has_stopped_is_back_after_a_reboot(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        env.kubelets.stop_heartbeat(NODE, env.now)
        env.run(seconds=60)
        assert ready(env) == "Unknown"
        env.cloud.rebooted["i-n1"] = 1
        env.settle()
        assert ready(env) == "True"

    def test_each_reboot_has_a_boot_id(self, env: Environment) -> None:
        env.machine("n1")
        env.settle()
        boot_ids = [self.boot_id(env)]
        for count in (1, 2):
            env.cloud.rebooted["i-n1"] = count
            env.settle()
            boot_ids.append(self.boot_id(env))
        assert len(set(boot_ids)) == 3

    def test_a_machine_may_never_come_back(self) -> None:
        env = Environment(behavior=lambda _machine: MachineBehavior(never_returns=True))
        env.machine("n1")
        env.settle()
        boot_id = self.boot_id(env)
        env.cloud.rebooted["i-n1"] = 1
        env.run(seconds=3600)
        assert (ready(env), self.boot_id(env)) == ("Unknown", boot_id)

"""Deployments, DaemonSets, StatefulSets and Jobs, as their users see them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from tests.local.controllers.environment import Environment

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from tests.local.controllers.environment import Json


@pytest.fixture
def big(env: Environment) -> Environment:
    """Two nodes on machines, with room for all."""
    for name in ("n1", "n2"):
        env.machine(name)
    env.settle()
    return env


def names(env: Environment, app: str) -> set[str]:
    return {p["metadata"]["name"] for p in env.pods(app)}


class TestDeployments:
    def test_its_pods_come_to_run_and_are_counted(self, big: Environment) -> None:
        big.workload(kinds.DEPLOYMENTS, "web", replicas=3)
        big.settle()
        status = big.get(kinds.DEPLOYMENTS, "web")["status"]
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        assert [status[name] for name in counts] == [3, 3, 3, 3]
        assert status["observedGeneration"] == 1
        assert all(re.fullmatch(r"web-[a-z0-9]{10}-[a-z0-9]{5}", name) for name in names(big, "web"))
        assert all(p["status"]["phase"] == "Running" for p in big.pods("web"))

    def test_it_grows_and_shrinks(self, big: Environment) -> None:
        big.workload(kinds.DEPLOYMENTS, "web", replicas=1)
        big.settle()
        for replicas in (5, 2, 0):
            big.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": replicas}})
            big.settle()
            assert len(big.pods("web")) == replicas
        assert "readyReplicas" not in big.get(kinds.DEPLOYMENTS, "web")["status"]

    def test_the_same_seed_gives_the_same_names(self) -> None:
        seen = []
        for _ in range(2):
            env = Environment()
            env.workload(kinds.DEPLOYMENTS, "web", replicas=3)
            env.settle()
            seen.append(names(env, "web"))
        assert seen[0] == seen[1]

    def test_pods_of_workloads_applied_together_are_created_in_turns(self, env: Environment) -> None:
        created: list[str] = []

        def record(change: Change) -> None:
            if change.type == "ADDED" and change.kind is kinds.PODS:
                created.append(change.object["metadata"]["labels"]["app"])

        env.store.subscribe(record)
        for i in range(10):
            env.workload(kinds.DEPLOYMENTS, f"web-{i}", replicas=20)
        env.run(seconds=1)
        assert set(created[:100]) == {f"web-{i}" for i in range(5)}
        assert set(created[:5]) == set(created[:100])
        assert len(set(created[5:15])) == 5

    def test_pods_without_a_node_go_before_those_that_run(self, env: Environment) -> None:
        env.machine("n1")
        env.workload(kinds.DEPLOYMENTS, "web", replicas=4, template=requesting("900m"))
        env.settle()
        running = {p["metadata"]["name"] for p in env.pods("web") if p["spec"].get("nodeName")}
        assert len(running) == 2
        env.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
        env.settle()
        assert names(env, "web") == running

    def test_the_pod_that_costs_least_to_delete_goes_first(self, big: Environment) -> None:
        big.workload(kinds.DEPLOYMENTS, "web", replicas=3)
        big.settle()
        cheap = sorted(names(big, "web"))[1]
        cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-10"}}}
        big.patch(kinds.PODS, cheap, cost)
        big.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
        big.settle()
        assert cheap not in names(big, "web")

    def test_a_pod_that_is_lost_is_replaced(self, big: Environment) -> None:
        big.workload(kinds.DEPLOYMENTS, "web", replicas=2)
        big.settle()
        lost = min(names(big, "web"))
        big.store.evict("default", lost)
        big.settle()
        assert len(names(big, "web")) == 2
        assert lost not in names(big, "web")

    def test_an_update_keeps_within_surge_and_unavailability(self, big: Environment) -> None:
        rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}, "type": "RollingUpdate"}
        big.workload(kinds.DEPLOYMENTS, "web", replicas=3, strategy=rolling)
        big.settle()
        before = names(big, "web")
        fewest, most = watch(big, "web")
        big.patch(kinds.DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"labels": {"rev": "2"}}}}})
        big.settle()
        assert not before & names(big, "web")
        assert len(big.pods("web")) == 3
        assert min(fewest) >= 3
        assert max(most) <= 4
        assert sorted(s["spec"]["replicas"] for s in big.store.list(kinds.REPLICA_SETS)) == [0, 3]

    def test_its_pods_go_with_it(self, big: Environment) -> None:
        big.workload(kinds.DEPLOYMENTS, "web", replicas=2)
        big.settle()
        big.store.delete(kinds.DEPLOYMENTS, "web", namespace="default")
        big.settle()
        assert (big.pods("web"), big.store.list(kinds.REPLICA_SETS)) == ([], [])


def requesting(cpu: str) -> Json:
    return {"containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}]}


def watch(env: Environment, app: str) -> tuple[list[int], list[int]]:
    """The numbers of ready pods and of all pods after every change."""
    ready: list[int] = []
    requested: list[int] = []

    def note(_change: object) -> None:
        pods = [p for p in env.pods(app) if "deletionTimestamp" not in p["metadata"]]
        ready.append(sum(c["type"] == "Ready" and c["status"] == "True" for p in pods for c in conditions(p)))
        requested.append(len(pods))

    env.store.subscribe(note)
    return ready, requested


def conditions(pod: Json) -> list[Json]:
    conditions: list[Json] = pod["status"].get("conditions", [])
    return conditions


class TestDaemonSets:
    def test_every_node_gets_one_pinned_to_it(self, big: Environment) -> None:
        big.workload(kinds.DAEMON_SETS, "proxy")
        big.settle()
        pods = big.pods("proxy")
        assert sorted(p["spec"]["nodeName"] for p in pods) == ["n1.ec2.internal", "n2.ec2.internal"]
        for pod in pods:
            required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            field = {"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}
            assert required == {"nodeSelectorTerms": [{"matchFields": [field]}]}
        assert big.get(kinds.DAEMON_SETS, "proxy")["status"]["numberReady"] == 2

    def test_a_new_node_gets_one_too(self, big: Environment) -> None:
        big.workload(kinds.DAEMON_SETS, "proxy")
        big.settle()
        big.machine("n3")
        big.settle()
        assert "n3.ec2.internal" in {p["spec"]["nodeName"] for p in big.pods("proxy")}

    def test_nodes_it_does_not_select_or_tolerate_get_none(self, env: Environment) -> None:
        env.node("plain")
        env.node("tainted", taints=[{"key": "team", "effect": "NoSchedule"}])
        env.patch(kinds.NODES, "tainted", {"metadata": {"labels": {"gpu": "yes"}}})
        env.workload(kinds.DAEMON_SETS, "all")
        env.workload(kinds.DAEMON_SETS, "gpu", template={"nodeSelector": {"gpu": "yes"}})
        everywhere = {"tolerations": [{"operator": "Exists"}]}
        env.workload(kinds.DAEMON_SETS, "everywhere", template=everywhere)
        env.settle()
        nodes = {app: {p["spec"]["nodeName"] for p in env.pods(app)} for app in ("all", "gpu", "everywhere")}
        assert nodes == {"all": {"plain"}, "gpu": set(), "everywhere": {"plain", "tainted"}}

    def test_it_runs_on_cordoned_nodes(self, env: Environment) -> None:
        env.node("n1")
        env.patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
        env.settle()
        env.workload(kinds.DAEMON_SETS, "proxy")
        env.settle()
        assert [p["spec"].get("nodeName") for p in env.pods("proxy")] == ["n1"]

    def test_an_update_replaces_every_pod(self, big: Environment) -> None:
        big.workload(kinds.DAEMON_SETS, "proxy")
        big.settle()
        before = names(big, "proxy")
        big.patch(kinds.DAEMON_SETS, "proxy", {"spec": {"template": {"metadata": {"labels": {"rev": "2"}}}}})
        big.settle()
        assert len(names(big, "proxy")) == 2
        assert not before & names(big, "proxy")


class TestStatefulSets:
    def test_its_pods_come_one_after_the_other_with_lasting_names(self, big: Environment) -> None:
        big.workload(kinds.STATEFUL_SETS, "db", replicas=3, serviceName="db")
        big.settle()
        pods = {p["metadata"]["name"]: p for p in big.pods("db")}
        assert sorted(pods) == ["db-0", "db-1", "db-2"]
        assert pods["db-0"]["status"]["startTime"] < pods["db-1"]["status"]["startTime"]

    def test_a_lost_pod_comes_back_under_its_name(self, big: Environment) -> None:
        big.workload(kinds.STATEFUL_SETS, "db", replicas=2, serviceName="db")
        big.settle()
        before = big.get(kinds.PODS, "db-0")["metadata"]["uid"]
        big.store.evict("default", "db-0")
        big.settle()
        assert big.get(kinds.PODS, "db-0")["metadata"]["uid"] != before


class TestJobs:
    def test_it_is_complete_when_its_pods_have_ended(self, big: Environment) -> None:
        annotations = {"local.tenon.sh/runs-for-seconds": "5"}
        job = {"restartPolicy": "Never"}
        big.workload(kinds.JOBS, "sums", completions=3, parallelism=2, template=job, annotations=annotations)
        big.settle()
        status = big.get(kinds.JOBS, "sums")["status"]
        assert status["succeeded"] == 3
        assert [c["type"] for c in status["conditions"]] == ["Complete"]


def test_a_refused_pod_is_tried_again_until_it_is_taken(big: Environment) -> None:
    big.workload(kinds.DEPLOYMENTS, "web", replicas=1, template={"priorityClassName": "high"})
    big.run(seconds=5)
    assert big.pods("web") == []
    assert {e["reason"] for e in big.store.list(kinds.EVENTS)} == {"FailedCreate"}
    big.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    big.run(seconds=20)
    assert [p["spec"]["priority"] for p in big.pods("web")] == [1000]


def test_a_deleted_namespace_and_its_objects_do_not_come_back(big: Environment) -> None:
    big.store.create(kinds.NAMESPACES, {"metadata": {"name": "team"}})
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    }
    for kind in (kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.DAEMON_SETS):
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template, "serviceName": "web"}
        big.store.create(kind, {"metadata": {"name": "web"}, "spec": spec}, namespace="team")
    big.settle()
    assert len(big.pods("web")) == 4
    big.store.delete(kinds.NAMESPACES, "team")
    big.settle()
    assert big.pods("web") == []
    assert not big.exists(kinds.NAMESPACES, "team")

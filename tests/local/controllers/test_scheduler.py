"""What the cluster's scheduler does with pods, in a cluster of given nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds

if TYPE_CHECKING:
    from tests.local.controllers.environment import Environment, Json

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def spread(key: str = ZONE, **more: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def required(*terms: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def about(app: str, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def node_affinity(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def test_a_pod_that_fits_is_bound(env: Environment) -> None:
    env.node("n1")
    env.pod("web")
    env.settle()
    assert env.node_of("web") == "n1"


def test_without_nodes_a_pod_is_unschedulable(env: Environment) -> None:
    env.pod("web")
    env.settle()
    assert env.unschedulable_reason("web") == ("Unschedulable", "no nodes available to schedule pods")


def test_an_unschedulable_pod_gets_kubernetes_message_and_an_event(env: Environment) -> None:
    env.node("n1")
    env.node("n2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    env.node("n3", taints=[{"key": "team", "value": "a", "effect": "NoExecute"}])
    env.pod("web", cpu="4")
    env.settle()
    message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    assert env.unschedulable_reason("web") == ("Unschedulable", message)
    events = [e for e in env.store.list(kinds.EVENTS) if e["reason"] == "FailedScheduling"]
    assert [e["involvedObject"]["name"] for e in events] == ["web"]
    assert events[0]["message"].startswith(message)


def test_a_waiting_pod_is_bound_when_a_node_comes(env: Environment) -> None:
    env.pod("web")
    env.settle()
    env.node("n1")
    env.settle()
    assert env.node_of("web") == "n1"


def test_a_waiting_pod_is_bound_when_another_leaves(env: Environment) -> None:
    env.node("n1", cpu="1")
    env.pod("first", cpu="1")
    env.settle()
    env.pod("second", cpu="1")
    env.settle()
    assert env.node_of("second") == ""
    env.store.delete(kinds.PODS, "first", namespace="default", grace_period_seconds=0)
    env.settle()
    assert env.node_of("second") == "n1"


def test_the_pod_of_higher_priority_goes_first(env: Environment) -> None:
    env.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    env.pod("low", cpu="2")
    env.pod("high", cpu="2", priorityClassName="high")
    env.node("n1")
    env.settle()
    assert (env.node_of("high"), env.node_of("low")) == ("n1", "")


def test_a_node_runs_at_most_its_allocatable_pods(env: Environment) -> None:
    env.node("n1", pods="2")
    for name in ("a", "b", "c"):
        env.pod(name, cpu="0")
    env.settle()
    assert sum(bool(p["spec"].get("nodeName")) for p in env.pods()) == 2
    assert env.unschedulable_reason("c")[1] == "0/1 nodes are available: 1 Too many pods"


def test_extended_resources_count(env: Environment) -> None:
    env.node("plain")
    env.node("gpu", gpus=1)
    for name in ("a", "b"):
        env.pod(name, container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    env.settle()
    assert env.node_of("a") == "gpu"
    assert env.unschedulable_reason("b")[1] == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"


@pytest.mark.parametrize(
    ("term", "node"),
    [
        ({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}, "n2"),
        ({"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a"]}]}, "n2"),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, "n2"),
        ({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["4"]}]}, "n2"),
        ({"matchExpressions": [{"key": "size", "operator": "Exists"}]}, "n2"),
        ({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["c"]}]}, ""),
        ({}, ""),
    ],
)
def test_required_node_affinity_chooses_the_node(env: Environment, term: Json, node: str) -> None:
    env.node("n1", zone="a")
    env.node("n2", zone="b")
    env.patch(kinds.NODES, "n2", {"metadata": {"labels": {"size": "8"}}})
    env.pod("web", affinity=node_affinity(term))
    env.settle()
    assert env.node_of("web") == node


def test_no_pod_is_bound_to_a_cordoned_node(env: Environment) -> None:
    env.node("n1")
    env.patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
    env.pod("web")
    env.settle()
    assert env.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 node(s) were unschedulable"


@pytest.mark.parametrize(("address", "fits"), [("", False), ("10.0.0.1", True)])
def test_a_host_port_is_used_once_per_address(env: Environment, address: str, *, fits: bool) -> None:
    env.node("n1")
    for name, host in (("a", address), ("b", "10.0.0.2")):
        env.pod(name, container={"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": host}]})
    env.settle()
    assert bool(env.node_of("b")) == fits


def test_a_gated_pod_waits_until_its_gate_is_removed(env: Environment) -> None:
    env.node("n1")
    env.pod("web", schedulingGates=[{"name": "example.com/quota"}])
    env.settle()
    assert env.unschedulable_reason("web")[0] == "SchedulingGated"
    env.store.patch(kinds.PODS, "web", {"spec": {"schedulingGates": None}}, namespace="default")
    env.settle()
    assert env.node_of("web") == "n1"


def test_pods_of_another_scheduler_are_left_alone(env: Environment) -> None:
    env.node("n1")
    env.pod("web", schedulerName="other")
    env.settle()
    assert env.node_of("web") == ""
    assert "conditions" not in env.get(kinds.PODS, "web")["status"]


class TestTopologySpread:
    def test_pods_are_spread_evenly_over_zones(self, env: Environment) -> None:
        for zone in "abc":
            env.node(f"n-{zone}", zone=zone)
        for i in range(6):
            env.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        env.settle()
        nodes = sorted(p["spec"]["nodeName"] for p in env.pods())
        assert nodes == ["n-a", "n-a", "n-b", "n-b", "n-c", "n-c"]

    def test_a_full_zone_holds_the_others_back(self, env: Environment) -> None:
        env.node("n-a", zone="a", cpu="200m")
        env.node("n-b", zone="b")
        for i in range(6):
            env.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        env.settle()
        assert sorted(p["spec"].get("nodeName", "") for p in env.pods()).count("n-b") == 3
        reason = "1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints"
        assert env.unschedulable_reason("web-5")[1] == f"0/2 nodes are available: {reason}"

    def test_too_few_domains_count_as_an_empty_one(self, env: Environment) -> None:
        env.node("n-a", zone="a")
        for i in range(2):
            env.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread(minDomains=2)])
        env.settle()
        assert [env.node_of("web-0"), env.node_of("web-1")] == ["n-a", ""]

    def test_zones_the_pod_may_not_use_do_not_count_unless_it_says_so(self, env: Environment) -> None:
        env.node("n-a", zone="a")
        env.node("n-b", zone="b")
        for policy, bound in (("Honor", 3), ("Ignore", 1)):
            selector = {"matchLabels": {"app": policy}}
            constraint = spread(nodeAffinityPolicy=policy, labelSelector=selector)
            for i in range(3):
                env.pod(
                    f"{policy.lower()}-{i}",
                    labels={"app": policy},
                    nodeSelector={ZONE: "a"},
                    topologySpreadConstraints=[constraint],
                )
            env.settle()
            assert sum(bool(p["spec"].get("nodeName")) for p in env.pods(policy)) == bound

    def test_tainted_nodes_count_unless_taints_are_honoured(self, env: Environment) -> None:
        env.node("n-a", zone="a")
        env.node("n-b", zone="b", taints=[{"key": "team", "effect": "NoSchedule"}])
        for policy, bound in (("Honor", 3), ("Ignore", 1)):
            constraint = spread(nodeTaintsPolicy=policy, labelSelector={"matchLabels": {"app": policy}})
            for i in range(3):
                env.pod(f"{policy.lower()}-{i}", labels={"app": policy}, topologySpreadConstraints=[constraint])
            env.settle()
            assert sum(bool(p["spec"].get("nodeName")) for p in env.pods(policy)) == bound

    def test_terminating_pods_do_not_count(self, env: Environment) -> None:
        env.node("n-a", zone="a")
        env.node("n-b", zone="b", cpu="100m")
        for name in ("one", "two"):
            env.pod(name, labels={"app": "web"}, topologySpreadConstraints=[spread()])
        env.settle()
        env.store.delete(kinds.PODS, "one" if env.node_of("one") == "n-b" else "two", namespace="default")
        env.pod("three", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        env.settle()
        assert env.node_of("three") == ""

    def test_each_revision_is_spread_by_itself(self, env: Environment) -> None:
        env.node("n-a", zone="a")
        env.node("n-b", zone="b")
        constraint = spread(matchLabelKeys=["rev"])
        env.pod("old", labels={"app": "web", "rev": "1"}, nodeSelector={ZONE: "a"})
        for i in range(2):
            labels = {"app": "web", "rev": "2"}
            env.pod(f"new-{i}", labels=labels, topologySpreadConstraints=[constraint])
        env.settle()
        assert {env.node_of("new-0"), env.node_of("new-1")} == {"n-a", "n-b"}


class TestPodAffinity:
    def test_anti_affinity_allows_one_pod_per_node(self, env: Environment) -> None:
        for i in range(2):
            env.node(f"n{i}")
        for i in range(3):
            env.pod(f"web-{i}", labels={"app": "web"}, affinity={"podAntiAffinity": required(about("web"))})
        env.settle()
        assert sorted(env.node_of(f"web-{i}") for i in range(3)) == ["", "n0", "n1"]
        assert (
            env.unschedulable_reason("web-2")[1]
            == "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"
        )

    def test_existing_pods_anti_affinity_keeps_other_pods_away(self, env: Environment) -> None:
        env.node("n1")
        env.pod("lonely", labels={"app": "lonely"}, affinity={"podAntiAffinity": required(about("web"))})
        env.settle()
        env.pod("web", labels={"app": "web"})
        env.settle()
        reason = "1 node(s) didn't satisfy existing pods anti-affinity rules"
        assert env.unschedulable_reason("web")[1] == f"0/1 nodes are available: {reason}"

    def test_the_first_of_a_group_may_go_anywhere_and_the_others_follow(self, env: Environment) -> None:
        for zone in "ab":
            env.node(f"n-{zone}", zone=zone)
        for i in range(4):
            env.pod(f"web-{i}", labels={"app": "web"}, affinity={"podAffinity": required(about("web", ZONE))})
        env.settle()
        assert len({env.node_of(f"web-{i}") for i in range(4)}) == 1
        assert env.node_of("web-0") != ""

    def test_affinity_to_missing_pods_is_unschedulable(self, env: Environment) -> None:
        env.node("n1")
        env.pod("web", labels={"app": "web"}, affinity={"podAffinity": required(about("cache"))})
        env.settle()
        assert (
            env.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules"
        )
        env.pod("cache", labels={"app": "cache"})
        env.settle()
        assert env.node_of("web") == "n1"

    @pytest.mark.parametrize(
        ("more", "fits"),
        [
            ({}, True),
            ({"namespaces": ["kube-system"]}, False),
            ({"namespaceSelector": {}}, False),
            ({"namespaceSelector": {"matchLabels": {"team": "core"}}}, False),
            ({"namespaceSelector": {"matchLabels": {"team": "other"}}}, True),
        ],
    )
    def test_affinity_selects_pods_by_namespace(self, env: Environment, more: Json, *, fits: bool) -> None:
        env.patch(kinds.NAMESPACES, "kube-system", {"metadata": {"labels": {"team": "core"}}})
        env.node("n1")
        env.pod("there", labels={"app": "db"}, namespace="kube-system")
        env.settle()
        env.pod("web", affinity={"podAntiAffinity": required(about("db", **more))})
        env.settle()
        assert bool(env.node_of("web")) == fits

    def test_preferred_affinity_decides_between_equal_nodes(self, env: Environment) -> None:
        for i in range(3):
            env.node(f"n{i}")
        env.pod("cache", labels={"app": "cache"}, nodeSelector={HOST: "n2"})
        env.settle()
        term = {"weight": 100, "podAffinityTerm": about("cache")}
        env.pod("web", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        env.settle()
        assert env.node_of("web") == "n2"


def test_in_an_empty_cluster_pods_wait_for_their_back_off_not_for_the_first_node(env: Environment) -> None:
    env.pod("web")
    env.run(seconds=40)
    env.node("n1")
    env.run(seconds=0.5)
    assert env.node_of("web") == ""
    env.run(seconds=11)
    assert env.node_of("web") == "n1"


def test_a_pending_pod_gets_changed_messages_once_per_interval(env: Environment) -> None:
    taints = [{"key": "team", "effect": "NoSchedule"}]
    env.node("n1")
    env.pod("web", cpu="4")
    env.run(seconds=30)
    env.node("n2", cpu="8", taints=taints)
    env.run(seconds=1)
    assert env.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 Insufficient cpu"
    env.run(seconds=60)
    env.node("n3", cpu="8", taints=taints)
    env.run(seconds=1)
    reasons = "1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    assert env.unschedulable_reason("web")[1] == f"0/3 nodes are available: {reasons}"


def test_the_message_reports_whether_preemption_could_help(env: Environment) -> None:
    env.node("n1")
    env.node("n2", taints=[{"key": "team", "effect": "NoSchedule"}])
    env.pod("web", cpu="4")
    env.settle()
    (condition,) = env.get(kinds.PODS, "web")["status"]["conditions"]
    assert condition["message"].endswith(
        " preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_sidecars_and_overhead_count_as_requests(env: Environment) -> None:
    env.node("n1", cpu="1")
    sidecar = {
        "name": "proxy",
        "image": "proxy:1",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "600m"}},
    }
    env.pod("web", cpu="500m", initContainers=[sidecar])
    vm = {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "600m"}}}
    env.store.create(kinds.RUNTIME_CLASSES, vm)
    env.pod("vm", cpu="500m", runtimeClassName="vm")
    env.settle()
    assert (env.node_of("web"), env.node_of("vm")) == ("", "")


def test_a_bad_expression_in_one_pod_does_not_stop_the_others(env: Environment) -> None:
    env.node("n1")
    bad = {"matchExpressions": [{"key": ZONE, "operator": "Gt", "values": ["a"]}]}
    env.pod("bad", affinity=node_affinity(bad))
    env.pod("good")
    env.settle()
    assert (env.node_of("bad"), env.node_of("good")) == ("", "n1")


def test_null_fields_count_as_absent(env: Environment) -> None:
    env.store.create(
        kinds.NODES,
        {"metadata": {"name": "n1"}, "spec": {"providerID": None}, "status": {"allocatable": {"cpu": "1", "pods": 9}}},
    )
    env.patch(kinds.NODES, "n1", {"spec": {"taints": None}})
    env.pod("web", affinity=None, tolerations=None, nodeSelector=None)
    env.settle()
    assert env.node_of("web") == "n1"


def test_a_malformed_node_gets_no_pods_and_stops_no_others(env: Environment) -> None:
    env.node("good")
    env.node("bad")
    with env.store.lock:
        bad = env.get(kinds.NODES, "bad")
        env.store.write(kinds.NODES, {**bad, "status": {**bad["status"], "allocatable": {"cpu": "plenty"}}}, bad)
    env.pod("a")
    env.pod("b")
    env.settle()
    assert {env.node_of("a"), env.node_of("b")} == {"good"}

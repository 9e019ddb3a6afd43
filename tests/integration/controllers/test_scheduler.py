"""What the cluster's scheduler does with pods, in a cluster of given nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds

if TYPE_CHECKING:
    from tests.integration.controllers.rig import Json, Rig

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def spread(key: str = ZONE, **more: Any) -> Json:  # noqa: ANN401 (fields of a constraint)
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


def required(*terms: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def about(app: str, key: str = HOST, **more: Any) -> Json:  # noqa: ANN401 (fields of a term)
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def node_affinity(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def test_a_pod_that_fits_is_bound(rig: Rig) -> None:
    rig.node("n1")
    rig.pod("web")
    rig.settle()
    assert rig.node_of("web") == "n1"


def test_without_nodes_a_pod_is_unschedulable(rig: Rig) -> None:
    rig.pod("web")
    rig.settle()
    assert rig.unschedulable_reason("web") == ("Unschedulable", "no nodes available to schedule pods")


def test_an_unschedulable_pod_gets_kubernetes_message_and_an_event(rig: Rig) -> None:
    rig.node("n1")
    rig.node("n2", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    rig.node("n3", taints=[{"key": "team", "value": "a", "effect": "NoExecute"}])
    rig.pod("web", cpu="4")
    rig.settle()
    message = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    assert rig.unschedulable_reason("web") == ("Unschedulable", message)
    events = [e for e in rig.store.list(kinds.EVENTS) if e["reason"] == "FailedScheduling"]
    assert [e["involvedObject"]["name"] for e in events] == ["web"]
    assert events[0]["message"].startswith(message)


def test_a_waiting_pod_is_bound_when_a_node_comes(rig: Rig) -> None:
    rig.pod("web")
    rig.settle()
    rig.node("n1")
    rig.settle()
    assert rig.node_of("web") == "n1"


def test_a_waiting_pod_is_bound_when_another_leaves(rig: Rig) -> None:
    rig.node("n1", cpu="1")
    rig.pod("first", cpu="1")
    rig.settle()
    rig.pod("second", cpu="1")
    rig.settle()
    assert rig.node_of("second") == ""
    rig.store.delete(kinds.PODS, "first", namespace="default", grace_period_seconds=0)
    rig.settle()
    assert rig.node_of("second") == "n1"


def test_the_pod_of_higher_priority_goes_first(rig: Rig) -> None:
    rig.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    rig.pod("low", cpu="2")
    rig.pod("high", cpu="2", priorityClassName="high")
    rig.node("n1")
    rig.settle()
    assert (rig.node_of("high"), rig.node_of("low")) == ("n1", "")


def test_a_node_runs_at_most_its_allocatable_pods(rig: Rig) -> None:
    rig.node("n1", pods="2")
    for name in ("a", "b", "c"):
        rig.pod(name, cpu="0")
    rig.settle()
    assert sum(bool(p["spec"].get("nodeName")) for p in rig.pods()) == 2
    assert rig.unschedulable_reason("c")[1] == "0/1 nodes are available: 1 Too many pods"


def test_extended_resources_count(rig: Rig) -> None:
    rig.node("plain")
    rig.node("gpu", gpus=1)
    for name in ("a", "b"):
        rig.pod(name, container={"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    rig.settle()
    assert rig.node_of("a") == "gpu"
    assert rig.unschedulable_reason("b")[1] == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"


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
def test_required_node_affinity_chooses_the_node(rig: Rig, term: Json, node: str) -> None:
    rig.node("n1", zone="a")
    rig.node("n2", zone="b")
    rig.patch(kinds.NODES, "n2", {"metadata": {"labels": {"size": "8"}}})
    rig.pod("web", affinity=node_affinity(term))
    rig.settle()
    assert rig.node_of("web") == node


def test_no_pod_is_bound_to_a_cordoned_node(rig: Rig) -> None:
    rig.node("n1")
    rig.patch(kinds.NODES, "n1", {"spec": {"unschedulable": True}})
    rig.pod("web")
    rig.settle()
    assert rig.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 node(s) were unschedulable"


@pytest.mark.parametrize(("address", "fits"), [("", False), ("10.0.0.1", True)])
def test_a_host_port_is_used_once_per_address(rig: Rig, address: str, *, fits: bool) -> None:
    rig.node("n1")
    for name, host in (("a", address), ("b", "10.0.0.2")):
        rig.pod(name, container={"ports": [{"containerPort": 80, "hostPort": 80, "hostIP": host}]})
    rig.settle()
    assert bool(rig.node_of("b")) == fits


def test_a_gated_pod_waits_until_its_gate_is_removed(rig: Rig) -> None:
    rig.node("n1")
    rig.pod("web", schedulingGates=[{"name": "example.com/quota"}])
    rig.settle()
    assert rig.unschedulable_reason("web")[0] == "SchedulingGated"
    rig.store.patch(kinds.PODS, "web", {"spec": {"schedulingGates": None}}, namespace="default")
    rig.settle()
    assert rig.node_of("web") == "n1"


def test_pods_of_another_scheduler_are_left_alone(rig: Rig) -> None:
    rig.node("n1")
    rig.pod("web", schedulerName="other")
    rig.settle()
    assert rig.node_of("web") == ""
    assert "conditions" not in rig.get(kinds.PODS, "web")["status"]


class TestTopologySpread:
    def test_pods_are_spread_evenly_over_zones(self, rig: Rig) -> None:
        for zone in "abc":
            rig.node(f"n-{zone}", zone=zone)
        for i in range(6):
            rig.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        rig.settle()
        nodes = sorted(p["spec"]["nodeName"] for p in rig.pods())
        assert nodes == ["n-a", "n-a", "n-b", "n-b", "n-c", "n-c"]

    def test_a_full_zone_holds_the_others_back(self, rig: Rig) -> None:
        rig.node("n-a", zone="a", cpu="200m")
        rig.node("n-b", zone="b")
        for i in range(6):
            rig.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        rig.settle()
        assert sorted(p["spec"].get("nodeName", "") for p in rig.pods()).count("n-b") == 3
        reason = "1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints"
        assert rig.unschedulable_reason("web-5")[1] == f"0/2 nodes are available: {reason}"

    def test_too_few_domains_count_as_an_empty_one(self, rig: Rig) -> None:
        rig.node("n-a", zone="a")
        for i in range(2):
            rig.pod(f"web-{i}", labels={"app": "web"}, topologySpreadConstraints=[spread(minDomains=2)])
        rig.settle()
        assert [rig.node_of("web-0"), rig.node_of("web-1")] == ["n-a", ""]

    def test_zones_the_pod_may_not_use_do_not_count_unless_it_says_so(self, rig: Rig) -> None:
        rig.node("n-a", zone="a")
        rig.node("n-b", zone="b")
        for policy, bound in (("Honor", 3), ("Ignore", 1)):
            selector = {"matchLabels": {"app": policy}}
            constraint = spread(nodeAffinityPolicy=policy, labelSelector=selector)
            for i in range(3):
                rig.pod(
                    f"{policy.lower()}-{i}",
                    labels={"app": policy},
                    nodeSelector={ZONE: "a"},
                    topologySpreadConstraints=[constraint],
                )
            rig.settle()
            assert sum(bool(p["spec"].get("nodeName")) for p in rig.pods(policy)) == bound

    def test_tainted_nodes_count_unless_taints_are_honoured(self, rig: Rig) -> None:
        rig.node("n-a", zone="a")
        rig.node("n-b", zone="b", taints=[{"key": "team", "effect": "NoSchedule"}])
        for policy, bound in (("Honor", 3), ("Ignore", 1)):
            constraint = spread(nodeTaintsPolicy=policy, labelSelector={"matchLabels": {"app": policy}})
            for i in range(3):
                rig.pod(f"{policy.lower()}-{i}", labels={"app": policy}, topologySpreadConstraints=[constraint])
            rig.settle()
            assert sum(bool(p["spec"].get("nodeName")) for p in rig.pods(policy)) == bound

    def test_terminating_pods_do_not_count(self, rig: Rig) -> None:
        rig.node("n-a", zone="a")
        rig.node("n-b", zone="b", cpu="100m")
        for name in ("one", "two"):
            rig.pod(name, labels={"app": "web"}, topologySpreadConstraints=[spread()])
        rig.settle()
        rig.store.delete(kinds.PODS, "one" if rig.node_of("one") == "n-b" else "two", namespace="default")
        rig.pod("three", labels={"app": "web"}, topologySpreadConstraints=[spread()])
        rig.settle()
        assert rig.node_of("three") == ""

    def test_each_revision_is_spread_by_itself(self, rig: Rig) -> None:
        rig.node("n-a", zone="a")
        rig.node("n-b", zone="b")
        constraint = spread(matchLabelKeys=["rev"])
        rig.pod("old", labels={"app": "web", "rev": "1"}, nodeSelector={ZONE: "a"})
        for i in range(2):
            labels = {"app": "web", "rev": "2"}
            rig.pod(f"new-{i}", labels=labels, topologySpreadConstraints=[constraint])
        rig.settle()
        assert {rig.node_of("new-0"), rig.node_of("new-1")} == {"n-a", "n-b"}


class TestPodAffinity:
    def test_anti_affinity_allows_one_pod_per_node(self, rig: Rig) -> None:
        for i in range(2):
            rig.node(f"n{i}")
        for i in range(3):
            rig.pod(f"web-{i}", labels={"app": "web"}, affinity={"podAntiAffinity": required(about("web"))})
        rig.settle()
        assert sorted(rig.node_of(f"web-{i}") for i in range(3)) == ["", "n0", "n1"]
        assert (
            rig.unschedulable_reason("web-2")[1]
            == "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules"
        )

    def test_existing_pods_anti_affinity_keeps_other_pods_away(self, rig: Rig) -> None:
        rig.node("n1")
        rig.pod("lonely", labels={"app": "lonely"}, affinity={"podAntiAffinity": required(about("web"))})
        rig.settle()
        rig.pod("web", labels={"app": "web"})
        rig.settle()
        reason = "1 node(s) didn't satisfy existing pods anti-affinity rules"
        assert rig.unschedulable_reason("web")[1] == f"0/1 nodes are available: {reason}"

    def test_the_first_of_a_group_may_go_anywhere_and_the_others_follow(self, rig: Rig) -> None:
        for zone in "ab":
            rig.node(f"n-{zone}", zone=zone)
        for i in range(4):
            rig.pod(f"web-{i}", labels={"app": "web"}, affinity={"podAffinity": required(about("web", ZONE))})
        rig.settle()
        assert len({rig.node_of(f"web-{i}") for i in range(4)}) == 1
        assert rig.node_of("web-0") != ""

    def test_affinity_to_missing_pods_is_unschedulable(self, rig: Rig) -> None:
        rig.node("n1")
        rig.pod("web", labels={"app": "web"}, affinity={"podAffinity": required(about("cache"))})
        rig.settle()
        assert (
            rig.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 node(s) didn't match pod affinity rules"
        )
        rig.pod("cache", labels={"app": "cache"})
        rig.settle()
        assert rig.node_of("web") == "n1"

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
    def test_affinity_selects_pods_by_namespace(self, rig: Rig, more: Json, *, fits: bool) -> None:
        rig.patch(kinds.NAMESPACES, "kube-system", {"metadata": {"labels": {"team": "core"}}})
        rig.node("n1")
        rig.pod("there", labels={"app": "db"}, namespace="kube-system")
        rig.settle()
        rig.pod("web", affinity={"podAntiAffinity": required(about("db", **more))})
        rig.settle()
        assert bool(rig.node_of("web")) == fits

    def test_preferred_affinity_decides_between_equal_nodes(self, rig: Rig) -> None:
        for i in range(3):
            rig.node(f"n{i}")
        rig.pod("cache", labels={"app": "cache"}, nodeSelector={HOST: "n2"})
        rig.settle()
        term = {"weight": 100, "podAffinityTerm": about("cache")}
        rig.pod("web", affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
        rig.settle()
        assert rig.node_of("web") == "n2"


def test_in_an_empty_cluster_pods_wait_for_their_back_off_not_for_the_first_node(rig: Rig) -> None:
    rig.pod("web")
    rig.run(seconds=40)
    rig.node("n1")
    rig.run(seconds=0.5)
    assert rig.node_of("web") == ""
    rig.run(seconds=11)
    assert rig.node_of("web") == "n1"


def test_a_pending_pod_gets_changed_messages_once_per_interval(rig: Rig) -> None:
    taints = [{"key": "team", "effect": "NoSchedule"}]
    rig.node("n1")
    rig.pod("web", cpu="4")
    rig.run(seconds=30)
    rig.node("n2", cpu="8", taints=taints)
    rig.run(seconds=1)
    assert rig.unschedulable_reason("web")[1] == "0/1 nodes are available: 1 Insufficient cpu"
    rig.run(seconds=60)
    rig.node("n3", cpu="8", taints=taints)
    rig.run(seconds=1)
    reasons = "1 Insufficient cpu, 2 node(s) had untolerated taint(s)"
    assert rig.unschedulable_reason("web")[1] == f"0/3 nodes are available: {reasons}"


def test_the_message_reports_whether_preemption_could_help(rig: Rig) -> None:
    rig.node("n1")
    rig.node("n2", taints=[{"key": "team", "effect": "NoSchedule"}])
    rig.pod("web", cpu="4")
    rig.settle()
    (condition,) = rig.get(kinds.PODS, "web")["status"]["conditions"]
    assert condition["message"].endswith(
        " preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_sidecars_and_overhead_count_as_requests(rig: Rig) -> None:
    rig.node("n1", cpu="1")
    sidecar = {
        "name": "proxy",
        "image": "proxy:1",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "600m"}},
    }
    rig.pod("web", cpu="500m", initContainers=[sidecar])
    vm = {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "600m"}}}
    rig.store.create(kinds.RUNTIME_CLASSES, vm)
    rig.pod("vm", cpu="500m", runtimeClassName="vm")
    rig.settle()
    assert (rig.node_of("web"), rig.node_of("vm")) == ("", "")


def test_a_bad_expression_in_one_pod_does_not_stop_the_others(rig: Rig) -> None:
    rig.node("n1")
    bad = {"matchExpressions": [{"key": ZONE, "operator": "Gt", "values": ["a"]}]}
    rig.pod("bad", affinity=node_affinity(bad))
    rig.pod("good")
    rig.settle()
    assert (rig.node_of("bad"), rig.node_of("good")) == ("", "n1")


def test_null_fields_count_as_absent(rig: Rig) -> None:
    rig.store.create(
        kinds.NODES,
        {"metadata": {"name": "n1"}, "spec": {"providerID": None}, "status": {"allocatable": {"cpu": "1", "pods": 9}}},
    )
    rig.patch(kinds.NODES, "n1", {"spec": {"taints": None}})
    rig.pod("web", affinity=None, tolerations=None, nodeSelector=None)
    rig.settle()
    assert rig.node_of("web") == "n1"


def test_a_malformed_node_gets_no_pods_and_stops_no_others(rig: Rig) -> None:
    rig.node("good")
    rig.node("bad")
    with rig.store.lock:
        bad = rig.get(kinds.NODES, "bad")
        rig.store.write(kinds.NODES, {**bad, "status": {**bad["status"], "allocatable": {"cpu": "plenty"}}}, bad)
    rig.pod("a")
    rig.pod("b")
    rig.settle()
    assert {rig.node_of("a"), rig.node_of("b")} == {"good"}

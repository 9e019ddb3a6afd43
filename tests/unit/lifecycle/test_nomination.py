"""Which pods are nominated for new nodes, when these take pods, and when nominations end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from functions.lifecycle.nomination import MAX_WAIT, nominate_pods
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import DaemonSet, Node, Pod, Taint
from shared.api.meta import Condition
from shared.api.nodeclaim import NodeClaim
from shared.api.taints import PODS_NOT_NOMINATED
from shared.scheduling.state.nominations import LONGEST_NOMINATION_WINDOW, NOMINATION_WINDOW
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.lifecycle.nomination import PodNominations

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": names.ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
ALONE: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}


def pod(
    name: str,
    cpu: str = "1",
    *,
    tried: int = 1,
    age: timedelta = timedelta(minutes=1),
    **fields: Any,  # noqa: ANN401 (fields of any type)
) -> Pod:
    """A pending pod; ``tried`` is its place in kube-scheduler's order. ``fields`` are of its spec or status."""
    status = {key: fields.pop(key) for key in ("nominatedNodeName",) if key in fields}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "resourceVersion": str(tried),
                "creationTimestamp": (NOW - age).isoformat(),
                "labels": {"app": "web"},
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **fields},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
                **status,
            },
        },
        Pod,
    )


def bound(name: str, node: str, *, since: datetime, cpu: str = "1") -> Pod:
    """A pod that kube-scheduler bound to the node at some time."""
    pending = pod(name, cpu, nodeName=node)
    return replace(pending, status=replace(pending.status, conditions=[_true("PodScheduled", since=since)]))


def plain(name: str) -> Pod:
    """A pending pod that no other pod's rules concern."""
    web = pod(name)
    return replace(web, metadata=replace(web.metadata, labels={"app": name}))


class Cluster:
    """NodeClaims that are 40 s old, with their nodes, and pending pods."""

    def __init__(self, *pods: Pod, daemon_sets: tuple[DaemonSet, ...] = ()) -> None:
        self.pods = pods
        self.daemon_sets = daemon_sets
        self.claims: list[NodeClaim] = []
        self.nodes: list[Node] = []

    def claim(self, name: str, planned: str, *, zone: str = "a", cpu: int = 4) -> NodeClaim:
        """A launched NodeClaim without a node, for planned pods (their names, separated by spaces)."""
        claim = msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "creationTimestamp": (NOW - 40 * SECOND).isoformat(),
                    "labels": {names.NODEPOOL: "default", names.ZONE: zone},
                    "annotations": {names.PLANNED_PODS: ",".join(f"default/{key}" for key in planned.split())},
                },
                "spec": {"startupTaints": [{"key": names.PODS_NOT_NOMINATED_TAINT, "effect": "NoSchedule"}]},
                "status": {"providerID": f"aws:///{zone}/{name}", "allocatable": {"cpu": str(cpu), "pods": "10"}},
            },
            NodeClaim,
        )
        self.claims.append(claim)
        return claim

    def joined(
        self,
        name: str,
        planned: str,
        *,
        zone: str = "a",
        cpu: int = 4,
        ready_for: timedelta | None = SECOND,
        taints: Iterable[Taint] = (PODS_NOT_NOMINATED,),
    ) -> None:
        """A NodeClaim whose node ``node-NAME`` has joined; ``ready_for`` None: it isn't Ready yet."""
        claim = self.claim(name, planned, zone=zone, cpu=cpu)
        ready = [] if ready_for is None else [_true("Ready", since=NOW - ready_for)]
        self._add_node(claim, zone, cpu, ready, taints, {})

    def initialized(self, name: str, planned: str, *, ago: timedelta, zone: str = "a", cpu: int = 4) -> None:
        """A NodeClaim whose node ``node-NAME`` has taken pods for some time."""
        claim = self.claim(name, planned, zone=zone, cpu=cpu)
        self.claims[-1] = replace(
            claim,
            status=replace(
                claim.status,
                node_name=f"node-{name}",
                conditions=[_true(nodeclaim.INITIALIZED, since=NOW - ago)],
            ),
        )
        self._add_node(claim, zone, cpu, [_true("Ready", since=NOW - ago)], (), {names.INITIALIZED: "true"})

    def _add_node(
        self,
        claim: NodeClaim,
        zone: str,
        cpu: int,
        conditions: list[Condition],
        taints: Iterable[Taint],
        labels: dict[str, str],
    ) -> None:
        node = msgspec.convert(
            {
                "metadata": {
                    "name": f"node-{claim.name}",
                    "labels": {names.REGISTERED: "true", names.NODEPOOL: "default", names.ZONE: zone, **labels},
                },
                "spec": {"providerID": claim.status.provider_id},
                "status": {"allocatable": {"cpu": str(cpu), "pods": "10"}},
            },
            Node,
        )
        spec, status = replace(node.spec, taints=list(taints)), replace(node.status, conditions=conditions)
        self.nodes.append(replace(node, spec=spec, status=status))

    def nominate(self) -> PodNominations:
        snapshot = Snapshot(
            taken_at=NOW,
            pods=self.pods,
            node_claims=tuple(self.claims),
            nodes=tuple(self.nodes),
            daemon_sets=self.daemon_sets,
        )
        claims = {c.status.provider_id: c for c in self.claims}
        return nominate_pods(snapshot, [(claims[n.spec.provider_id], n) for n in self.nodes], now=NOW)


def _true(type_: str, *, since: datetime) -> Condition:
    return Condition(type=type_, status="True", last_transition_time=since)


def by_node(nominations: PodNominations) -> dict[str, list[str]]:
    return {name: sorted(p.metadata.name for p in pods) for name, pods in nominations.by_node.items()}


def test_pods_are_nominated_for_the_node_that_was_planned_for_them_and_the_node_takes_pods() -> None:
    cluster = Cluster(pod("web-1"), pod("web-2"), pod("another"))
    cluster.joined("c1", "web-1 web-2")
    nominations = cluster.nominate()
    assert by_node(nominations) == {"node-c1": ["web-1", "web-2"]}
    assert nominations.released == {"node-c1"}
    assert nominations.cleared == []


@pytest.mark.parametrize(
    ("ready_for", "taints"),
    [(None, [PODS_NOT_NOMINATED]), (SECOND, [PODS_NOT_NOMINATED, Taint(key="agent-not-ready", effect="NoSchedule")])],
)
def test_a_node_that_is_not_ready_for_pods_stays_closed(ready_for: timedelta | None, taints: list[Taint]) -> None:
    cluster = Cluster(pod("web-1"))
    cluster.joined("c1", "web-1", ready_for=ready_for, taints=taints)
    nominations = cluster.nominate()
    assert by_node(nominations) == {}
    assert nominations.released == frozenset()


@pytest.mark.parametrize(
    "gone",
    [
        pod("web-1", nodeName="old"),
        pod("web-1", schedulingGates=[{"name": "wait"}]),
        pod("web-1", age=10 * SECOND),
        pod("web-2"),
    ],
    ids=["runs elsewhere", "is gated", "is another of the same name", "is gone"],
)
def test_a_node_whose_planned_pods_need_it_no_more_takes_pods_at_once(gone: Pod) -> None:
    cluster = Cluster(gone)
    cluster.joined("c1", "web-1")
    nominations = cluster.nominate()
    assert by_node(nominations) == {}
    assert nominations.released == {"node-c1"}


def test_pods_added_to_the_plan_later_are_nominated_though_they_are_younger_than_the_nodeclaim() -> None:
    cluster = Cluster(pod("web-1", age=10 * SECOND))
    cluster.joined("c1", "web-1")
    claim = cluster.claims[0]
    added = {**claim.metadata.annotations, names.PLANNED_AT: (NOW - 5 * SECOND).isoformat()}
    cluster.claims[0] = replace(claim, metadata=replace(claim.metadata, annotations=added))
    assert by_node(cluster.nominate()) == {"node-c1": ["web-1"]}


def test_on_a_node_smaller_than_planned_the_smallest_pods_lose_their_nomination() -> None:
    cluster = Cluster(pod("one", "1"), pod("two", "2"), pod("three", "3"))
    cluster.joined("c1", "one two three", cpu=5)
    assert by_node(cluster.nominate()) == {"node-c1": ["three", "two"]}


def test_nominations_leave_what_daemon_sets_take_once_the_node_takes_pods() -> None:
    daemon_set = msgspec.convert(
        {
            "metadata": {"name": "logs", "namespace": "default"},
            "spec": {
                "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
            },
        },
        DaemonSet,
    )
    cluster = Cluster(pod("one", "1"), pod("three", "3"), daemon_sets=(daemon_set,))
    cluster.joined("c1", "one three")
    assert by_node(cluster.nominate()) == {"node-c1": ["three"]}


def test_a_nomination_that_kube_scheduler_cleared_is_written_again_during_the_window() -> None:
    cluster = Cluster(pod("web-1"), pod("web-2", nominatedNodeName="node-c1"))
    cluster.initialized("c1", "web-1 web-2", ago=NOMINATION_WINDOW - SECOND)
    nominations = cluster.nominate()
    assert by_node(nominations) == {"node-c1": ["web-1"]}
    assert nominations.cleared == []


def test_nominations_are_cleared_after_the_window_and_where_the_node_is_gone() -> None:
    stays = pod("preempts", nominatedNodeName="node-c1")
    cluster = Cluster(pod("web-1", nominatedNodeName="node-c1"), pod("web-2", nominatedNodeName="gone"), stays)
    cluster.initialized("c1", "web-1 web-2", ago=NOMINATION_WINDOW)
    nominations = cluster.nominate()
    assert [p.metadata.name for p in nominations.cleared] == ["web-1", "web-2"]
    assert by_node(nominations) == {}


def test_after_the_window_of_another_pods_node_a_nomination_for_it_is_cleared_or_replaced() -> None:
    cluster = Cluster(pod("web-1", nominatedNodeName="node-c2"), pod("web-3", "9", nominatedNodeName="node-c2"))
    cluster.initialized("c1", "web-1 web-3", ago=SECOND)
    cluster.initialized("c2", "web-2", ago=NOMINATION_WINDOW)
    nominations = cluster.nominate()
    assert by_node(nominations) == {"node-c1": ["web-1"]}
    assert [p.metadata.name for p in nominations.cleared] == ["web-3"]


def test_while_kube_scheduler_binds_pods_those_that_it_has_not_tried_stay_nominated() -> None:
    """A nomination that it tried in vain would be gone."""
    waiting = pod("web-1", nominatedNodeName="node-c1")
    for bound_before, lasts in ((SECOND, True), (5 * SECOND, False)):
        for ago in (NOMINATION_WINDOW, LONGEST_NOMINATION_WINDOW):
            cluster = Cluster(waiting, bound("web-2", "node-c1", since=NOW - bound_before))
            cluster.initialized("c1", "web-1 web-2", ago=ago)
            is_kept = not cluster.nominate().cleared
            assert is_kept == (lasts and ago < LONGEST_NOMINATION_WINDOW)


def test_a_nomination_for_a_node_that_is_full_by_now_is_cleared_at_once() -> None:
    lost = pod("web-1", "3", nominatedNodeName="node-c1")
    cluster = Cluster(lost, bound("other", "node-c1", since=NOW - SECOND, cpu="2"))
    cluster.initialized("c1", "web-1", ago=SECOND)
    assert [p.metadata.name for p in cluster.nominate().cleared] == ["web-1"]


def test_a_nomination_for_a_node_whose_pods_are_leaving_stays() -> None:
    preempted = bound("other", "node-c1", since=NOW - SECOND, cpu="2")
    preempted = replace(preempted, metadata=replace(preempted.metadata, deletion_timestamp=NOW))
    cluster = Cluster(pod("web-1", "3", nominatedNodeName="node-c1"), preempted)
    cluster.initialized("c1", "web-1", ago=SECOND)
    assert cluster.nominate().cleared == []


def test_nodes_whose_pods_have_rules_about_each_other_take_pods_together() -> None:
    spread = [pod(f"web-{i}", tried=i, **SPREAD) for i in range(1, 3)]
    cluster = Cluster(*spread, plain("plain-1"), plain("plain-2"))
    cluster.joined("c1", "web-1", zone="a")
    cluster.joined("c2", "plain-1", zone="a")
    cluster.joined("c3", "web-2", zone="b")
    cluster.joined("c4", "plain-2", zone="b")
    assert cluster.nominate().linked == (frozenset({"node-c1", "node-c3"}),)


def test_a_pod_that_preempts_others_elsewhere_keeps_its_nomination() -> None:
    cluster = Cluster(pod("web-1", nominatedNodeName="node-c2"), pod("web-2"))
    cluster.joined("c1", "web-1 web-2")
    cluster.initialized("c2", "", ago=timedelta(hours=1))
    cluster.claims[1] = replace(cluster.claims[1], spec=replace(cluster.claims[1].spec, startup_taints=[]))
    assert by_node(cluster.nominate()) == {"node-c1": ["web-2"]}


def test_spread_pods_are_nominated_in_an_order_in_which_the_skew_is_kept_at_every_step() -> None:
    """kube-scheduler takes them by age; two in a row for one zone would violate maxSkew 1."""
    pods = [pod(f"web-{i}", tried=i, **SPREAD) for i in range(1, 7)]
    cluster = Cluster(*pods)
    cluster.joined("c1", "web-1 web-2", zone="a")
    cluster.joined("c2", "web-3 web-4", zone="b")
    cluster.joined("c3", "web-5 web-6", zone="c")
    nominations = cluster.nominate()
    zone_of = {name: node for node, names_ in by_node(nominations).items() for name in names_}
    assert len(zone_of) == 6
    assert {zone_of[f"web-{i}"] for i in (1, 2, 3)} == {"node-c1", "node-c2", "node-c3"}
    assert nominations.released == {"node-c1", "node-c2", "node-c3"}


def test_spread_pods_that_are_nominated_keep_their_node_when_the_order_is_computed_again() -> None:
    nodes = ["node-c1", "node-c2", "node-c1", "node-c2"]
    pods = [pod(f"web-{i}", tried=10 - i, nominatedNodeName=node, **SPREAD) for i, node in enumerate(nodes) if i != 1]
    cluster = Cluster(*pods, pod("web-1", tried=1, **SPREAD))
    cluster.initialized("c1", "web-0 web-1", zone="a", ago=SECOND)
    cluster.initialized("c2", "web-2 web-3", zone="b", ago=SECOND)
    assert by_node(cluster.nominate()) == {"node-c2": ["web-1"]}


def test_a_node_waits_for_a_node_in_another_zone_that_its_spread_pods_need() -> None:
    pods = [pod(f"web-{i}", tried=i, **SPREAD) for i in range(1, 5)]
    cluster = Cluster(*pods, pod("plain"))
    cluster.joined("c1", "web-1 web-2", zone="a")
    cluster.claim("c2", "web-3 web-4", zone="b")
    cluster.joined("c3", "plain", zone="a")
    nominations = cluster.nominate()
    assert nominations.released == {"node-c3"}
    assert by_node(nominations) == {"node-c3": ["plain"]}


def test_a_node_that_has_waited_takes_pods_with_the_nominations_that_are_possible() -> None:
    pods = [pod(f"web-{i}", tried=i, **SPREAD) for i in range(1, 5)]
    cluster = Cluster(*pods)
    cluster.joined("c1", "web-1 web-2", zone="a", ready_for=MAX_WAIT)
    cluster.claim("c2", "web-3 web-4", zone="b")
    nominations = cluster.nominate()
    assert nominations.released == {"node-c1"}
    assert by_node(nominations) == {"node-c1": ["web-1"]}


def test_a_node_does_not_wait_where_the_spread_allows_its_pods_already() -> None:
    cluster = Cluster(pod("web-1", **SPREAD), pod("web-2", **SPREAD))
    cluster.joined("c1", "web-1", zone="a")
    cluster.claim("c2", "web-2", zone="b")
    nominations = cluster.nominate()
    assert by_node(nominations) == {"node-c1": ["web-1"]}


def test_pods_that_exclude_each_other_are_nominated_for_a_node_each() -> None:
    cluster = Cluster(pod("web-1", **ALONE), pod("web-2", **ALONE), pod("web-3", **ALONE))
    cluster.joined("c1", "web-1")
    cluster.joined("c2", "web-2 web-3")
    nominations = cluster.nominate()
    assert {name: len(pods) for name, pods in by_node(nominations).items()} == {"node-c1": 1, "node-c2": 1}


def test_a_pod_whose_node_selector_no_longer_fits_is_not_nominated() -> None:
    cluster = Cluster(pod("web-1", nodeSelector={"disk": "nvme"}))
    cluster.joined("c1", "web-1")
    nominations = cluster.nominate()
    assert by_node(nominations) == {}
    assert nominations.released == {"node-c1"}

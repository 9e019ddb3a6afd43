"""Which pods are nominated for new nodes, when these take pods, and when nominations end."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from functions.lifecycle.claims.nomination import MAX_WAIT, opened_together
from shared.api import labels as names
from shared.api.daemon_set import DaemonSet
from shared.api.kubernetes import Pod, Taint
from shared.api.nodeclaim import ResourceRequests
from shared.api.taints import PODS_NOT_NOMINATED
from shared.base.struct import with_fields
from shared.scheduling.nominations.planned_pods import LONGEST_NOMINATION_WINDOW, NOMINATION_WINDOW
from tests.unit.lifecycle.joining_cluster import ALONE, APART, NOW, SECOND, SPREAD, Cluster, bound, plain, pod

if TYPE_CHECKING:
    from functions.lifecycle.claims.nomination import PodNominations


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


def test_a_node_that_lacks_a_device_is_open_for_its_device_plugin_and_gets_the_planned_pods_later() -> None:
    cluster = Cluster(pod("web-1"))
    cluster.joined("c1", "web-1")
    (claim,) = cluster.claims
    requests = ResourceRequests(requests={"cpu": "1", "nvidia.com/gpu": "1"})
    cluster.claims = [with_fields(claim, spec=with_fields(claim.spec, resources=requests))]
    nominations = cluster.nominate()
    assert by_node(nominations) == {}
    assert nominations.released == {"node-c1"}

    (node,) = cluster.nodes
    registered = {**node.status.allocatable, "nvidia.com/gpu": "1"}
    cluster.nodes = [with_fields(node, status=with_fields(node.status, allocatable=registered))]
    assert by_node(cluster.nominate()) == {"node-c1": ["web-1"]}


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
    cluster.claims[0] = with_fields(claim, metadata=with_fields(claim.metadata, annotations=added))
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
    """A nomination whose try failed would be gone."""
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
    preempted = with_fields(preempted, metadata=with_fields(preempted.metadata, deletion_timestamp=NOW))
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


def test_nodes_whose_pods_are_alike_take_pods_at_once_a_few_pods_at_a_time() -> None:
    cluster = Cluster(*(pod(f"web-{i}") for i in range(1, 6)), pod("large-1", "2"), pod("large-2", "2"), pod("mixed"))
    for name, pods in (("c1", "web-1"), ("c2", "web-2"), ("c3", "web-3 web-4"), ("c4", "large-1"), ("c5", "web-5")):
        cluster.joined(name, pods)
    cluster.joined("c6", "large-2 mixed")
    groups = opened_together(cluster.pairs(), cluster.nominate(), 4)
    opened = [[claim.name for claim, _ in group] for group in groups]
    assert opened == [["c1", "c2"], ["c3", "c5"], ["c4"], ["c6"]]


def test_nodes_whose_pods_have_rules_about_each_other_take_pods_at_once_however_many_these_are() -> None:
    spread = [pod(f"web-{i}", tried=i, **SPREAD) for i in range(1, 3)]
    cluster = Cluster(*spread)
    cluster.joined("c1", "web-1", zone="a")
    cluster.joined("c2", "web-2", zone="b")
    assert [len(group) for group in opened_together(cluster.pairs(), cluster.nominate(), 1)] == [2]


def test_a_pod_that_preempts_others_elsewhere_keeps_its_nomination() -> None:
    cluster = Cluster(pod("web-1", nominatedNodeName="node-c2"), pod("web-2"))
    cluster.joined("c1", "web-1 web-2")
    cluster.initialized("c2", "", ago=timedelta(hours=1))
    cluster.claims[1] = with_fields(cluster.claims[1], spec=with_fields(cluster.claims[1].spec, startup_taints=[]))
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
    cluster = Cluster(*pods, pod("web-1", tried=11, **SPREAD))
    cluster.initialized("c1", "web-0 web-1", zone="a", ago=SECOND)
    cluster.initialized("c2", "web-2 web-3", zone="b", ago=SECOND)
    assert by_node(cluster.nominate()) == {"node-c2": ["web-1"]}


def test_a_nominated_pod_keeps_its_place_in_the_order_in_which_pods_were_tried() -> None:
    """web-2 was nominated for zone a, after web-1 and before web-3 were tried; its nomination is the latest write."""
    marked = pod("web-2", tried=9, nominatedNodeName="node-c1", **SPREAD)
    marked = with_fields(marked, metadata=with_fields(marked.metadata, annotations={names.TRIED_VERSION: "2"}))
    cluster = Cluster(pod("web-1", tried=1, **SPREAD), marked, pod("web-3", tried=3, **SPREAD))
    cluster.initialized("c1", "web-1 web-2", zone="a", ago=SECOND)
    cluster.initialized("c2", "web-3", zone="b", ago=SECOND)
    assert by_node(cluster.nominate()) == {"node-c1": ["web-1", "web-3"], "node-c2": ["web-2"]}


def test_a_pod_that_was_tried_after_it_was_nominated_has_its_new_place() -> None:
    """The failed try cleared its nomination; the mark is of the one before."""
    tried_again = pod("web-2", tried=9, **SPREAD)
    tried_again = with_fields(
        tried_again, metadata=with_fields(tried_again.metadata, annotations={names.TRIED_VERSION: "2"})
    )
    cluster = Cluster(pod("web-1", tried=1, **SPREAD), tried_again, pod("web-3", tried=3, **SPREAD))
    cluster.initialized("c1", "web-1 web-2", zone="a", ago=SECOND)
    cluster.initialized("c2", "web-3", zone="b", ago=SECOND)
    assert by_node(cluster.nominate()) == {"node-c1": ["web-1", "web-2"], "node-c2": ["web-3"]}


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


def test_a_node_waits_for_the_other_nodes_of_pods_that_prefer_to_be_apart() -> None:
    cluster = Cluster(pod("web-1", **APART), pod("web-2", **APART), pod("plain"))
    cluster.joined("c1", "web-1")
    cluster.claim("c2", "web-2")
    cluster.joined("c3", "plain")
    assert cluster.nominate().released == {"node-c3"}
    together = Cluster(pod("web-1", **APART), pod("web-2", **APART))
    together.joined("c1", "web-1", ready_for=4 * SECOND)
    together.joined("c2", "web-2")
    assert by_node(together.nominate()) == {"node-c1": ["web-1"], "node-c2": ["web-2"]}


def test_a_node_waits_for_pods_that_prefer_to_be_apart_for_seconds_only() -> None:
    cluster = Cluster(pod("web-1", **APART), pod("web-2", **APART))
    cluster.joined("c1", "web-1", ready_for=MAX_WAIT)
    cluster.claim("c2", "web-2")
    assert cluster.nominate().released == {"node-c1"}

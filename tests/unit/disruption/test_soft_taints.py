"""New pods avoid the nodes whose pods would fit on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.kubernetes import Taint
from shared.api.taints import DELETION_CANDIDATE, LESS_USED, with_disrupted
from shared.base.struct import with_fields
from shared.disruption import soft_taints
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from tests.unit.disruption.conftest import Cluster


def three_nodes(cluster: Cluster, *, annotations: dict[str, str] | None = None) -> None:
    """Four, two and one of eight cpus in use; the emptiest has these annotations."""
    for name, cpus, of_node in (("full", 4, None), ("half", 2, None), ("least", 1, annotations)):
        cluster.node(name, 8, annotations=of_node)
        for i in range(cpus):
            cluster.pod(f"{name}-{i}", name, 1000)


def taint(cluster: Cluster, name: str, count: int = 2) -> None:
    (i,) = (i for i, n in enumerate(cluster.nodes) if n.metadata.name == name)
    cluster.nodes[i] = soft_taints.with_soft_taints(cluster.nodes[i], count)


def could_go(cluster: Cluster) -> frozenset[str]:
    """The nodes that get both soft taints."""
    return frozenset(name for name, count in soft_taints.wanted_taints(cluster.state()).items() if count == 2)


def disrupt(cluster: Cluster, name: str) -> None:
    """Taint the node as the interruption function does, which has no command for it."""
    (i,) = (i for i, n in enumerate(cluster.nodes) if n.metadata.name == name)
    node = cluster.nodes[i]
    cluster.nodes[i] = with_fields(node, spec=with_fields(node.spec, taints=with_disrupted(node.spec.taints)))


def test_the_least_used_nodes_are_avoided_while_their_pods_fit_on_the_others(cluster: Cluster) -> None:
    three_nodes(cluster)
    # Three pods fit on the four free cpus of the fullest node. With them it is nearly full, so no third node follows.
    assert could_go(cluster) == {"half", "least"}
    cluster.pod("more-0", "full", 1000)
    assert could_go(cluster) == {"least"}


def test_the_nodes_of_a_zone_have_only_each_other(cluster: Cluster) -> None:
    three_nodes(cluster)
    least = cluster.nodes[2]
    labels = {**least.metadata.labels, names.ZONE: "b"}
    cluster.nodes[2] = with_fields(least, metadata=with_fields(least.metadata, labels=labels))
    assert could_go(cluster) == {"half"}


def test_one_node_of_a_zone_is_always_left(cluster: Cluster) -> None:
    cluster.node("a", 8)
    assert could_go(cluster) == frozenset()
    cluster.node("b", 8)
    assert could_go(cluster) == {"a"}


def test_a_node_that_stays_is_filled_instead(cluster: Cluster) -> None:
    three_nodes(cluster, annotations={names.DO_NOT_DISRUPT: "true"})
    assert could_go(cluster) == {"half", "full"}


def test_a_pool_whose_nodes_never_go_or_that_opts_out_has_no_soft_taints(cluster: Cluster) -> None:
    three_nodes(cluster)
    cluster.pool = with_fields(
        cluster.pool, metadata=with_fields(cluster.pool.metadata, annotations={soft_taints.ANNOTATION: "false"})
    )
    assert could_go(cluster) == frozenset()
    cluster.disruption(consolidate_after="Never")
    assert could_go(cluster) == frozenset()


def test_cordoned_nodes_neither_are_avoided_nor_have_room(cluster: Cluster) -> None:
    three_nodes(cluster)
    cluster.nodes[0] = with_fields(cluster.nodes[0], spec=with_fields(cluster.nodes[0].spec, unschedulable=True))
    assert could_go(cluster) == {"least"}


def test_nodes_that_an_interruption_takes_neither_are_avoided_nor_have_room(cluster: Cluster) -> None:
    three_nodes(cluster)
    disrupt(cluster, "full")
    assert could_go(cluster) == {"least"}
    disrupt(cluster, "half")
    assert could_go(cluster) == frozenset()
    disrupt(cluster, "least")
    assert could_go(cluster) == frozenset()


def changed(cluster: Cluster) -> list[tuple[str, int]]:
    return [(n.metadata.name, count) for n, count in soft_taints.changed_nodes(cluster.state())]


def test_only_what_differs_is_changed(cluster: Cluster) -> None:
    three_nodes(cluster)
    assert changed(cluster) == [("half", 2), ("least", 2)]
    taint(cluster, "least")
    taint(cluster, "full")
    assert changed(cluster) == [("full", 0), ("half", 2)]


def test_the_less_used_half_of_the_nodes_that_stay_comes_between(cluster: Cluster) -> None:
    for name, cpus in (("a", 7), ("b", 6), ("c", 5), ("d", 1)):
        cluster.node(name, 8)
        for i in range(cpus):
            cluster.pod(f"{name}-{i}", name, 1000)
    assert soft_taints.wanted_taints(cluster.state()) == {"d": 2, "c": 1}
    cluster.pod("d-more", "d", 7000)
    assert soft_taints.wanted_taints(cluster.state()) == {}  # where no node could go, none is less preferred


def test_nodes_that_begin_or_cease_to_be_able_to_go_are_changed_first(cluster: Cluster) -> None:
    for name, cpus in (("a", 7), ("b", 6), ("c", 5), ("d", 1)):
        cluster.node(name, 8)
        for i in range(cpus):
            cluster.pod(f"{name}-{i}", name, 1000)
    assert changed(cluster) == [("d", 2), ("c", 1)]
    taint(cluster, "a", 1)
    assert changed(cluster) == [("d", 2), ("a", 0), ("c", 1)]


def test_equal_nodes_do_not_take_turns(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.node(name, 8)
        for i in range(3):
            cluster.pod(f"{name}-{i}", name, 1000)
    assert could_go(cluster) == {"a"}
    taint(cluster, "c")
    assert could_go(cluster) == {"c"}


def test_scheduling_decisions_ignore_the_taint(cluster: Cluster) -> None:
    three_nodes(cluster)
    cluster.pod("new", "", 7000)
    for name in ("full", "half", "least"):
        taint(cluster, name)
    state = cluster.state()
    decision = schedule(
        Problem(snapshot=state.snapshot, instance_types=state.instance_types, pods=frozenset({"default/new"}))
    )
    assert decision.existing_nodes == {"least": ("default/new",)}


def test_other_taints_are_kept(cluster: Cluster) -> None:
    cluster.node("a", 8)
    team = Taint(key="team", value="a", effect="NoSchedule")
    node = with_fields(cluster.nodes[0], spec=with_fields(cluster.nodes[0].spec, taints=[team]))
    for count, soft in ((2, [LESS_USED, DELETION_CANDIDATE]), (1, [LESS_USED]), (0, [])):
        changed = soft_taints.with_soft_taints(node, count)
        assert changed.spec.taints == [team, *soft]
        assert soft_taints.soft_taint_count(changed) == count
        assert soft_taints.with_soft_taints(changed, count) == changed
        assert soft_taints.with_soft_taints(changed, 0) == node


def test_a_node_with_the_one_taint_of_an_earlier_release_gets_both(cluster: Cluster) -> None:
    three_nodes(cluster)
    node = cluster.nodes[2]
    cluster.nodes[2] = with_fields(node, spec=with_fields(node.spec, taints=[DELETION_CANDIDATE]))
    assert changed(cluster) == [("half", 2), ("least", 2)]


NODES = st.lists(st.tuples(st.integers(0, 16), st.integers(0, 64), st.booleans(), st.integers(0, 2)), max_size=12)


@given(NODES)
def test_the_pods_of_nodes_that_could_go_fit_on_the_others_in_sum(nodes: list[tuple[int, int, bool, int]]) -> None:
    capacity = np.array([16, 64])
    requested = np.array([[n[0], n[1]] for n in nodes], np.int64).reshape(-1, 2)
    may_go, current = np.array([n[2] for n in nodes], np.bool_), np.array([n[3] for n in nodes], np.int64)
    counts = soft_taints.taint_counts(requested, capacity - requested, may_go=may_go, current=current)
    chosen = counts == 2
    assert not (chosen & ~may_go).any()
    assert not nodes or (counts == 0).any()
    assert counts.any() == chosen.any()
    room = (capacity - requested)[~chosen].sum(0)
    assert (requested[chosen].sum(0) <= soft_taints.FILL * room).all()

"""New pods avoid the nodes whose pods would fit on the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.taints import DELETION_CANDIDATE, with_disrupted
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


def taint(cluster: Cluster, name: str) -> None:
    (i,) = (i for i, n in enumerate(cluster.nodes) if n.metadata.name == name)
    cluster.nodes[i] = soft_taints.with_soft_taint(cluster.nodes[i])


def disrupt(cluster: Cluster, name: str) -> None:
    """Taint the node as the interruption function does, which has no command for it."""
    (i,) = (i for i, n in enumerate(cluster.nodes) if n.metadata.name == name)
    node = cluster.nodes[i]
    cluster.nodes[i] = with_fields(node, spec=with_fields(node.spec, taints=with_disrupted(node.spec.taints)))


def test_the_least_used_nodes_are_avoided_while_their_pods_fit_on_the_others(cluster: Cluster) -> None:
    three_nodes(cluster)
    # Three pods fit on the four free cpus of the fullest node. With them it is nearly full, so no third node follows.
    assert soft_taints.avoided_nodes(cluster.state()) == {"half", "least"}
    cluster.pod("more-0", "full", 1000)
    assert soft_taints.avoided_nodes(cluster.state()) == {"least"}


def test_the_nodes_of_a_zone_have_only_each_other(cluster: Cluster) -> None:
    three_nodes(cluster)
    least = cluster.nodes[2]
    labels = {**least.metadata.labels, names.ZONE: "b"}
    cluster.nodes[2] = with_fields(least, metadata=with_fields(least.metadata, labels=labels))
    assert soft_taints.avoided_nodes(cluster.state()) == {"half"}


def test_one_node_of_a_zone_is_always_left(cluster: Cluster) -> None:
    cluster.node("a", 8)
    assert soft_taints.avoided_nodes(cluster.state()) == frozenset()
    cluster.node("b", 8)
    assert soft_taints.avoided_nodes(cluster.state()) == {"a"}


def test_a_node_that_stays_is_filled_instead(cluster: Cluster) -> None:
    three_nodes(cluster, annotations={names.DO_NOT_DISRUPT: "true"})
    assert soft_taints.avoided_nodes(cluster.state()) == {"half", "full"}


def test_a_pool_whose_nodes_never_go_or_that_opts_out_has_no_soft_taints(cluster: Cluster) -> None:
    three_nodes(cluster)
    cluster.pool = with_fields(
        cluster.pool, metadata=with_fields(cluster.pool.metadata, annotations={soft_taints.SOFT_TAINTS: "false"})
    )
    assert soft_taints.avoided_nodes(cluster.state()) == frozenset()
    cluster.disruption(consolidate_after="Never")
    assert soft_taints.avoided_nodes(cluster.state()) == frozenset()


def test_cordoned_nodes_neither_are_avoided_nor_have_room(cluster: Cluster) -> None:
    three_nodes(cluster)
    cluster.nodes[0] = with_fields(cluster.nodes[0], spec=with_fields(cluster.nodes[0].spec, unschedulable=True))
    assert soft_taints.avoided_nodes(cluster.state()) == {"least"}


def test_nodes_that_an_interruption_takes_neither_are_avoided_nor_have_room(cluster: Cluster) -> None:
    three_nodes(cluster)
    disrupt(cluster, "full")
    assert soft_taints.avoided_nodes(cluster.state()) == {"least"}
    disrupt(cluster, "half")
    assert soft_taints.avoided_nodes(cluster.state()) == frozenset()
    disrupt(cluster, "least")
    assert soft_taints.avoided_nodes(cluster.state()) == frozenset()


def test_only_what_differs_is_changed(cluster: Cluster) -> None:
    three_nodes(cluster)
    assert [n.metadata.name for n in soft_taints.changed_nodes(cluster.state())] == ["half", "least"]
    taint(cluster, "least")
    taint(cluster, "full")
    assert [n.metadata.name for n in soft_taints.changed_nodes(cluster.state())] == ["full", "half"]


def test_equal_nodes_do_not_take_turns(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.node(name, 8)
        for i in range(3):
            cluster.pod(f"{name}-{i}", name, 1000)
    assert soft_taints.avoided_nodes(cluster.state()) == {"a"}
    taint(cluster, "c")
    assert soft_taints.avoided_nodes(cluster.state()) == {"c"}


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
    node = soft_taints.with_soft_taint(cluster.nodes[0])
    assert node.spec.taints == [DELETION_CANDIDATE]
    assert soft_taints.with_soft_taint(node) == node
    assert soft_taints.without_soft_taint(node) == cluster.nodes[0]


NODES = st.lists(st.tuples(st.integers(0, 16), st.integers(0, 64), st.booleans(), st.booleans()), max_size=12)


@given(NODES)
def test_the_pods_of_avoided_nodes_fit_on_the_others_in_sum(nodes: list[tuple[int, int, bool, bool]]) -> None:
    capacity = np.array([16, 64])
    requested = np.array([[n[0], n[1]] for n in nodes], np.int64).reshape(-1, 2)
    may_go, tainted = (np.array([n[i] for n in nodes], np.bool_) for i in (2, 3))
    chosen = soft_taints.avoided(requested, capacity - requested, may_go=may_go, is_tainted=tainted)
    assert not (chosen & ~may_go).any()
    assert chosen.sum() < len(nodes) or not nodes
    room = (capacity - requested)[~chosen].sum(0)
    assert (requested[chosen].sum(0) <= soft_taints.FILL * room).all()

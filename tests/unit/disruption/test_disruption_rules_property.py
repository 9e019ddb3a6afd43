"""Whatever the cluster is like, and by whichever method: what is decided keeps every rule there is.

The scheduling core says where pods go; whether that is right is judged here by hand.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.api import labels as names
from shared.api.kubernetes import Affinity, PodAffinity, PodAffinityTerm
from shared.api.meta import LabelSelector
from shared.api.nodeclaim import NodeClaimSpec
from shared.api.nodepool import Budget
from shared.api.quantity import parse_quantity
from shared.disruption import emptiness
from shared.disruption.command import EMPTY, UNDERUTILIZED
from shared.disruption.methods import METHODS
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.disruption.command import Command
    from shared.disruption.methods import Method
    from shared.scheduling.decision import Decision
    from tests.unit.disruption.conftest import Cluster

ALONE = Affinity(
    pod_anti_affinity=PodAffinity(
        required_during_scheduling_ignored_during_execution=[
            PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelector(match_labels={"app": "alone"}))
        ]
    )
)
AGES = (timedelta(minutes=5), timedelta(hours=6), timedelta(hours=30))

pods = st.tuples(
    st.sampled_from((100, 500, 900)),
    st.sampled_from(("any", "any", "any", "on-demand", "spot", "small", "alone", "kept")),
)
nodes = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4, 8)), st.booleans(), st.lists(pods, max_size=5), st.booleans(), st.sampled_from(AGES)
    ),
    min_size=1,
    max_size=6,
)


def build(cluster: Cluster, given_nodes: list[tuple[int, bool, list[tuple[int, str]], bool, timedelta]]) -> None:
    """The nodes with their pods, as many as fit; some expired, some kept by their users, some empty for an hour."""
    for i, (cpu, spot, asked, kept, age) in enumerate(given_nodes):
        node = f"n{i}"
        cluster.node(
            node,
            cpu,
            spot=spot,
            age=age,
            annotations={names.DO_NOT_DISRUPT: "true"} if kept else {},
            spec=NodeClaimSpec(expire_after="24h"),
        )
        room, alone = cpu * 1000, False
        for k, (request, kind) in enumerate(asked):
            fits = request <= room and not (kind == "alone" and alone)
            own = {"on-demand": names.ON_DEMAND, "spot": names.SPOT}.get(kind)
            if not fits or (own is not None and own != (names.SPOT if spot else names.ON_DEMAND)):
                continue
            if kind == "small" and cpu > 2:
                continue
            room -= request
            alone |= kind == "alone"
            selector = {names.CAPACITY_TYPE: own} if own else {}
            if kind == "small":
                selector = {names.INSTANCE_TYPE: f"m.{cpu}x"}
            cluster.pod(
                f"p{i}-{k}",
                node,
                request,
                annotations={names.DO_NOT_DISRUPT: "true"} if kind == "kept" else {},
                node_selector=selector,
                affinity=ALONE if kind == "alone" else None,
            )
            if kind == "alone":
                last = cluster.pods[-1]
                labels = {**last.metadata.labels, "app": "alone"}
                cluster.pods[-1] = replace(last, metadata=replace(last.metadata, labels=labels))
    cluster.claims = [
        emptiness.with_empty_condition(c, is_empty=True, now=cluster.state().now - timedelta(hours=1))
        if not any(p.spec.node_name == c.status.node_name for p in cluster.pods)
        else c
        for c in cluster.claims
    ]


def decided(cluster: Cluster, methods: Sequence[Method]) -> list[Command]:
    """What the methods decide in one look, one after the other, from the same budgets, until one buys something."""
    state, budgets = cluster.state(), cluster.budget_tracker()
    actions: list[Command] = []
    for method in methods:
        command = method.compute(state, budgets, lambda: False)
        actions += command.commands
        if any(a.replacements for a in command.commands):
            break
        state = state.with_selected(command)
    return actions


def placed(cluster: Cluster, action: Command) -> Decision:
    """Where the pods go if the action is carried out."""
    problem = Problem(
        snapshot=cluster.snapshot, instance_types={"default": cluster.types}, leaving=frozenset(action.nodes)
    )
    return schedule(problem)


def labels_of(cluster: Cluster, decision: Decision) -> Mapping[str, Mapping[str, str]]:
    """By node or planned claim: the labels that are certain."""
    result: dict[str, Mapping[str, str]] = {n.metadata.name: n.metadata.labels for n in cluster.nodes}
    for i, claim in enumerate(decision.new_node_claims):
        certain = {r.key: r.values[0] for r in claim.requirements if r.operator == "In" and len(r.values) == 1}
        result[f"new-{i}"] = certain
    return result


def seats(cluster: Cluster, action: Command, decision: Decision) -> Mapping[str, list[Pod]]:
    """By node or planned claim: the pods that are there afterwards."""
    by_key = {p.key: p for p in cluster.pods}
    result: dict[str, list[Pod]] = {
        n.metadata.name: [p for p in cluster.pods if p.spec.node_name == n.metadata.name]
        for n in cluster.nodes
        if n.metadata.name not in action.nodes
    }
    for node, keys in decision.existing_nodes.items():
        result[node] += [by_key[k] for k in keys]
    for i, claim in enumerate(decision.new_node_claims):
        result[f"new-{i}"] = [by_key[k] for k in claim.pods]
    return result


def cpu_of(pod: Pod) -> int:
    return parse_quantity("cpu", str(pod.spec.containers[0].resources.requests["cpu"]))


@pytest.mark.parametrize("first", range(len(METHODS)), ids=[m.REASON for m in METHODS])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_nodes=nodes,
    budget=st.sampled_from(("0", "1", "50%", "100%")),
    evictable=st.sampled_from((0, 1, 3, 100)),
    limit=st.sampled_from((0, 0, 8, 16, 32)),
)
def test_no_decision_breaks_a_rule(
    make: Callable[[], Cluster],
    given_nodes: list[tuple[int, bool, list[tuple[int, str]], bool, timedelta]],
    budget: str,
    evictable: int,
    limit: int,
    first: int,
) -> None:
    cluster = make()
    cluster.disruption(budgets=[Budget(nodes=budget)])
    if limit:
        cluster.pool = replace(cluster.pool, spec=replace(cluster.pool.spec, limits={"cpu": str(limit)}))
    cluster.pod_budget(evictable)
    build(cluster, given_nodes)
    actions = decided(cluster, METHODS[first:])
    for action in actions:
        event(action.reason)

    # Budgets: however many methods decide, together they keep to it.
    gone = [node for a in actions for node in a.nodes]
    assert len(gone) == len(set(gone))
    assert len(gone) <= cluster.budget_tracker().remaining("default", UNDERUTILIZED)
    # do-not-disrupt, on nodes and pods
    kept = {n.metadata.name for n in cluster.nodes if names.DO_NOT_DISRUPT in n.metadata.annotations}
    kept |= {p.spec.node_name for p in cluster.pods if names.DO_NOT_DISRUPT in p.metadata.annotations}
    assert not kept & set(gone)

    state = cluster.state()
    prices = {c.status.node_name: state.price(c) or 0.0 for c in cluster.claims}
    capacity = {t.name: t.capacity["cpu"] for t in cluster.types}
    there = sum(parse_quantity("cpu", str(n.status.capacity["cpu"])) for n in cluster.nodes)
    for action in actions:
        # PodDisruptionBudgets: several nodes' pods leave at once, so they all count; one node's leave one by one.
        covered = [p for p in cluster.pods if p.spec.node_name in action.nodes and p.metadata.labels["app"] == "web"]
        assert not covered or evictable > 0
        assert len({p.spec.node_name for p in covered}) <= 1 or len(covered) <= evictable
        # Every pod of a removed node has a place, and nobody is left out.
        decision = placed(cluster, action)
        moved = {p.key for p in cluster.pods if p.spec.node_name in action.nodes}
        assert moved == {key for r in action.removals for key in r.pods}
        assert decision.pod_errors == {}
        assert len(decision.new_node_claims) <= len(action.replacements)
        # Limits: replacements come before the old nodes go, as the largest that they may become.
        largest = sum(max(capacity[t] for t in r.instance_types) for r in action.replacements)
        assert not limit or not action.replacements or there + largest <= limit * 1000
        # Pods' constraints: capacity type, instance type, apart from their like, and room.
        labels = labels_of(cluster, decision)
        for node, seated in seats(cluster, action, decision).items():
            for pod in seated:
                assert all(labels[node].get(k) == v for k, v in pod.spec.node_selector.items())
            assert sum(1 for p in seated if p.metadata.labels["app"] == "alone") <= 1
            types = [labels[node][names.INSTANCE_TYPE]] if not node.startswith("new-") else []
            if node.startswith("new-"):
                types = list(decision.new_node_claims[int(node.removeprefix("new-"))].instance_types)
            assert all(sum(cpu_of(p) for p in seated) <= capacity[t] for t in types)
        # Applied, what is meant to save never costs more, whatever of the listed types is launched.
        if action.reason in (EMPTY, UNDERUTILIZED):
            before = sum(prices[n] for n in action.nodes)
            assert sum(c.cheapest.price for c in decision.new_node_claims) < before
            assert sum(worst(cluster, action, i) for i in range(len(action.replacements))) < before


def worst(cluster: Cluster, action: Command, index: int) -> float:
    """The dearest that a replacement may be launched as, of the capacity type that it asks for."""
    claim = action.replacements[index]
    (kind,) = (r.values[0] for r in claim.requirements if r.key == names.CAPACITY_TYPE)
    return max(
        o.price for t in cluster.types if t.name in claim.instance_types for o in t.offerings if o.capacity_type == kind
    )

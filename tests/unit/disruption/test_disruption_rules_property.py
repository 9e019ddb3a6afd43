"""Every command of every method respects all rules, on generated clusters.

The scheduler says where pods go; this test checks the rules independently.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.kubernetes import Affinity, PodAffinity, PodAffinityTerm
from shared.api.meta import LabelSelector
from shared.api.nodeclaim import NodeClaimSpec
from shared.api.nodepool import Budget
from shared.api.quantity import parse_quantity
from shared.base.struct import with_fields
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
CAPACITY_TYPES = {"on-demand": names.ON_DEMAND, "spot": names.SPOT}
AGES = (timedelta(minutes=5), timedelta(hours=6), timedelta(hours=30))

pods = st.tuples(
    st.sampled_from((100, 500, 900)),
    st.sampled_from(("any", "any", "any", "on-demand", "spot", "small", "alone", "protected")),
)
nodes = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4, 8)), st.booleans(), st.lists(pods, max_size=5), st.booleans(), st.sampled_from(AGES)
    ),
    min_size=1,
    max_size=6,
)


def build(cluster: Cluster, given_nodes: list[tuple[int, bool, list[tuple[int, str]], bool, timedelta]]) -> None:
    """Nodes with as many of their pods as fit; some expired, some with do-not-disrupt, some empty for an hour."""
    for i, (cpu, spot, pod_specs, protected, age) in enumerate(given_nodes):
        cluster.node(
            f"n{i}",
            cpu,
            spot=spot,
            age=age,
            annotations={names.DO_NOT_DISRUPT: "true"} if protected else {},
            spec=NodeClaimSpec(expire_after="24h"),
        )
        free, alone = cpu * 1000, False
        for k, (request, constraint) in enumerate(pod_specs):
            if request <= free and not (constraint == "alone" and alone) and allows(cpu, constraint, spot=spot):
                free -= request
                alone |= constraint == "alone"
                add_pod(cluster, f"p{i}-{k}", f"n{i}", request, constraint, cpu=cpu)
    cluster.claims = [
        emptiness.with_empty_condition(c, is_empty=True, now=cluster.state().now - timedelta(hours=1))
        if not any(p.spec.node_name == c.status.node_name for p in cluster.pods)
        else c
        for c in cluster.claims
    ]


def allows(cpu: int, constraint: str, *, spot: bool) -> bool:
    """Whether a node of that size and capacity type may run a pod with the constraint."""
    if constraint in CAPACITY_TYPES:
        return CAPACITY_TYPES[constraint] == (names.SPOT if spot else names.ON_DEMAND)
    return constraint != "small" or cpu <= 2


def add_pod(cluster: Cluster, name: str, node: str, request: int, constraint: str, *, cpu: int) -> None:
    selector = {names.CAPACITY_TYPE: CAPACITY_TYPES[constraint]} if constraint in CAPACITY_TYPES else {}
    if constraint == "small":
        selector = {names.INSTANCE_TYPE: f"m.{cpu}x"}
    cluster.pod(
        name,
        node,
        request,
        annotations={names.DO_NOT_DISRUPT: "true"} if constraint == "protected" else {},
        node_selector=selector,
        affinity=ALONE if constraint == "alone" else None,
    )
    if constraint == "alone":
        pod = cluster.pods[-1]
        labels = {**pod.metadata.labels, "app": "alone"}
        cluster.pods[-1] = with_fields(pod, metadata=with_fields(pod.metadata, labels=labels))


def compute_all(cluster: Cluster, methods: Sequence[Method]) -> list[Command]:
    """The commands of one reconcile: all methods with the same budgets, until one needs replacements."""
    state, budgets = cluster.state(), cluster.budget_tracker()
    commands: list[Command] = []
    for method in methods:
        result = method.compute(state, budgets, lambda: False)
        commands += result.commands
        if any(c.replacements for c in result.commands):
            break
        state = state.with_selected(result)
    return commands


def decision_for(cluster: Cluster, command: Command) -> Decision:
    """The scheduling decision for the pods if the command is executed."""
    problem = Problem(
        snapshot=cluster.snapshot, instance_types={"default": cluster.types}, leaving=frozenset(command.nodes)
    )
    return schedule(problem)


def labels_of(cluster: Cluster, decision: Decision) -> Mapping[str, Mapping[str, str]]:
    """By node or planned claim: the labels that it has in any case."""
    result: dict[str, Mapping[str, str]] = {n.metadata.name: n.metadata.labels for n in cluster.nodes}
    for i, claim in enumerate(decision.new_node_claims):
        certain = {r.key: r.values[0] for r in claim.requirements if r.operator == "In" and len(r.values) == 1}
        result[f"new-{i}"] = certain
    return result


def pods_by_node(cluster: Cluster, command: Command, decision: Decision) -> Mapping[str, list[Pod]]:
    """By node or planned claim: its pods afterwards."""
    by_key = {p.key: p for p in cluster.pods}
    result: dict[str, list[Pod]] = {
        n.metadata.name: [p for p in cluster.pods if p.spec.node_name == n.metadata.name]
        for n in cluster.nodes
        if n.metadata.name not in command.nodes
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
        cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, limits={"cpu": str(limit)}))
    cluster.pod_budget(evictable)
    build(cluster, given_nodes)
    commands = compute_all(cluster, METHODS[first:])
    for command in commands:
        event(command.reason)

    check_budgets_and_protection(cluster, commands)
    for command in commands:
        decision = decision_for(cluster, command)
        check_evictions(cluster, command, evictable)
        check_limit(cluster, command, limit)
        check_pods_are_scheduled(cluster, command, decision)
        check_constraints(cluster, command, decision)
        check_price(cluster, command, decision)


def check_budgets_and_protection(cluster: Cluster, commands: Sequence[Command]) -> None:
    """Disruption budgets hold for all methods together; do-not-disrupt holds on nodes and pods."""
    removed = [node for c in commands for node in c.nodes]
    assert len(removed) == len(set(removed))
    assert len(removed) <= cluster.budget_tracker().remaining("default", UNDERUTILIZED)
    protected = {n.metadata.name for n in cluster.nodes if names.DO_NOT_DISRUPT in n.metadata.annotations}
    protected |= {p.spec.node_name for p in cluster.pods if names.DO_NOT_DISRUPT in p.metadata.annotations}
    assert not protected & set(removed)


def check_evictions(cluster: Cluster, command: Command, evictable: int) -> None:
    """PodDisruptionBudgets: pods of several nodes are evicted together, so all count; a single node's one by one."""
    budgeted_pods = [p for p in cluster.pods if p.spec.node_name in command.nodes and p.metadata.labels["app"] == "web"]
    assert not budgeted_pods or evictable > 0
    assert len({p.spec.node_name for p in budgeted_pods}) <= 1 or len(budgeted_pods) <= evictable


def check_limit(cluster: Cluster, command: Command, limit: int) -> None:
    """Limits hold while old nodes and replacements run together, each replacement as its largest type."""
    capacity = {t.name: t.capacity["cpu"] for t in cluster.types}
    current_cpu = sum(parse_quantity("cpu", str(n.status.capacity["cpu"])) for n in cluster.nodes)
    largest = sum(max(capacity[t] for t in r.instance_types) for r in command.replacements)
    assert not limit or not command.replacements or current_cpu + largest <= limit * 1000


def check_pods_are_scheduled(cluster: Cluster, command: Command, decision: Decision) -> None:
    """Every pod of a removed node is scheduled elsewhere."""
    moved = {p.key for p in cluster.pods if p.spec.node_name in command.nodes}
    assert moved == {key for r in command.removals for key in r.pods}
    assert decision.pod_errors == {}
    assert len(decision.new_node_claims) <= len(command.replacements)


def check_constraints(cluster: Cluster, command: Command, decision: Decision) -> None:
    """Pods' constraints: capacity type, instance type, anti-affinity, and resources."""
    capacity = {t.name: t.capacity["cpu"] for t in cluster.types}
    labels = labels_of(cluster, decision)
    for node, pods in pods_by_node(cluster, command, decision).items():
        for pod in pods:
            assert all(labels[node].get(k) == v for k, v in pod.spec.node_selector.items())
        assert sum(1 for p in pods if p.metadata.labels["app"] == "alone") <= 1
        if node.startswith("new-"):
            types = list(decision.new_node_claims[int(node.removeprefix("new-"))].instance_types)
        else:
            types = [labels[node][names.INSTANCE_TYPE]]
        assert all(sum(cpu_of(p) for p in pods) <= capacity[t] for t in types)


def check_price(cluster: Cluster, command: Command, decision: Decision) -> None:
    """Consolidation never costs more, whichever of the listed types is launched."""
    if command.reason not in (EMPTY, UNDERUTILIZED):
        return
    state = cluster.state()
    prices = {c.status.node_name: state.price(c) or 0.0 for c in cluster.claims}
    before = sum(prices[n] for n in command.nodes)
    assert sum(c.cheapest.price for c in decision.new_node_claims) < before
    assert sum(highest_price(cluster, command, i) for i in range(len(command.replacements))) < before


def highest_price(cluster: Cluster, command: Command, index: int) -> float:
    """The highest price at which a replacement may be launched, of its capacity type."""
    claim = command.replacements[index]
    (capacity_type,) = (r.values[0] for r in claim.requirements if r.key == names.CAPACITY_TYPE)
    return max(
        o.price
        for t in cluster.types
        if t.name in claim.instance_types
        for o in t.offerings
        if o.capacity_type == capacity_type
    )

"""Decisions where commitments pay instances: what is paid already is used first, and no further than it goes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import consolidation as sample
from shared.api import labels as names
from shared.api.kubernetes import TopologySpreadConstraint
from shared.api.meta import LabelSelector
from shared.base.struct import with_fields
from shared.commitments.balance import Balance
from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan
from shared.disruption import consolidation
from shared.disruption.budgets import BudgetTracker
from shared.disruption.disruption_state import DisruptionState
from shared.launch.covered_nodes import cluster_coverage
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.kubernetes import Pod
    from shared.api.nodepool import NodePool
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import Decision, PlannedNodeClaim

NOW = sample.NOW
SPOT_SHARE = 0.35


def with_spot(instance_type: InstanceType) -> InstanceType:
    spot = [with_fields(o, capacity_type=names.SPOT, price=o.price * SPOT_SHARE) for o in instance_type.offerings]
    return with_fields(instance_type, offerings=(*instance_type.offerings, *spot))


TYPES = tuple(with_spot(t) for t in sample.instance_types())
PRICES = {t.name: t.offerings[0].price for t in TYPES}
M5 = "m5.8x"


def reserve(instance_type: str, count: int, zone: str = "") -> Commitments:
    bought = ReservedInstances(
        id="r", instance_type=instance_type, zone=zone, count=count, hourly=0.1, ends=NOW + timedelta(days=1)
    )
    return Commitments(fetched_at=NOW, reserved=(bought,))


def savings_plan(commitment: float) -> Commitments:
    rates = {name: price * 0.7 for name, price in PRICES.items()}
    plan = SavingsPlan(id="p", kind="Compute", commitment=commitment, rates=rates, ends=NOW + timedelta(days=1))
    return Commitments(fetched_at=NOW, plans=(plan,))


def pods(count: int, shape: tuple[int, int] = (1000, 3072), app: str = "web") -> tuple[Pod, ...]:
    return tuple(sample.pod(f"{app}-{i:03d}", shape) for i in range(count))


def decide(commitments: Commitments | None, pending: tuple[Pod, ...], pool: NodePool | None = None) -> Decision:
    snapshot = Snapshot(taken_at=NOW, pods=pending, node_pools=(pool or sample.pool(),))
    unused = None if commitments is None else Balance.of(commitments)
    decision = schedule(Problem(snapshot=snapshot, instance_types={"default": TYPES}, unused=unused))
    placed = [key for claim in decision.new_node_claims for key in claim.pods]
    assert sorted([*placed, *decision.pod_errors]) == sorted(p.key for p in pending)
    return decision


def capacity_types(claims: tuple[PlannedNodeClaim, ...]) -> set[str]:
    return {c.cheapest.capacity_type for c in claims}


def dollars(decision: Decision, commitments: Commitments) -> float:
    """USD per hour in addition to the commitments, by charging them node by node."""
    left = Balance.of(commitments)
    total = 0.0
    for claim in sorted(decision.new_node_claims, key=lambda c: -c.cheapest.price):
        offering = claim.cheapest
        if offering.capacity_type == names.ON_DEMAND:
            total += offering.price * left.take((offering.instance_type, offering.zone))
        else:
            total += offering.price
    return total


def test_spot_is_chosen_where_nothing_is_committed() -> None:
    assert capacity_types(decide(None, pods(20)).new_node_claims) == {names.SPOT}
    assert capacity_types(decide(savings_plan(0.0), pods(20)).new_node_claims) == {names.SPOT}


def test_a_plan_is_used_before_spot_and_no_further_than_it_goes() -> None:
    commitments = savings_plan(0.5)
    decision = decide(commitments, pods(80))
    committed = [c for c in decision.new_node_claims if c.is_committed]
    assert capacity_types(decision.new_node_claims) == {names.SPOT, names.ON_DEMAND}
    assert all(c.is_committed == (c.cheapest.capacity_type == names.ON_DEMAND) for c in decision.new_node_claims)
    used = sum(0.7 * PRICES[c.cheapest.instance_type] for c in committed)
    assert 0.4 <= used <= 0.55
    # what the plan covers would cost this as spot capacity; whole nodes use most of it
    worth = 0.5 / 0.7 * SPOT_SHARE
    assert dollars(decision, commitments) < dollars(decide(None, pods(80)), commitments) - 0.7 * worth


def test_reserved_instances_are_used_by_their_type_in_their_zone() -> None:
    decision = decide(reserve(M5, 2, "us-east-1b"), pods(40))
    committed = [c for c in decision.new_node_claims if c.is_committed]
    assert len(committed) == 2
    for claim in committed:
        required = {r.key: r.values for r in claim.requirements}
        assert claim.instance_types == (M5,)
        assert required[names.CAPACITY_TYPE] == [names.ON_DEMAND]
        assert required[names.INSTANCE_TYPE] == [M5]
        assert required[names.ZONE] == ["us-east-1b"]
        assert claim.cheapest.price == PRICES[M5]
        assert claim.cheapest.effective_price == pytest.approx(0, abs=1e-6)


def test_pods_spread_over_zones_stay_so_next_to_committed_nodes() -> None:
    spread = TopologySpreadConstraint(
        max_skew=1,
        topology_key=names.ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": "a1000"}),
    )
    pending = tuple(with_fields(p, spec=with_fields(p.spec, topology_spread_constraints=[spread])) for p in pods(60))
    decision = decide(reserve(M5, 1, "us-east-1a"), pending)
    assert not decision.pod_errors
    by_zone: dict[str, int] = {}
    for claim in decision.new_node_claims:
        (zone,) = next(r.values for r in claim.requirements if r.key == names.ZONE)
        by_zone[zone] = by_zone.get(zone, 0) + len(claim.pods)
    assert sorted(by_zone.values()) == [20, 20, 20]
    assert any(c.is_committed for c in decision.new_node_claims)


def test_limits_of_the_node_pool_count_committed_nodes() -> None:
    pool = sample.pool()
    limited = with_fields(pool, spec=with_fields(pool.spec, limits={"cpu": "16"}))
    decision = decide(reserve(M5, 5), pods(60), limited)
    cpu = sum(int(c.cheapest.instance_type.rpartition(".")[2].removesuffix("x")) for c in decision.new_node_claims)
    assert decision.pod_errors
    assert 8 <= cpu <= 16


@settings(max_examples=40, deadline=None)
@given(
    commitment=st.floats(0, 3),
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    reserved=st.integers(0, 4),
    zone=st.sampled_from(("", "us-east-1a")),
)
def test_commitments_never_cost_more_than_ignoring_them(
    commitment: float, counts: list[int], reserved: int, zone: str
) -> None:
    commitments = with_fields(savings_plan(commitment), reserved=reserve(M5, reserved, zone).reserved)
    shapes = ((1000, 3072), (500, 512), (2000, 2048))
    pending = tuple(p for i, n in enumerate(counts) for p in pods(n, shapes[i], f"app{i}"))
    with_them, without = decide(commitments, pending), decide(None, pending)
    assert not with_them.pod_errors
    assert dollars(with_them, commitments) <= dollars(without, commitments) * 1.05 + 0.02


# --- consolidation ---


def state(
    nodes: dict[str, tuple[str, str]], running: dict[str, list[str]], commitments: Commitments
) -> DisruptionState:
    """Nodes by name with their instance type and capacity type, and the pods on them."""
    by_name = {t.name: t for t in TYPES}
    pairs = [sample.node_with_claim(n, by_name[kind], "us-east-1a", capacity) for n, (kind, capacity) in nodes.items()]
    snapshot = Snapshot(
        taken_at=NOW,
        pods=tuple(sample.pod(p, (1000, 3072), node) for node, keys in running.items() for p in keys),
        nodes=tuple(n for _, n in pairs),
        node_claims=tuple(c for c, _ in pairs),
        node_pools=(sample.pool(),),
    )
    coverage = cluster_coverage(snapshot, commitments, cluster="mine", share=1.0)
    return DisruptionState(snapshot=snapshot, now=NOW, instance_types={"default": TYPES}, coverage=coverage)


def search(view: DisruptionState) -> consolidation.SearchResult:
    return consolidation.search(view, BudgetTracker(view.snapshot, now=NOW), lambda: False)


def test_a_spot_node_is_replaced_by_an_instance_that_is_paid_already() -> None:
    running = {"spot": [f"p{i}" for i in range(7)]}
    nodes = {"spot": (M5, names.SPOT)}
    assert search(state(nodes, running, reserve(M5, 0))).command is None
    command = search(state(nodes, running, reserve(M5, 1))).command
    assert command is not None
    assert command.nodes == ("spot",)
    (replacement,) = command.replacements
    assert replacement.is_committed
    assert replacement.instance_types == (M5,)
    assert command.savings == pytest.approx(PRICES[M5] * SPOT_SHARE, rel=1e-3)


def test_a_paid_instance_is_not_replaced_by_a_spot_machine() -> None:
    nodes, running = {"paid": (M5, names.ON_DEMAND)}, {"paid": [f"p{i}" for i in range(7)]}
    assert search(state(nodes, running, reserve(M5, 1))).command is None
    command = search(state(nodes, running, reserve(M5, 0))).command
    assert command is not None
    assert command.replacements[0].cheapest.capacity_type == names.SPOT


def test_of_nodes_that_are_paid_in_part_the_emptier_one_goes() -> None:
    """One of two instances is reserved: the price of the other is saved, whichever is removed."""
    nodes = {"fuller": (M5, names.ON_DEMAND), "emptier": (M5, names.ON_DEMAND)}
    running = {"fuller": ["a", "b", "c"], "emptier": ["d"]}
    view = state(nodes, running, reserve(M5, 1))
    prices = {c.status.node_name: view.price(c) for c in view.snapshot.node_claims}
    assert prices == {"fuller": 0, "emptier": PRICES[M5]}
    command = search(view).command
    assert command is not None
    assert command.nodes == ("emptier",)
    assert command.replacements == ()

"""Where pods go while traffic is shifted away from a zone: Karpenter's rules for zones without offerings.

Nothing is launched there, and the zone still counts for topology spread, so a pod may have to wait for it.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from bench import consolidation as sample
from shared.api.kubernetes import NodeSelectorRequirement, TopologySpreadConstraint
from shared.api.labels import ZONE
from shared.api.meta import LabelSelector
from shared.base.struct import with_fields
from shared.instance_types import withheld_offerings
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.scheduling.state.state_nodes import CORDON, build_state_nodes
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.scheduling.decision import Decision

NOW = datetime(2026, 11, 24, tzinfo=UTC)
TYPES = sample.instance_types()
ZONES = sorted({o.zone for t in TYPES for o in t.offerings})
SHIFTED = ZONES[0]


def decide(pods: int, pool: NodePool, *, spread: str, shifted: bool = True) -> Decision:
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key=ZONE,
        when_unsatisfiable=spread,
        label_selector=LabelSelector(match_labels={"app": "web"}),
    )
    spread_pods = []
    for i in range(pods):
        pod = sample.pod(f"web-{i}", (1000, 1024))
        spread_pods.append(
            with_fields(
                pod,
                metadata=with_fields(pod.metadata, labels={"app": "web"}),
                spec=with_fields(pod.spec, topology_spread_constraints=[constraint]),
            )
        )
    shifts = {SHIFTED: NOW + timedelta(hours=1)} if shifted else {}
    adjust = withheld_offerings.zones(shifts).adjust
    snapshot = Snapshot(taken_at=NOW, pods=tuple(spread_pods), node_pools=(pool,), shifted_zones=shifts)
    return schedule(Problem(snapshot=snapshot, instance_types={pool.name: tuple(map(adjust, TYPES))}))


def by_zone(decision: Decision) -> Counter[str]:
    counts: Counter[str] = Counter()
    for claim in decision.new_node_claims:
        (zones,) = (r.values for r in claim.requirements if r.key == ZONE)
        assert SHIFTED not in zones
        counts[",".join(zones)] += len(claim.pods)
    return counts


def test_a_strict_spread_leaves_a_pod_waiting_for_the_zone() -> None:
    decision = decide(len(ZONES), sample.pool(), spread="DoNotSchedule")
    assert by_zone(decision) == dict.fromkeys(ZONES[1:], 1)
    assert len(decision.pod_errors) == 1
    assert not decide(len(ZONES), sample.pool(), spread="DoNotSchedule", shifted=False).pod_errors


def test_a_soft_spread_uses_the_other_zones() -> None:
    decision = decide(4 * len(ZONES), sample.pool(), spread="ScheduleAnyway")
    assert not decision.pod_errors
    assert sum(by_zone(decision).values()) == 4 * len(ZONES)


def test_a_zone_that_the_nodepool_excludes_does_not_count() -> None:
    base = sample.pool()
    elsewhere = NodeSelectorRequirement(key=ZONE, operator="NotIn", values=[SHIFTED])
    spec = base.spec.template.spec
    template = with_fields(base.spec.template, spec=with_fields(spec, requirements=[*spec.requirements, elsewhere]))
    pool = with_fields(base, spec=with_fields(base.spec, template=template))
    assert not decide(2 * len(ZONES), pool, spread="DoNotSchedule").pod_errors


@pytest.mark.parametrize("zone", ZONES)
def test_nodes_of_the_zone_and_those_on_their_way_count_as_cordoned(zone: str) -> None:
    claim, node = sample.node_with_claim("n", TYPES[0], zone)
    on_its_way, _ = sample.node_with_claim("later", TYPES[0], zone)
    shifts = {SHIFTED: NOW + timedelta(hours=1)}
    snapshot = Snapshot(taken_at=NOW, nodes=(node,), node_claims=(claim, on_its_way), shifted_zones=shifts)
    state_nodes = build_state_nodes(snapshot, {}, frozenset()).nodes
    assert len(state_nodes) == 2
    assert all((CORDON in n.taints) == (zone == SHIFTED) for n in state_nodes)

"""`tenon status` names the NodeClaims whose node should be there by now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.status.deployment import stuck_claims
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.snapshot import Snapshot

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def claim(name: str, minutes_ago: int, *true: str, instance_type: str = "m7i.large") -> NodeClaim:
    """A NodeClaim that was launched that long ago, and has these conditions."""
    since = NOW - timedelta(minutes=minutes_ago)
    conditions = [Condition(type=t, status="True", reason=t, last_transition_time=since) for t in ("Launched", *true)]
    labels = {"node.kubernetes.io/instance-type": instance_type}
    return NodeClaim(metadata=ObjectMeta(name=name, labels=labels), status=NodeClaimStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("late", "condition"),
    [
        (claim("a", 4), ""),
        (claim("a", 6), "Registered"),
        (claim("a", 6, instance_type="m7i.metal-24xl"), ""),
        (claim("a", 16, instance_type="m7i.metal-24xl"), "Registered"),
        (claim("a", 9, "Registered"), ""),
        (claim("a", 11, "Registered"), "Initialized"),
        (claim("a", 60, "Registered", "Initialized"), ""),
    ],
)
def test_a_node_is_late_some_minutes_after_its_launch(late: NodeClaim, condition: str) -> None:
    stuck = list(stuck_claims(Snapshot(taken_at=NOW, node_claims=(late,)), NOW))
    assert [s.condition for s in stuck] == ([condition] if condition else [])


def test_many_late_nodes_are_one_row() -> None:
    claims = tuple(claim(f"c{number}", 7) for number in range(12))
    (row,) = stuck_claims(Snapshot(taken_at=NOW, node_claims=claims), NOW)
    assert (row.name, row.message) == ("c0 and 11 more", "not within 5 minutes of the launch")

"""Condition WithinClusterLimits: what all NodePools have of the limits over all of them."""

from __future__ import annotations

from datetime import UTC, datetime

from functions.lifecycle.statuses.cluster_limit_status import conditions
from shared.api import labels as names
from shared.api.cluster_limits import used_by_claims
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import NodePool, NodePoolStatus
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
READY = Condition(type="Ready", status="True", reason="Ready", last_transition_time=NOW)


def pool(*before: Condition) -> NodePool:
    return NodePool(metadata=ObjectMeta(name="default"), status=NodePoolStatus(conditions=[*before]))


def claim(name: str, node_pool: str | None, cpu: str = "") -> NodeClaim:
    labels = {names.NODEPOOL: node_pool} if node_pool else {}
    status = NodeClaimStatus(capacity={"cpu": cpu} if cpu else {})
    return NodeClaim(metadata=ObjectMeta(name=name, labels=labels), status=status)


USED = used_by_claims([claim("a", "one", "4"), claim("b", "two", "8"), claim("c", "two"), claim("d", None, "64")])


def test_nodeclaims_of_all_nodepools_are_used_also_those_that_are_launched_now() -> None:
    assert USED == {"cpu": 12000, "nodes": 3}


def test_it_says_what_is_used() -> None:
    (_, own) = conditions(pool(READY), {"cpu": 100_000, "nodes": 20}, USED, now=NOW)
    assert (own.type, own.status, own.reason) == ("WithinClusterLimits", "True", "WithinLimits")
    assert own.message == "cpu 12 of 100, nodes 3 of 20"


def test_it_is_false_when_one_limit_is_reached() -> None:
    (own,) = conditions(pool(), {"cpu": 100_000, "nodes": 3}, USED, now=NOW)
    assert (own.status, own.reason) == ("False", "LimitReached")


def test_it_goes_with_the_limits() -> None:
    own = conditions(pool(READY), {"nodes": 3}, USED, now=NOW)
    assert conditions(pool(*own), {}, USED, now=NOW) == [READY]


def test_nodepools_have_it_only_where_there_are_limits() -> None:
    assert Snapshot(taken_at=NOW).cluster_limits == {}
    assert conditions(pool(READY), {}, USED, now=NOW) == [READY]

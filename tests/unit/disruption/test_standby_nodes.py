"""Which standby nodes are hidden, startable and removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.hash import hash_node_pool, node_pool_hash_version
from shared.api.kubernetes import Node, NodeSpec, Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodepool import NodePool, NodePoolSpec
from shared.api.standby import STARTING, STOPPED, WARMING
from shared.base.struct import with_fields
from shared.disruption.disruption_state import DisruptionState
from shared.instance_types.instance_type import InstanceType, Offering
from shared.snapshot import Snapshot
from shared.standby.held_nodes import startable, without_standbys, without_stopped
from shared.standby.removal import MAX_REMOVALS, removals

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OFFERED = InstanceType(
    name="m.1x",
    labels={},
    capacity={"cpu": 1000},
    overhead={},
    offerings=(Offering(zone="a", capacity_type=names.ON_DEMAND, price=0.1),),
)


def pool(standby: str, *, limits: Mapping[str, str] | None = None) -> NodePool:
    return NodePool(
        metadata=ObjectMeta(name="p", annotations={names.STANDBY: standby}),
        spec=NodePoolSpec(limits=dict(limits or {})),
    )


def claim(number: int, state: str, *, expire_after: str = "Never", age: timedelta = timedelta(hours=1)) -> NodeClaim:
    template = pool("0")
    labels = {
        names.NODEPOOL: "p",
        names.INSTANCE_TYPE: "m.1x",
        names.ZONE: "a",
        names.CAPACITY_TYPE: names.ON_DEMAND,
    }
    annotations = {
        names.NODEPOOL_HASH: hash_node_pool(template),
        names.NODEPOOL_HASH_VERSION: node_pool_hash_version(template),
        **({names.STANDBY: state} if state else {}),
    }
    return NodeClaim(
        metadata=ObjectMeta(
            name=f"c{number}",
            labels=labels,
            annotations=annotations,
            creation_timestamp=NOW - age + timedelta(seconds=number),
        ),
        spec=NodeClaimSpec(expire_after=expire_after),
        status=NodeClaimStatus(provider_id=f"aws:///a/i-{number}", node_name=f"n{number}", capacity={"cpu": "1"}),
    )


def snapshot(node_pool: NodePool, *claims: NodeClaim) -> Snapshot:
    nodes = [
        Node(
            metadata=ObjectMeta(name=c.status.node_name, labels=c.metadata.labels),
            spec=NodeSpec(provider_id=c.status.provider_id),
        )
        for c in claims
    ]
    pods = [Pod(metadata=ObjectMeta(name=n.metadata.name), spec=PodSpec(node_name=n.metadata.name)) for n in nodes]
    return Snapshot(
        taken_at=NOW,
        node_pools=(node_pool,),
        node_claims=claims,
        nodes=tuple(nodes),
        pods=(*pods, Pod(metadata=ObjectMeta(name="pending"))),
    )


def removed(node_pool: NodePool, *claims: NodeClaim) -> dict[str, str]:
    everything = snapshot(node_pool, *claims)
    state = DisruptionState(snapshot=without_standbys(everything), now=NOW)
    return {r.claim.name: r.message for r in removals(state, everything)}


def started(node_pool: NodePool, *claims: NodeClaim, types: tuple[InstanceType, ...] = (OFFERED,)) -> list[str]:
    return [c.name for c in startable(snapshot(node_pool, *claims), {"p": types})]


def names_of(view: Snapshot) -> tuple[list[str], list[str], list[str]]:
    return (
        [c.name for c in view.node_claims],
        [n.metadata.name for n in view.nodes],
        [p.metadata.name for p in view.pods],
    )


def test_decisions_see_no_standby_nodes_and_starting_ones_as_on_their_way() -> None:
    everything = snapshot(pool("3"), claim(0, ""), claim(1, WARMING), claim(2, STOPPED), claim(3, STARTING))
    assert names_of(without_standbys(everything)) == (["c0", "c3"], ["n0"], ["n0", "pending"])
    assert names_of(without_stopped(everything)) == (
        ["c0", "c1", "c3"],
        ["n0", "n1", "n3"],
        ["n0", "n1", "n3", "pending"],
    )
    plain = snapshot(pool("3"), claim(0, ""))
    assert without_standbys(plain) is without_stopped(plain) is plain


def test_stopped_ones_may_be_started_within_limits_oldest_first() -> None:
    stopped = [claim(n, STOPPED) for n in range(3)]
    assert started(pool("3"), *stopped) == ["c0", "c1", "c2"]
    assert started(pool("3", limits={"cpu": "3"}), claim(9, ""), *stopped) == ["c0", "c1"]
    assert started(pool("3", limits={"nodes": "1"}), claim(9, ""), *stopped) == []
    unlaunched = claim(9, "")
    unlaunched = with_fields(unlaunched, status=NodeClaimStatus())
    assert started(pool("3", limits={"cpu": "9"}), unlaunched, *stopped) == []
    assert started(pool("3"), unlaunched, *stopped) == ["c0", "c1", "c2"]


def test_limits_over_all_nodepools_hold_for_stopped_ones_too() -> None:
    foreign = with_fields(claim(9, ""), metadata=ObjectMeta(name="c9", labels={names.NODEPOOL: "q"}))
    everything = snapshot(pool("3"), foreign, *(claim(n, STOPPED) for n in range(3)))
    limited = with_fields(everything, cluster_limits={"nodes": 3, "cpu": 2500})
    assert [c.name for c in startable(limited, {"p": (OFFERED,)})] == ["c0"]


def test_others_may_not_be_started() -> None:
    drifted = claim(1, STOPPED)
    annotations = {**drifted.metadata.annotations, names.NODEPOOL_HASH: "1"}
    drifted = with_fields(drifted, metadata=with_fields(drifted.metadata, annotations=annotations))
    deleted = with_fields(claim(2, STOPPED), metadata=with_fields(claim(2, STOPPED).metadata, deletion_timestamp=NOW))
    assert started(pool("3"), claim(0, WARMING), drifted, deleted, claim(3, STARTING)) == []
    unavailable = with_fields(OFFERED, offerings=(with_fields(OFFERED.offerings[0], available=False),))
    assert started(pool("3"), claim(0, STOPPED), types=(unavailable,)) == []
    assert started(pool("3"), claim(0, STOPPED), types=()) == []
    kept = startable(snapshot(pool("3"), claim(0, STOPPED)), {"p": (OFFERED,)}, unusable={"c0"})
    assert kept == ()


def test_the_surplus_is_removed_warming_and_young_ones_first_and_at_most_ten() -> None:
    claims = [claim(0, WARMING), claim(1, STOPPED), claim(2, STOPPED), claim(3, STARTING), claim(4, "")]
    assert removed(pool("3"), *claims) == {}
    assert list(removed(pool("1"), *claims)) == ["c0", "c2"]
    assert removed(pool("1"), *claims)["c0"] == "NodePool p asks for 1 standby nodes"
    assert list(removed(pool(""), *claims)) == ["c0", "c1", "c2"]
    assert removed(pool("x"), *claims) == {}
    assert len(removed(pool("0"), *(claim(n, STOPPED) for n in range(20)))) == MAX_REMOVALS


def test_outdated_ones_are_replaced_one_at_a_time_while_the_others_are_stopped() -> None:
    old = claim(0, STOPPED, expire_after="30m")
    assert removed(pool("2"), old, claim(1, STOPPED)) == {"c0": "older than expireAfter 30m"}
    assert removed(pool("2"), old, claim(1, WARMING)) == {}
    assert removed(pool("3"), old, claim(1, STOPPED)) == {}
    assert list(removed(pool("2 m.2x"), claim(0, STOPPED), claim(1, STOPPED))) == ["c0"]
    changed = NodePool(
        metadata=pool("2").metadata,
        spec=with_fields(
            NodePoolSpec(),
            template=with_fields(
                NodePoolSpec().template, metadata=with_fields(NodePoolSpec().template.metadata, labels={"team": "a"})
            ),
        ),
    )
    assert removed(changed, claim(0, STOPPED), claim(1, STOPPED)) == {"c0": "the template of NodePool p has changed"}

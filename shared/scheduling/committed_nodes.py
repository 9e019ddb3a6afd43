"""Plans nodes that unused commitments pay: Savings Plans and Reserved Instances that are paid for in any case.

1. Pods are planned as if every on-demand offering that a commitment covers cost nothing more.
2. Of the planned nodes, those that it really covers are kept, one after the other until it is used up. Each is pinned
   to on-demand capacity and to instance types that are covered like the one it was planned as.
3. If others remain that were planned as covered, their pods are planned again at list prices, in addition to the kept
   nodes.

A node that is covered in part is kept if the rest of its price is no more than the cheapest offering of its types.
NodePools with minValues don't take part, because their claims may not be narrowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ON_DEMAND, ZONE
from shared.api.quantity import add
from shared.base.struct import Struct, with_fields
from shared.instance_types.instance_type import PRICE_DIVISOR
from shared.scheduling.rules.requirements import parse
from shared.scheduling.state.instance_type_arrays import drop_unheld
from shared.scheduling.state.state_nodes import StateNode, StateNodes, with_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.api.nodepool import NodePool
    from shared.commitments.balance import Balance
    from shared.instance_types.instance_type import InstanceType, Offering
    from shared.scheduling.decision import Placement, PlannedNodeClaim

    TypesByPool = Mapping[str, tuple[InstanceType, ...]]
    Plan = Callable[[StateNodes, Iterable[Pod], TypesByPool], Placement]
    """Plans pods on given nodes and on new ones of these instance types."""


class CommittedPlanner(Struct, kw_only=True, eq=False):
    """Plans with what is ``unused`` of commitments; ``instance_types`` have list prices."""

    plan: Plan
    unused: Balance
    instance_types: TypesByPool
    node_pools: Sequence[NodePool]

    def place(self, state_nodes: StateNodes, pods: Iterable[Pod]) -> Placement:
        """The placement of the pods."""
        covered_types = self._covered_types()
        if covered_types is None:
            return self.plan(state_nodes, pods, self.instance_types)
        by_key = {pod.key: pod for pod in pods}
        first = self.plan(state_nodes, by_key.values(), covered_types)
        kept, rest = self._keep(first.node_claims)
        if not any(_is_planned_as_covered(claim) for claim in rest):
            return with_fields(first, node_claims=(*kept, *rest))
        left_over = [by_key[key] for claim in rest for key in claim.pods]
        unplaced = [by_key[key] for key in first.errors if key in by_key]
        on_nodes = {name: [by_key[key] for key in keys] for name, keys in first.existing_nodes.items()}
        nodes = self._with_planned(with_pods(state_nodes, on_nodes), kept, by_key)
        second = self.plan(nodes, [*left_over, *unplaced], self.instance_types)
        return with_fields(
            second,
            node_claims=(*kept, *second.node_claims),
            existing_nodes=_merged(first.existing_nodes, second.existing_nodes),
        )

    def _covered_types(self) -> TypesByPool | None:
        """The instance types with the prices that are left to pay; None if no commitment covers any of them."""
        narrowable = {p.name for p in self.node_pools if not _has_min_values(p)}
        covered = {
            pool: _covered(types, self.unused) if pool in narrowable else types
            for pool, types in self.instance_types.items()
        }
        return covered if any(covered[pool] is not self.instance_types[pool] for pool in covered) else None

    def _with_planned(
        self, state_nodes: StateNodes, claims: Iterable[PlannedNodeClaim], pods: Mapping[str, Pod]
    ) -> StateNodes:
        """The nodes and those of the claims, which take no more pods and count against limits."""
        planned = [self._planned_node(f"committed-{i}", claim, pods) for i, claim in enumerate(claims)]
        usage, node_counts = dict(state_nodes.usage), dict(state_nodes.node_counts)
        for node in planned:
            usage[node.node_pool] = add(usage.get(node.node_pool, {}), node.capacity)
            node_counts[node.node_pool] = node_counts.get(node.node_pool, 0) + 1
        return StateNodes((*state_nodes.nodes, *planned), usage, node_counts, state_nodes.leaving)

    def _planned_node(self, name: str, claim: PlannedNodeClaim, pods: Mapping[str, Pod]) -> StateNode:
        types = [t for t in self.instance_types[claim.node_pool] if t.name in claim.instance_types]
        resources = {resource for t in types for resource in t.capacity}
        single = {key: v.single for key, v in parse(claim.requirements).items() if v.single is not None}
        return StateNode(
            name=name,
            node_pool=claim.node_pool,
            labels={**single, **claim.labels, HOSTNAME: name},
            taints=claim.taints,
            available={},
            capacity={r: max(t.capacity.get(r, 0) for t in types) for r in resources},
            initialized=False,
            pods=tuple(pods[key] for key in claim.pods),
            volume_limits={},
        )

    def _keep(self, planned: Iterable[PlannedNodeClaim]) -> tuple[list[PlannedNodeClaim], list[PlannedNodeClaim]]:
        """The claims that commitments cover, pinned; and the rest."""
        left = self.unused.copy()
        kept: list[PlannedNodeClaim] = []
        rest: list[PlannedNodeClaim] = []
        for claim in sorted(planned, key=lambda c: (-c.cheapest.price, c.pods)):
            pinned = self._pinned(claim, left)
            if pinned is None:
                rest.append(claim)
            else:
                kept.append(pinned)
                left.take((claim.cheapest.instance_type, claim.cheapest.zone))
        return kept, rest

    def _pinned(self, claim: PlannedNodeClaim, left: Balance) -> PlannedNodeClaim | None:
        """The claim with only what is covered like its cheapest offering; None if that isn't worth it."""
        cheapest = claim.cheapest
        if cheapest.capacity_type != ON_DEMAND:
            return None
        share = left.uncovered_share((cheapest.instance_type, cheapest.zone))
        offerings = self._allowed_offerings(claim)
        alternative = min((o.instance_price for own in offerings.values() for o in own), default=0.0)
        if share >= 1 or cheapest.price * share > alternative:
            return None
        return self._narrowed(claim, offerings, left, share)

    def _narrowed(
        self, claim: PlannedNodeClaim, offerings: Mapping[str, list[Offering]], left: Balance, share: float
    ) -> PlannedNodeClaim:
        """The claim with the instance types of which no more than that share is uncovered."""
        cheapest = claim.cheapest
        names = tuple(
            name for name, own in offerings.items() if self._is_covered(name, own, left, share, cheapest.zone)
        )
        zones = {o.zone for name in names for o in offerings[name] if o.capacity_type == ON_DEMAND}
        is_zonal = any(left.uncovered_share((name, zone)) > share for name in names for zone in zones)
        pins = {CAPACITY_TYPE: [ON_DEMAND], INSTANCE_TYPE: list(names)} | ({ZONE: [cheapest.zone]} if is_zonal else {})
        requirements = [r for r in claim.requirements if r.key not in pins]
        requirements += [NodeSelectorRequirement(key=key, operator="In", values=values) for key, values in pins.items()]
        return with_fields(
            claim,
            instance_types=names,
            requirements=tuple(sorted(requirements, key=lambda r: r.key)),
            cheapest=with_fields(cheapest, adjusted_price=_left_to_pay(cheapest.price, share)),
            is_committed=True,
        )

    def _allowed_offerings(self, claim: PlannedNodeClaim) -> dict[str, list[Offering]]:
        """By instance type of the claim: the available offerings that it allows, at list prices."""
        listed = {name: position for position, name in enumerate(claim.instance_types)}
        required = {k: v for k, v in parse(claim.requirements).items() if k in {ZONE, CAPACITY_TYPE}}
        by_name = {
            t.name: [
                o
                for o in t.offerings
                if o.available
                and (ZONE not in required or required[ZONE].has(o.zone))
                and (CAPACITY_TYPE not in required or required[CAPACITY_TYPE].has(o.capacity_type))
            ]
            for t in self.instance_types.get(claim.node_pool, ())
            if t.name in listed
        }
        return {name: by_name[name] for name in sorted(by_name, key=lambda name: listed[name])}

    def _is_covered(self, name: str, offerings: Iterable[Offering], left: Balance, share: float, zone: str) -> bool:
        """Whether the type is sold on demand in the zone and is covered at least to that share."""
        sold = any(o.zone == zone and o.capacity_type == ON_DEMAND for o in offerings)
        return sold and left.uncovered_share((name, zone)) <= share


_MAX_CACHED = 16
_HOLDERS = 2
"""This cache, and that of the arrays."""
_cached: dict[tuple[int, object], tuple[tuple[InstanceType, ...], tuple[InstanceType, ...]]] = {}


def _covered(types: tuple[InstanceType, ...], unused: Balance) -> tuple[InstanceType, ...]:
    """The instance types with the prices that are left to pay; the same tuple if none is covered.

    Cached by the tuple's identity, as arrays of instance types are: a search simulates hundreds of times.
    """
    key = id(types), unused.key
    cached = _cached.get(key)
    if cached is not None and cached[0] is types:
        return cached[1]
    covered = tuple(_priced(t, unused) for t in types)
    if all(a is b for a, b in zip(covered, types, strict=True)):
        covered = types
    drop_unheld(_cached, holders=_HOLDERS)
    while len(_cached) >= _MAX_CACHED:
        del _cached[next(iter(_cached))]
    _cached[key] = types, covered
    return covered


def _priced(instance_type: InstanceType, unused: Balance) -> InstanceType:
    shares = {
        o.zone: unused.uncovered_share((instance_type.name, o.zone))
        for o in instance_type.offerings
        if o.capacity_type == ON_DEMAND
    }
    if all(share >= 1 for share in shares.values()):
        return instance_type
    offerings = tuple(
        with_fields(o, adjusted_price=_left_to_pay(o.instance_price, shares[o.zone]))
        if o.capacity_type == ON_DEMAND and shares[o.zone] < 1
        else o
        for o in instance_type.offerings
    )
    return with_fields(instance_type, offerings=offerings)


def _is_planned_as_covered(claim: PlannedNodeClaim) -> bool:
    return claim.cheapest.capacity_type == ON_DEMAND and claim.cheapest.adjusted_price is not None


def _left_to_pay(price: float, uncovered_share: float) -> float:
    """USD per hour of an offering that is covered in part; what is covered only keeps the order of instance types."""
    return price * uncovered_share + price / PRICE_DIVISOR


def _has_min_values(pool: NodePool) -> bool:
    return any(r.min_values is not None for r in pool.spec.template.spec.requirements)


def _merged(*by_node: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    merged: dict[str, tuple[str, ...]] = {}
    for pods in by_node:
        for name, keys in pods.items():
            merged[name] = (*merged.get(name, ()), *keys)
    return merged

"""Batches planned NodeClaims: those that nearly agree are made equal, so that one CreateFleet call launches them.

The cheapest plan for many pods ends with a few different nodes, each of which would be a call of its own. Calls are
scarce: five at once, two a second, for the whole account. NodeClaims that differ only in some instance types all get
the types that they have in common; that costs some choice, but no money. A smaller NodeClaim may get the instance types
of a larger one, because what holds the larger one's pods holds its own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels
from shared.api.quantity import add, largest, parse_resources
from shared.base.struct import MutableStruct, with_fields
from shared.scheduling.state.cluster_usage import less_planned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim

FEW_CALLS = 4
"""Up to this many calls are not merged: one less than the account's burst, so none of them waits."""
MAX_COST = 0.005
"""How much merging may raise the decision's price, as a share of it: a call beyond the burst waits half a second."""

MIN_COMMON_TYPES = 0.75
"""The share of its instance types that a NodeClaim keeps when it is batched by common types."""


class _LaunchGroup(MutableStruct):
    """NodeClaims that one call launches, by index in the decision. ``requests`` is the maximum of theirs."""

    terms: bytes
    model: PlannedNodeClaim
    members: list[int]
    requests: Resources

    def holds(self, smaller: _LaunchGroup) -> bool:
        """Whether the instance types of this group hold the requests of every NodeClaim of the other."""
        capacity = self.model.requests
        return self.terms == smaller.terms and all(capacity.get(name, 0) >= n for name, n in smaller.requests.items())

    def surcharge(self, smaller: _LaunchGroup) -> float:
        """The additional cost, in USD per hour, of launching the other's NodeClaims as this group's."""
        return (self.model.cheapest.effective_price - smaller.model.cheapest.effective_price) * len(smaller.members)


def merge_launch_groups(
    claims: Sequence[PlannedNodeClaim], *, limited: Collection[str] = ()
) -> tuple[PlannedNodeClaim, ...]:
    """The NodeClaims in their order, some with the instance types of others, so that they form fewer launch groups.

    NodeClaims of ``limited`` NodePools are not enlarged, because larger nodes could exceed the NodePool's limits.
    Merging stops at :data:`FEW_CALLS`, or at :data:`MAX_COST`. Pure and deterministic.
    """
    price = sum(c.cheapest.effective_price for c in claims)
    merged = _enlarged(_with_common_types(claims), limited, max_groups=FEW_CALLS, max_cost=MAX_COST * price)
    by_index = {index: _as_model(claims[index], group.model) for group in merged for index in group.members}
    return tuple(by_index[index] for index in range(len(claims)))


def pools_past_limits(
    claims: Iterable[PlannedNodeClaim],
    pools: Iterable[NodePool],
    *,
    held: Mapping[str, Resources],
    instance_types: Mapping[str, Sequence[InstanceType]],
) -> frozenset[str]:
    """The NodePools whose limits the NodeClaims could exceed, each NodeClaim counted as the largest of its types.

    ``held`` is the capacity of each NodePool's existing nodes.

    Raises:
        QuantityError: a limit is not a quantity.
    """
    past = set()
    for pool in pools:
        limits = parse_resources(pool.spec.limits)
        if not limits:
            continue
        capacity = {t.name: t.capacity for t in instance_types.get(pool.name, ())}
        worst_case = [
            largest(*(capacity.get(name, {}) for name in claim.instance_types))
            for claim in claims
            if claim.node_pool == pool.name
        ]
        total = add(held.get(pool.name, {}), *worst_case)
        if any(total.get(name, 0) > limit for name, limit in limits.items()):
            past.add(pool.name)
    return frozenset(past)


def exceed_cluster_limits(
    claims: Iterable[PlannedNodeClaim],
    limits: Resources,
    *,
    held: Mapping[str, Resources],
    instance_types: Mapping[str, Sequence[InstanceType]],
) -> bool:
    """Whether the NodeClaims could exceed the limits over all NodePools; as :func:`pools_past_limits`."""
    used = add({}, *held.values())
    left = less_planned(limits, claims, instance_types)
    return any(amount < used.get(name, 0) for name, amount in left.items())


def _enlarged(
    groups: Iterable[_LaunchGroup], limited: Collection[str], *, max_groups: int, max_cost: float
) -> list[_LaunchGroup]:
    """The groups after the cheapest merges into larger ones, which together cost at most ``max_cost``."""
    merged = [with_fields(group, members=[*group.members]) for group in groups]
    remaining_cost = max_cost
    while len(merged) > max_groups:
        merges = [
            (max(larger.surcharge(smaller), 0.0), i, j)
            for i, smaller in enumerate(merged)
            if smaller.model.node_pool not in limited
            for j, larger in enumerate(merged)
            if i != j and larger.holds(smaller)
        ]
        if not merges or min(merges)[0] > remaining_cost:
            break
        cost, i, j = min(merges)
        remaining_cost -= cost
        merged[j].members += merged[i].members
        merged[j].requests = largest(merged[j].requests, merged[i].requests)
        del merged[i]
    return merged


def _with_common_types(claims: Sequence[PlannedNodeClaim]) -> list[_LaunchGroup]:
    """The launch groups, merged where the cheapest offering is the same and enough instance types are common."""
    merged: list[_LaunchGroup] = []
    for group in _equal_groups(claims):
        for index, candidate in enumerate(merged):
            model = _common_model(candidate, group)
            if model is not None:
                requests = largest(candidate.requests, group.requests)
                members = [*candidate.members, *group.members]
                merged[index] = _LaunchGroup(candidate.terms, model, members, requests)
                break
        else:
            merged.append(group)
    return merged


def _common_model(left: _LaunchGroup, right: _LaunchGroup) -> PlannedNodeClaim | None:
    """A NodeClaim with the common instance types, or None if the groups differ in more than some types."""
    a, b = left.model, right.model
    if left.terms != right.terms or a.cheapest != b.cheapest or any(r.min_values is not None for r in a.requirements):
        return None
    types_of_right = set(b.instance_types)
    types = tuple(name for name in a.instance_types if name in types_of_right)
    least = max(MIN_COMMON_TYPES * max(len(a.instance_types), len(b.instance_types)), a.min_types, b.min_types)
    if len(types) < least:
        return None
    requirements = tuple(
        with_fields(r, values=list(types)) if labels.normalize_key(r.key) == labels.INSTANCE_TYPE else r
        for r in a.requirements
    )
    # Types that hold the pods of both also hold the maximum of each resource.
    return with_fields(a, instance_types=types, requirements=requirements, requests=largest(a.requests, b.requests))


def _equal_groups(claims: Sequence[PlannedNodeClaim]) -> list[_LaunchGroup]:
    """The launch groups without merging: NodeClaims with equal terms and instance types."""
    by_key: defaultdict[tuple[bytes, tuple[str, ...]], list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        by_key[_terms(claim), claim.instance_types].append(index)
    groups = []
    for (terms, _), members in by_key.items():
        requests: Resources = {}
        for index in members:
            requests = largest(requests, claims[index].requests)
        # Each NodeClaim's types are known to hold its own requests only, so the largest NodeClaim is the model.
        model = max((claims[index] for index in members), key=lambda c: sorted(c.requests.items()))
        groups.append(_LaunchGroup(terms, model, members, requests))
    return groups


def _terms(claim: PlannedNodeClaim) -> bytes:
    """What NodeClaims of one launch group have in common, without the instance types."""
    requirements = [r for r in claim.requirements if labels.normalize_key(r.key) != labels.INSTANCE_TYPE]
    parts = [claim.node_pool, requirements, dict(sorted(claim.labels.items())), claim.taints, claim.min_values_relaxed]
    return msgspec.json.encode(msgspec.to_builtins(parts))


def _as_model(claim: PlannedNodeClaim, model: PlannedNodeClaim) -> PlannedNodeClaim:
    if claim.instance_types == model.instance_types:
        return claim
    return with_fields(
        claim, instance_types=model.instance_types, requirements=model.requirements, cheapest=model.cheapest
    )

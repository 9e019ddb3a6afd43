"""Fewer CreateFleet calls: claims that nearly agree are made to agree, where that costs next to nothing.

The cheapest plan for many pods ends in a few odd machines, each of which would be a call of its own, and calls are
scarcer than money: five at once, two a second, for the whole account. Claims that would be the same machine, but for
what else could hold their pods, all take the types that hold the pods of each; that costs nothing but some choice. A
small claim may take a larger one's types, because whatever holds the larger one's pods holds its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace as replace_fields

from shared.api import labels
from shared.api.quantity import add, largest, parse_resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.decision import PlannedNodeClaim

FEW, FEW_COST = 3, 0.03
"""So few calls are aimed at if the decision's price grows by no more than this share of it."""
MANY, MANY_COST = 4, 0.05
"""Else so many, or as near to it as this share brings them: one less than the account has at once."""

ENOUGH = 0.75
"""Claims give up no more than a quarter of their types to be launched with others of the same cheapest offering."""


@dataclass
class _Group:
    """Claims that one call launches, by their place in the decision; ``needs`` is the most that any of them asks."""

    terms: bytes
    model: PlannedNodeClaim
    members: list[int]
    needs: Resources

    def holds(self, other: _Group) -> bool:
        """Whether the types of this group hold what any claim of the other asks for."""
        asked = self.model.requests
        return self.terms == other.terms and all(asked.get(name, 0) >= n for name, n in other.needs.items())

    def surcharge(self, other: _Group) -> float:
        """What it costs more, in USD per hour, to launch the other's claims as this one's."""
        return (self.model.cheapest.price - other.model.cheapest.price) * len(other.members)


def merge_launch_groups(
    claims: Sequence[PlannedNodeClaim], *, limited: Collection[str] = ()
) -> tuple[PlannedNodeClaim, ...]:
    """The claims in their order, some with the instance types of a larger one, so that they fall into fewer groups.

    ``limited`` are pools whose claims stay as they are, because larger machines could pass the pool's limits. Where
    :data:`FEW` calls can't be reached at their price, nothing is paid for coming nearer. Pure, and the same for the
    same claims.
    """
    price = sum(c.cheapest.price for c in claims)
    alike = _alike(claims)
    groups = _merged(alike, limited, down_to=FEW, cost=FEW_COST * price)
    if len(groups) > FEW:
        groups = _merged(alike, limited, down_to=MANY, cost=MANY_COST * price)
    found = {at: _as(claims[at], group.model) for group in groups for at in group.members}
    return tuple(found[at] for at in range(len(claims)))


def pools_past_limits(
    claims: Iterable[PlannedNodeClaim],
    pools: Iterable[NodePool],
    *,
    held: Mapping[str, Resources],
    instance_types: Mapping[str, Sequence[InstanceType]],
) -> frozenset[str]:
    """The pools that the claims could bring beyond their limits, each claim counted as the largest of its types.

    ``held`` is what each pool's machines hold already.

    Raises:
        QuantityError: a limit is no quantity.
    """
    past = set()
    for pool in pools:
        limits = parse_resources(pool.spec.limits)
        if not limits:
            continue
        capacity = {t.name: t.capacity for t in instance_types.get(pool.name, ())}
        worst = [
            largest(*(capacity.get(name, {}) for name in claim.instance_types))
            for claim in claims
            if claim.node_pool == pool.name
        ]
        total = add(held.get(pool.name, {}), *worst)
        if any(total.get(name, 0) > limit for name, limit in limits.items()):
            past.add(pool.name)
    return frozenset(past)


def _merged(alike: Iterable[_Group], limited: Collection[str], *, down_to: int, cost: float) -> list[_Group]:
    """The groups after the cheapest merges, one after the other, that together cost no more than ``cost``."""
    groups = [replace(group, members=[*group.members]) for group in alike]
    left = cost
    while len(groups) > down_to:
        merges = [
            (max(into.surcharge(small), 0.0), i, j)
            for i, small in enumerate(groups)
            if small.model.node_pool not in limited
            for j, into in enumerate(groups)
            if i != j and into.holds(small)
        ]
        if not merges or min(merges)[0] > left:
            break
        dearer, i, j = min(merges)
        left -= dearer
        groups[j].members += groups[i].members
        groups[j].needs = largest(groups[j].needs, groups[i].needs)
        del groups[i]
    return groups


def _alike(claims: Sequence[PlannedNodeClaim]) -> list[_Group]:
    """The claims' groups, those of the same cheapest offering as one where they have enough types in common."""
    found: list[_Group] = []
    for group in _groups(claims):
        for at, other in enumerate(found):
            model = _common(other, group)
            if model is not None:
                needs = largest(other.needs, group.needs)
                found[at] = _Group(other.terms, model, [*other.members, *group.members], needs)
                break
        else:
            found.append(group)
    return found


def _common(one: _Group, other: _Group) -> PlannedNodeClaim | None:
    """The machine that either group's claims may be; None: they differ in more than some types."""
    a, b = one.model, other.model
    if one.terms != other.terms or a.cheapest != b.cheapest or any(r.min_values is not None for r in a.requirements):
        return None
    theirs = set(b.instance_types)
    types = tuple(name for name in a.instance_types if name in theirs)
    if len(types) < ENOUGH * max(len(a.instance_types), len(b.instance_types)):
        return None
    requirements = tuple(
        replace_fields(r, values=list(types)) if labels.normalize_key(r.key) == labels.INSTANCE_TYPE else r
        for r in a.requirements
    )
    # Whatever holds the pods of both has the most that either asks for, of each resource.
    return replace(a, instance_types=types, requirements=requirements, requests=largest(a.requests, b.requests))


def _groups(claims: Sequence[PlannedNodeClaim]) -> list[_Group]:
    by_key: defaultdict[tuple[bytes, tuple[str, ...]], list[int]] = defaultdict(list)
    for at, claim in enumerate(claims):
        by_key[_terms(claim), claim.instance_types].append(at)
    made = []
    for (terms, _), members in by_key.items():
        needs: Resources = {}
        for at in members:
            needs = largest(needs, claims[at].requests)
        # What every type of the list holds is known of each claim's own sum only, so the largest of them is the model.
        model = max((claims[at] for at in members), key=lambda c: sorted(c.requests.items()))
        made.append(_Group(terms, model, members, needs))
    return made


def _terms(claim: PlannedNodeClaim) -> bytes:
    """All that claims of one launch have in common but for the types."""
    requirements = [r for r in claim.requirements if labels.normalize_key(r.key) != labels.INSTANCE_TYPE]
    parts = [claim.node_pool, requirements, dict(sorted(claim.labels.items())), claim.taints, claim.min_values_relaxed]
    return msgspec.json.encode(msgspec.to_builtins(parts))


def _as(claim: PlannedNodeClaim, model: PlannedNodeClaim) -> PlannedNodeClaim:
    if claim.instance_types == model.instance_types:
        return claim
    return replace(claim, instance_types=model.instance_types, requirements=model.requirements, cheapest=model.cheapest)

"""The limits over all NodePools: annotation ``tenon.sh/cluster-limits`` on any NodePool, as ``cpu=1000, nodes=200``.

NodePools are in every decision's input, are kept in Git, and are changed without a deployment. Where several have the
annotation, the least amount of each resource holds: a NodePool can tighten the limits of all, never widen them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NODES,
    PODS,
    QuantityError,
    add,
    format_quantity,
    parse_quantity,
    parse_resources,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources

_SEPARATOR = re.compile(r"[,\s]+")
_OF_NODES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS, NODES)


def read_cluster_limits(text: str) -> tuple[Resources, tuple[str, ...]]:
    """The limits that an annotation's value sets, and a sentence for each part that isn't one.

    >>> read_cluster_limits("cpu=1000, nodes=200")
    ({'cpu': 1000000, 'nodes': 200}, ())
    """
    limits: Resources = {}
    problems: list[str] = []
    parts = [part for part in _SEPARATOR.split(text) if part]
    for part in parts:
        name, separator, amount = part.partition("=")
        if not separator or (name not in _OF_NODES and "/" not in name):
            problems.append(
                f'"{part}" is not a limit; allowed are {", ".join(_OF_NODES)} and extended resources with an amount, '
                f"such as cpu=1000"
            )
            continue
        try:
            limits[name] = min(parse_quantity(name, amount), limits.get(name, parse_quantity(name, amount)))
        except QuantityError as error:
            problems.append(f"{name}: {error}")
    if not parts:
        problems.append("is empty; remove the annotation, or name a limit such as cpu=1000")
    return limits, tuple(problems)


def least_of(texts: Iterable[str]) -> Resources:
    """The least amount of each resource that these annotations set; parts that are no limits set none."""
    least: Resources = {}
    for text in texts:
        for name, amount in read_cluster_limits(text)[0].items():
            least[name] = min(amount, least.get(name, amount))
    return least


def used_by_claims(claims: Iterable[NodeClaim]) -> Resources:
    """What the NodeClaims of all NodePools have together; those that aren't launched yet count as nodes only."""
    of_pools = [claim for claim in claims if names.NODEPOOL in claim.metadata.labels]
    return {**add({}, *(_capacity(claim) for claim in of_pools)), NODES: len(of_pools)}


def _capacity(claim: NodeClaim) -> Resources:
    try:
        return parse_resources(claim.status.capacity)
    except QuantityError:
        return {}


def is_reached(name: str, limits: Resources, used: Resources) -> bool:
    """Whether no more of the resource is allowed."""
    return used.get(name, 0) >= limits[name]


def describe(name: str, limits: Resources, used: Resources) -> str:
    """What is used of a limit.

    >>> describe("cpu", {"cpu": 4000}, {"cpu": 1500})
    '1500m of 4'
    """
    return f"{_amount(name, used.get(name, 0))} of {_amount(name, limits[name])}"


def _amount(name: str, amount: int) -> str:
    return str(amount) if name == NODES else format_quantity(name, amount)

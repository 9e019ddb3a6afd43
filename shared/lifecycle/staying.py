"""Pods that stay where they are until there is a place for them: on a machine that still works, that loses nothing.

A claim that is given up while its replacement boots says which of its pods stay for which claim (:data:`STAY`). A pod
goes once that claim's node has joined: the seconds until the node is ready are those in which the pod stops, so it is
away for a restart and not for a boot. It goes in any case while its grace, and some turns of its budget, still fit
before the deadline. What stands there only delays, so it may be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim

STAY = "tenon.sh/pods-stay-for"
"""Annotation on a NodeClaim that is being deleted: by name of another claim, the pods that stay until it has a node."""
NOWHERE = ""
"""In place of a claim's name: no place was found for these."""
TURNS = timedelta(seconds=15)
"""Left before a pod's grace must begin, for budgets that let pods go one after another."""
LONGEST = timedelta(minutes=5)
"""How long pods stay where no deadline ends it."""

Stays = Mapping[str, frozenset[str]]
"""By the name of a claim, the pods (namespace/name) that stay for it."""


def stays(claim: NodeClaim) -> Stays:
    """The pods that stay, by the name of the claim they stay for; what can't be read holds nobody."""
    try:
        return msgspec.json.decode(claim.metadata.annotations.get(STAY, "{}"), type=dict[str, frozenset[str]])
    except msgspec.MsgspecError:
        return {}


def written(found: Stays) -> str | None:
    """The annotation's value; None, which removes it, if nobody stays."""
    kept = {name: sorted(pods) for name, pods in sorted(found.items()) if pods}
    return msgspec.json.encode(kept).decode() if kept else None


def on(
    pods: Iterable[Pod], nodes: Container[str], *, arriving: Mapping[str, str], unplaced: Container[str]
) -> dict[str, Stays]:
    """By node, who of the pods there stays for what: by a decision that put some on arriving claims, others nowhere.

    Those that have a place on a node that is there stay for nothing. Nodes of which nobody stays are there too.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for pod in pods:
        node = pod.spec.node_name
        if node not in nodes:
            continue
        there = found.setdefault(node, {})
        claim = arriving.get(pod.key, NOWHERE if pod.key in unplaced else None)
        if claim is not None:
            there.setdefault(claim, set()).add(pod.key)
    return {node: {name: frozenset(some) for name, some in there.items()} for node, there in found.items()}


def without(claim: NodeClaim, arriving: Iterable[str]) -> Stays:
    """Who still stays when only these claims are still to get a node: the others have theirs, or never will."""
    awaited = {*arriving, NOWHERE}
    return {name: pods for name, pods in stays(claim).items() if name in awaited}


def until(claim: NodeClaim, end: datetime | None, grace: timedelta, *, now: datetime) -> datetime:
    """How long a pod with that grace stays at most, on a claim whose deadline is ``end``."""
    if end is not None:
        return end - grace - TURNS
    return (claim.metadata.deletion_timestamp or now) + LONGEST

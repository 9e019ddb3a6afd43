"""Drift in waves: a few drifted nodes of a NodePool are replaced, and more once their replacements are healthy. Pure.

Budgets limit how many nodes go at once, not how many go before anybody knows whether the new ones work
(kubernetes-sigs/karpenter, issues 1775 and 3072). With the annotation ``1, 10%, 50% healthy for 10m``, first one node
of the NodePool gets the new template, then a tenth of the nodes more, then half of them, then the others. A wave begins
when as many new nodes as all waves before it have been initialized and healthy for that long. The first new node that
fails stops drift.

Nothing is kept in memory. The NodeClaims say how many nodes are new: those that were created since the NodePool or its
class changed. When that was, and what has failed, is an annotation of the lifecycle function's on the NodePool
(:class:`Rollout`). Whatever is new counts, also nodes for pending pods: they show the same.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.duration import DurationError, format_duration, parse_duration
from shared.api.hash import hash_of_nodes
from shared.api.meta import condition, decode_annotation, is_true
from shared.api.nodepool import node_class_for
from shared.base.plurals import plural
from shared.base.struct import Struct, WireStruct, with_fields
from shared.disruption.disruption_queue import REPLACEMENT_TIMEOUT, is_queued, queue_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.kubernetes import Node
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool
    from shared.snapshot import Snapshot

DEFAULT_HEALTHY_FOR = timedelta(minutes=10)
UNREADY_TOLERATION = timedelta(minutes=2)
"""How long a new node may be unhealthy: a kubelet that restarts is no failure."""
CLOCK_SKEW = timedelta(seconds=5)
"""NodeClaims have whole seconds of the API server's clock, rollouts a function's time."""
_UNHEALTHY = {
    ("Ready", "False"),
    ("Ready", "Unknown"),
    *(
        (f"{part}Ready", "False")
        for part in ("AcceleratedHardware", "Storage", "Networking", "Kernel", "ContainerRuntime")
    ),
}
"""Conditions (type, status) of an unhealthy node: the kubelet's, and those of EKS' node monitoring agent."""
_WAVES = re.compile(r"(?P<sizes>[^a-z]+?)(?:\s+healthy\s+for\s+(?P<healthy>\S+))?")
_MAX_LENGTH = 500
_SIZE = re.compile(r"(\d{1,6})(%?)")
_PERCENT = 100
_ALLOWED = 'allowed are counts and percentages, such as "1, 10%, 50%" or "1, 10%, 50% healthy for 10m"'


class WavesError(ValueError):
    """The annotation's value can't be used; the message names it and what is allowed."""


class Waves(Struct, kw_only=True):
    """The ``sizes`` of the waves (a count, whether it is a percentage); after the last, the other nodes follow."""

    sizes: tuple[tuple[int, bool], ...]
    healthy_for: timedelta = DEFAULT_HEALTHY_FOR

    def totals(self, nodes: int) -> tuple[int, ...]:
        """How many nodes are new after each wave, in a NodePool of that many nodes.

        >>> parse_waves("1, 10%, 50%").totals(40)
        (1, 5, 25)
        """
        total, totals = 0, []
        for size, is_percentage in self.sizes:
            total += math.ceil(nodes * size / _PERCENT) if is_percentage else size
            totals.append(total)
        return tuple(totals)


class Rollout(WireStruct, kw_only=True):
    """What a NodePool's nodes are replaced for: the hash of new nodes, since when, and why drift is stopped."""

    target: str
    since: datetime
    stopped: str = ""


class Limit(Struct, kw_only=True):
    """How many more drifted nodes of a NodePool may be replaced now, and why no more, for users."""

    allowed: int
    message: str


@functools.lru_cache(maxsize=256)
def parse_waves(text: str) -> Waves:
    """The waves of the annotation.

    Raises:
        WavesError: the value can't be used.
    """
    match = _WAVES.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    sizes = [_SIZE.fullmatch(size.strip()) for size in match["sizes"].split(",")] if match is not None else []
    given = tuple((int(size[1]), bool(size[2])) for size in sizes if size is not None)
    if match is None or len(given) < len(sizes) or not all(1 <= n <= (_PERCENT if p else n) for n, p in given):
        raise WavesError(f'annotation {names.DRIFT_WAVES}: "{text[:_MAX_LENGTH]}" is no list of waves; {_ALLOWED}')
    try:
        healthy_for = parse_duration(match["healthy"]) if match["healthy"] else DEFAULT_HEALTHY_FOR
    except DurationError as error:
        raise WavesError(f"annotation {names.DRIFT_WAVES}: {error}") from error
    if healthy_for is None:
        raise WavesError(f'annotation {names.DRIFT_WAVES}: "{text}" would never end its first wave; {_ALLOWED}')
    return Waves(sizes=given, healthy_for=healthy_for)


def read_rollout(pool: NodePool) -> Rollout | None:
    """The rollout that the lifecycle function recorded; None without one, or if it can't be read."""
    try:
        return decode_annotation(pool.metadata.annotations.get(names.DRIFT_ROLLOUT, ""), Rollout)
    except msgspec.DecodeError:
        return None


def next_rollout(pool: NodePool, snapshot: Snapshot, *, now: datetime) -> Rollout | None:
    """The rollout to record now; None where nothing is to be recorded: the NodePool has no waves, or no class.

    A stop stays until new nodes would differ, or until somebody removes the annotation.
    """
    try:
        waves = parse_waves(pool.metadata.annotations[names.DRIFT_WAVES])
    except (KeyError, WavesError):
        return None
    recorded, target = read_rollout(pool), _target(pool, snapshot)
    if not target:
        return recorded
    if recorded is None or recorded.target != target:
        return Rollout(target=target, since=now)
    if recorded.stopped:
        return recorded
    nodes = _PoolNodes(pool, snapshot, recorded, waves)
    return with_fields(recorded, stopped=nodes.failure(now)) if nodes.has_drifted_nodes else recorded


def limit(pool: NodePool, snapshot: Snapshot, *, now: datetime) -> Limit:
    """How many more drifted nodes of the NodePool, which has the annotation, may be replaced now."""
    try:
        waves = parse_waves(pool.metadata.annotations[names.DRIFT_WAVES])
    except WavesError as error:
        return Limit(
            allowed=0, message=f"no drifted node of NodePool {pool.name} is replaced until this is mended: {error}"
        )
    rollout = read_rollout(pool)
    if rollout is None or rollout.target != _target(pool, snapshot):
        return Limit(allowed=0, message=f"the next sweep records what nodes of NodePool {pool.name} are replaced for")
    nodes = _PoolNodes(pool, snapshot, rollout, waves)
    if failure := rollout.stopped or nodes.failure(now):
        return Limit(allowed=0, message=stop_message(pool, failure))
    return nodes.limit(now)


def stop_message(pool: NodePool, failure: str) -> str:
    """That drift is stopped, why, and how it is resumed."""
    return (
        f"drift of NodePool {pool.name} is stopped: {failure}. It begins again, with the first wave, when the NodePool "
        f"or its class is changed, or with kubectl annotate nodepool {pool.name} {names.DRIFT_ROLLOUT}-"
    )


def _target(pool: NodePool, snapshot: Snapshot) -> str:
    """The hash of new nodes; empty while the NodePool's class isn't there."""
    name = pool.spec.template.spec.node_class_ref.name
    node_class = next((c for c in snapshot.node_classes if c.name == name), None)
    return hash_of_nodes(pool, node_class_for(pool, node_class)) if node_class is not None else ""


class _PoolNodes:
    """The NodeClaims of a NodePool during a rollout."""

    def __init__(self, pool: NodePool, snapshot: Snapshot, rollout: Rollout, waves: Waves) -> None:
        self._waves = waves
        self._name = pool.name
        self._claims = [c for c in snapshot.node_claims if c.metadata.labels.get(names.NODEPOOL) == pool.name]
        self._nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
        since = rollout.since - CLOCK_SKEW
        self._new = [
            c for c in self._claims if (c.metadata.creation_timestamp or since) >= since and not _is_drifted(c)
        ]

    @property
    def has_drifted_nodes(self) -> bool:
        """Whether drift has something to do, so that a failure stops something."""
        return any(map(_is_drifted, self._claims))

    def failure(self, now: datetime) -> str:
        """Which new node failed, and why; empty if none has."""
        return next((f"NodeClaim {c.name} {why}" for c in self._new if (why := self._failure_of(c, now))), "")

    def limit(self, now: datetime) -> Limit:
        """How many more drifted nodes may be replaced now."""
        living = [c for c in self._new if c.metadata.deletion_timestamp is None]
        healthy = sum(self._is_proven(c, now) for c in living)
        size = sum(c.metadata.deletion_timestamp is None and not is_queued(c) for c in self._claims)
        totals = self._waves.totals(size)
        wave = next((i for i, total in enumerate(totals) if healthy < total), None)
        if wave is None:
            return Limit(allowed=sys.maxsize, message="")
        begun = len(living) + sum(map(_goes_without_replacement, self._claims))
        duration = format_duration(self._waves.healthy_for)
        message = (
            f"wave {wave + 1} of {len(totals) + 1} of drift in NodePool {self._name} ends with "
            f"{plural(totals[wave], 'new node')} healthy for {duration} ({healthy} now)"
        )
        return Limit(allowed=max(0, totals[wave] - begun), message=message)

    def _node(self, claim: NodeClaim) -> Node | None:
        return self._nodes.get(claim.status.provider_id)

    def _is_proven(self, claim: NodeClaim, now: datetime) -> bool:
        """Whether the node has been initialized for as long as the waves ask, and is healthy."""
        node, initialized = self._node(claim), _initialized(claim)
        if node is None or initialized is None:
            return False
        since = initialized.last_transition_time or now
        return now - since >= self._waves.healthy_for and next(_unhealthy(node), None) is None

    def _failure_of(self, claim: NodeClaim, now: datetime) -> str:
        """Why the new node failed; one that was healthy for as long as the waves ask is node repair's."""
        initialized = _initialized(claim)
        if initialized is None:
            return _launch_failure(claim, now)
        node = self._node(claim) if claim.metadata.deletion_timestamp is None else None
        watched_until = (initialized.last_transition_time or now) + self._waves.healthy_for
        return _health_failure(node, watched_until, now) if node is not None else ""


def _launch_failure(claim: NodeClaim, now: datetime) -> str:
    """Why a NodeClaim that isn't initialized failed; empty while it may still become it, or waits for capacity."""
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    if launched is None or launched.status not in {"True", "False"}:
        return ""
    if launched.status == "False":
        return f"couldn't be launched: {launched.message}"
    is_late = now - (claim.metadata.creation_timestamp or now) >= REPLACEMENT_TIMEOUT
    return f"isn't initialized after {format_duration(REPLACEMENT_TIMEOUT)}" if is_late else ""


def _health_failure(node: Node, watched_until: datetime, now: datetime) -> str:
    """Which condition of the node became unhealthy while it was watched, and has been for longer than is tolerated."""
    for unhealthy in _unhealthy(node):
        since = unhealthy.last_transition_time or now
        if since <= watched_until and now - since >= UNREADY_TOLERATION:
            why = f" ({unhealthy.reason})" if unhealthy.reason else ""
            return f"is unhealthy: condition {unhealthy.type} of its node is {unhealthy.status}{why}"
    return ""


def _unhealthy(node: Node) -> Iterator[Condition]:
    return (c for c in node.status.conditions if (c.type, c.status) in _UNHEALTHY)


def _initialized(claim: NodeClaim) -> Condition | None:
    initialized = condition(claim.status.conditions, nodeclaim.INITIALIZED)
    return initialized if initialized is not None and initialized.status == "True" else None


def _is_drifted(claim: NodeClaim) -> bool:
    return is_true(claim.status.conditions, nodeclaim.DRIFTED)


def _goes_without_replacement(claim: NodeClaim) -> bool:
    """Whether the drifted node is on its way out and no NodeClaim stands for it among the new ones yet."""
    entry = queue_entry(claim)
    is_leaving = claim.metadata.deletion_timestamp is not None or is_queued(claim)
    return is_leaving and _is_drifted(claim) and not (entry is not None and entry.replacements)

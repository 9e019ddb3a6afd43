"""The nodes as rows, claims on their way included: what each is, costs and holds, and what becomes of it.

The demo's picture and ``tenon nodes`` show the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.cluster.observed_cluster import offering_of
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.pods import is_daemon, is_mirror, is_pending, is_terminal, requests
from shared.api.quantity import CPU, MEMORY, PODS, QuantityError, Resources, add, parse_resources
from shared.disruption.disruption_queue import is_queued, queue_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim

READY, JOINING, STARTING, ASKED, LEAVING, NOT_READY = (
    "ready", "joining", "starting", "asked for", "leaving", "not ready",
)  # fmt: skip
Price = "Callable[[str, str, str], float | None]"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One node, or a claim without one.

    ``price`` is USD per hour, None if nobody knows it; ``since`` when it was made; ``used`` and ``size`` are what pods
    ask and what they get; ``pods`` counts all but daemons. ``state`` is a word or two, ``why`` the rest of the story.
    """

    name: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    since: datetime | None
    pods: int
    used: Resources
    size: Resources
    state: str
    why: str = ""
    labels: Mapping[str, str]

    def fill(self, resource: str) -> float | None:
        """The share of a resource that pods ask for; None if its size isn't known."""
        size = self.size.get(resource, 0)
        return self.used.get(resource, 0) / size if size else None


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows at one moment, and the pods that wait."""

    now: datetime
    rows: tuple[Row, ...]
    running: int
    pending: int

    @property
    def cost(self) -> float:
        """USD per hour of what is known."""
        return sum(r.price or 0.0 for r in self.rows)

    def fill(self, resource: str) -> float | None:
        """The share of all nodes that pods ask for."""
        size = sum(r.size.get(resource, 0) for r in self.rows)
        return sum(r.used.get(resource, 0) for r in self.rows) / size if size else None


def take(
    nodes: Iterable[Node],
    claims: Iterable[NodeClaim],
    pods: Iterable[Pod],
    *,
    price: Callable[[str, str, str], float | None],
    now: datetime,
) -> Table:
    """The rows now, by name; ``price`` is asked for instance type, zone and capacity type."""
    on: dict[str, list[Pod]] = {}
    pending = running = 0
    for pod in pods:
        if is_terminal(pod):
            continue
        on.setdefault(pod.spec.node_name, []).append(pod)
        pending += is_pending(pod)
        running += pod.status.phase == "Running"
    by_provider = {c.status.provider_id: c for c in claims if c.status.provider_id}
    unclaimed = {c.name: c for c in claims if not c.status.provider_id}
    rows = []
    for node in nodes:
        claim = by_provider.pop(node.spec.provider_id, None)
        rows.append(_row(node, claim, on.get(node.metadata.name, []), price))
    rows += [_row(None, claim, [], price) for claim in (*by_provider.values(), *unclaimed.values())]
    return Table(now=now, rows=tuple(sorted(rows, key=lambda r: r.name)), running=running, pending=pending)


def _row(
    node: Node | None,
    claim: NodeClaim | None,
    pods: Sequence[Pod],
    price: Callable[[str, str, str], float | None],
) -> Row:
    one = node if node is not None else claim
    assert one is not None
    labels = {**(claim.metadata.labels if claim is not None else {}), **one.metadata.labels}
    kind = offering_of(labels)
    launched = node is not None or (claim is not None and bool(claim.status.provider_id))
    state, why = _state(node, claim)
    size = node.status.allocatable if node is not None else claim.status.allocatable if claim is not None else {}
    return Row(
        name=one.metadata.name,
        pool=labels.get(names.NODEPOOL, ""),
        instance_type=kind[0],
        zone=kind[1],
        capacity_type=kind[2] if kind[0] else "",
        price=price(*kind) if launched else 0.0,
        since=one.metadata.creation_timestamp,
        pods=sum(not (is_daemon(p) or is_mirror(p)) for p in pods),
        used=add(*(_asked(p) for p in pods)) if pods else {},
        size=_quantities(size),
        state=state,
        why=why,
        labels=labels,
    )


def _asked(pod: Pod) -> Resources:
    try:
        return requests(pod)
    except QuantityError:
        return {PODS: 1}


def _quantities(raw: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}


def _state(node: Node | None, claim: NodeClaim | None) -> tuple[str, str]:  # noqa: PLR0911 (a case for each)
    mark = queue_entry(claim) if claim is not None else None
    why = f"{mark.reason}: {mark.message}" if mark is not None else ""
    if claim is not None and claim.metadata.deletion_timestamp is not None:
        return LEAVING, why or "its claim was deleted"
    if claim is not None and is_queued(claim):
        return mark.reason.lower() if mark is not None else "going", why
    if claim is not None and not claim.status.provider_id:
        return ASKED, ""
    if node is None:
        return STARTING, ""
    if claim is not None and not is_true(claim.status.conditions, nodeclaim.INITIALIZED):
        return JOINING, ""
    if not is_true(node.status.conditions, "Ready"):
        return NOT_READY, ""
    if node.spec.unschedulable:
        return "cordoned", ""
    for type_, word in ((nodeclaim.EMPTY, "empty"), (nodeclaim.DRIFTED, "drifted")):
        if claim is not None and is_true(claim.status.conditions, type_):
            return word, ""
    return READY, ""


SORTS: dict[str, Callable[[Row], Any]] = {
    "name": lambda r: r.name,
    "pool": lambda r: (r.pool, r.name),
    "type": lambda r: (r.instance_type, r.name),
    "zone": lambda r: (r.zone, r.name),
    "price": lambda r: (r.price or 0.0, r.name),
    "age": lambda r: (-(r.since.timestamp() if r.since else 0.0), r.name),
    "cpu": lambda r: (r.fill(CPU) or 0.0, r.name),
    "memory": lambda r: (r.fill(MEMORY) or 0.0, r.name),
    "pods": lambda r: (r.pods, r.name),
    "state": lambda r: (r.state, r.name),
}
"""Smallest first; youngest first for age."""

"""The rows of the node table: one for each node, and one for each NodeClaim without a node.

``tenon nodes`` and the demo's screen show the same rows.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cli.cluster.price_origin import AWS, PriceOrigin
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.labels import offering_key
from shared.api.meta import is_true
from shared.api.nodeclaim import is_rebooting, rebooting_message
from shared.api.pods import is_daemon, is_mirror, is_pending, is_terminal, requests
from shared.api.quantity import CPU, MEMORY, PODS, QuantityError, Resources, add, parse_resources
from shared.api.standby import STARTING, STOPPED, WARMING, standby_state
from shared.base.struct import Struct, with_fields
from shared.disruption.disruption_queue import is_queued, queue_entry
from shared.node_groups.scale_down import CANDIDATE_TAINT
from shared.node_groups.status import REMOVED_TAINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.api.kubernetes import Node, Pod
    from shared.api.nodeclaim import NodeClaim

READY, INITIALIZING, LAUNCHED, PENDING, DELETING, NOT_READY = (
    "ready", "initializing", "launched", "pending", "deleting", "not ready",
)  # fmt: skip
EMPTY, DRIFTED, CORDONED = "empty", "drifted", "cordoned"
UNNEEDED, REMOVING = "unneeded", "removing"
"""Nodes of node groups that Cluster Autoscaler's rules mark, and remove."""
STANDBY_STATES = {WARMING: "warming up", STOPPED: "standby", STARTING: "starting"}
"""What standby nodes are shown as."""
DISRUPTING, REBOOTING = "disrupting", "rebooting"


class Row(Struct, kw_only=True):
    """One node, or a NodeClaim without one.

    ``price`` is USD per hour, None if it is unknown; a stopped instance's is 0, as its volumes aren't counted anywhere.
    ``requested`` is the sum of its pods' requests; ``pods`` counts all pods but those of DaemonSets and static pods.
    ``chunks`` are those of CapacityBuffers that have their room here.
    ``why`` is the reason for a disruption. ``group`` is the node group of a node that no NodePool has launched.
    """

    name: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    created: datetime | None
    pods: int
    requested: Resources
    allocatable: Resources
    state: str
    chunks: int = 0
    why: str = ""
    group: str = ""
    labels: Mapping[str, str]

    def requested_share(self, resource: str) -> float | None:
        """The requested share of a resource; None if its allocatable amount is unknown."""
        allocatable = self.allocatable.get(resource, 0)
        return self.requested.get(resource, 0) / allocatable if allocatable else None


class NodeRows(Struct, kw_only=True):
    """All rows at one moment, the numbers of running and pending pods, and where prices come from."""

    now: datetime
    rows: tuple[Row, ...]
    running: int
    pending: int
    prices: PriceOrigin = AWS

    @property
    def cost(self) -> float:
        """USD per hour of all rows with a known price."""
        return sum(r.price or 0.0 for r in self.rows)

    def requested_share(self, resource: str) -> float | None:
        """The requested share of a resource on all nodes."""
        allocatable = sum(r.allocatable.get(resource, 0) for r in self.rows)
        return sum(r.requested.get(resource, 0) for r in self.rows) / allocatable if allocatable else None


def build(
    nodes: Iterable[Node],
    claims: Iterable[NodeClaim],
    pods: Iterable[Pod],
    *,
    price: Callable[[Mapping[str, str]], float | None],
    now: datetime,
    chunks: Mapping[str, int] = MappingProxyType({}),
    groups: Mapping[str, str] = MappingProxyType({}),
) -> NodeRows:
    """The rows by name; ``price`` gets the labels of a node or NodeClaim.

    ``chunks`` are by node or NodeClaim, ``groups`` the node groups' names by node.
    """
    pods_by_node: dict[str, list[Pod]] = {}
    pending = running = 0
    for pod in pods:
        if is_terminal(pod):
            continue
        pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        pending += is_pending(pod)
        running += pod.status.phase == "Running"
    launched_claims = {c.status.provider_id: c for c in claims if c.status.provider_id}
    pending_claims = {c.name: c for c in claims if not c.status.provider_id}
    rows = []
    for node in nodes:
        claim = launched_claims.pop(node.spec.provider_id, None)
        rows.append(_node_row(node, claim, pods_by_node.get(node.metadata.name, []), price))
    rows += [_claim_row(claim, price) for claim in (*launched_claims.values(), *pending_claims.values())]
    rows = [
        with_fields(row, chunks=chunks.get(row.name, 0), group=groups.get(row.name, ""))
        for row in sorted(rows, key=lambda r: r.name)
    ]
    return NodeRows(now=now, rows=tuple(rows), running=running, pending=pending)


def _node_row(
    node: Node, claim: NodeClaim | None, pods: Sequence[Pod], price: Callable[[Mapping[str, str]], float | None]
) -> Row:
    labels = {**(claim.metadata.labels if claim is not None else {}), **node.metadata.labels}
    key = offering_key(labels)
    state, why = _state(node, claim)
    return Row(
        name=node.metadata.name,
        pool=labels.get(names.NODEPOOL, ""),
        instance_type=key[0],
        zone=key[1],
        capacity_type=key[2] if key[0] else "",
        price=0.0 if state == STANDBY_STATES[STOPPED] else price(labels),
        created=node.metadata.creation_timestamp,
        pods=sum(not (is_daemon(p) or is_mirror(p)) for p in pods),
        requested=add(*(_requests(p) for p in pods)) if pods else {},
        allocatable=_quantities(node.status.allocatable),
        state=state,
        why=why,
        labels=labels,
    )


def _claim_row(claim: NodeClaim, price: Callable[[Mapping[str, str]], float | None]) -> Row:
    labels = claim.metadata.labels
    key = offering_key(labels)
    state, why = _state(None, claim)
    return Row(
        name=claim.metadata.name,
        pool=labels.get(names.NODEPOOL, ""),
        instance_type=key[0],
        zone=key[1],
        capacity_type=key[2] if key[0] else "",
        price=price(labels) if claim.status.provider_id else 0.0,
        created=claim.metadata.creation_timestamp,
        pods=0,
        requested={},
        allocatable=_quantities(claim.status.allocatable),
        state=state,
        why=why,
        labels=labels,
    )


def _requests(pod: Pod) -> Resources:
    try:
        return requests(pod)
    except QuantityError:
        return {PODS: 1}


def _quantities(raw: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}


def _state(node: Node | None, claim: NodeClaim | None) -> tuple[str, str]:
    """The state in one word or two, and the reason for a disruption."""
    if claim is not None and (disruption := _disruption_state(claim)) is not None:
        return disruption
    if claim is not None and not claim.status.provider_id:
        return PENDING, ""
    if claim is not None and standby_state(claim):
        return STANDBY_STATES[standby_state(claim)], ""
    if node is None:
        return LAUNCHED, ""
    return _node_state(node, claim), ""


def _disruption_state(claim: NodeClaim) -> tuple[str, str] | None:
    """The state of a NodeClaim that is removed, replaced or rebooted, and why; None for any other."""
    mark = queue_entry(claim)
    why = f"{mark.reason}: {mark.message}" if mark is not None else ""
    if claim.metadata.deletion_timestamp is not None:
        return DELETING, why or "its NodeClaim was deleted"
    if is_queued(claim):
        return mark.reason.lower() if mark is not None else DISRUPTING, why
    return (REBOOTING, rebooting_message(claim)) if is_rebooting(claim) else None


def _node_state(node: Node, claim: NodeClaim | None) -> str:
    if claim is not None and not is_true(claim.status.conditions, nodeclaim.INITIALIZED):
        return INITIALIZING
    if not is_true(node.status.conditions, "Ready"):
        return NOT_READY
    taints = {taint.key for taint in node.spec.taints}
    if REMOVED_TAINT in taints:
        return REMOVING
    if node.spec.unschedulable:
        return CORDONED
    if claim is None:
        return UNNEEDED if CANDIDATE_TAINT in taints else READY
    return next((state for state, condition in _DISRUPTABLE if is_true(claim.status.conditions, condition)), READY)


_DISRUPTABLE = ((EMPTY, nodeclaim.EMPTY), (DRIFTED, nodeclaim.DRIFTED))
SORT_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda r: r.name,
    "pool": lambda r: (r.pool or r.group, r.name),
    "type": lambda r: (r.instance_type, r.name),
    "zone": lambda r: (r.zone, r.name),
    "price": lambda r: (r.price or 0.0, r.name),
    "age": lambda r: (-(r.created.timestamp() if r.created else 0.0), r.name),
    "cpu": lambda r: (r.requested_share(CPU) or 0.0, r.name),
    "memory": lambda r: (r.requested_share(MEMORY) or 0.0, r.name),
    "pods": lambda r: (r.pods, r.chunks, r.name),
    "state": lambda r: (r.state, r.name),
}
"""Ascending; for age, the youngest first."""

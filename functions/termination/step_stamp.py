"""The stamp of a drain's step: while one invocation evicts the pods of a node, no other does.

Messages about one NodeClaim arrive in parallel (its deletion, its node's, an unblocked budget), and each would evict
the same pods: a repeated eviction is counted by PodDisruptionBudgets and refused as a duplicate event. So a step that
evicts or deletes pods first writes the time until which it works, with the resourceVersion that the step was computed
from. Of two steps at once, one succeeds. Messages that arrive meanwhile are redelivered. The stamp of an invocation
that died expires.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ObjectMeta, annotated, parse_timestamp
from shared.base.struct import WireStruct, with_fields
from shared.cluster import resources
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client

STEP_UNTIL = "tenon.sh/drain-step-until"
"""Annotation on a NodeClaim that is being deleted, or on a node without one: a step of its drain works until then."""
EVICTING = timedelta(seconds=10)
"""How long a step begins evictions; the pods that are left are evicted by the next step. The API server may take 10 s
for one eviction, while it retries the update of its PodDisruptionBudget."""
STEP_TIMEOUT = timedelta(seconds=30)
"""When a step's invocation has died: evictions begin within :data:`EVICTING`, and end with the client's time-out."""


def is_running(claim: NodeClaim, *, now: datetime) -> bool:
    """Whether an invocation is carrying out a step of the drain."""
    until = _stamp(claim.metadata.annotations)
    return until is not None and now < until


def write(client: Client, claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """The stamped NodeClaim.

    Raises:
        ConflictError: another writer has changed it since it was read, such as another invocation with the same step.
        NotFoundError: it is gone.
    """
    metadata = {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": {STEP_UNTIL: (now + STEP_TIMEOUT).isoformat()},
    }
    stored = client.patch(path(claim), {"metadata": metadata})
    annotations = _stored_decoder.decode(stored).metadata.annotations
    return with_fields(claim, metadata=with_fields(claim.metadata, annotations=annotations))


def remove(client: Client, claim: NodeClaim) -> NodeClaim:
    """Remove the stamp, if the NodeClaim has it and no later step has replaced it; the NodeClaim without it."""
    steps = removal(claim)
    if not steps:
        return claim
    with contextlib.suppress(NotFoundError, ConflictError, InvalidError):
        client.patch(path(claim), steps, kind="json")
    return with_fields(claim, metadata=annotated(claim.metadata, {STEP_UNTIL: None}))


def removal(claim: NodeClaim) -> list[dict[str, str]]:
    """The JSON patch that removes the NodeClaim's stamp; without one, an empty list."""
    stamp = claim.metadata.annotations.get(STEP_UNTIL)
    if stamp is None:
        return []
    pointer = "/metadata/annotations/" + STEP_UNTIL.replace("/", "~1")
    return [{"op": "test", "path": pointer, "value": stamp}, {"op": "remove", "path": pointer}]


def path(claim: NodeClaim) -> str:
    """The API path of the NodeClaim, or of the node that one stands for."""
    return resources.for_kind(claim.api_version, claim.kind).path(claim.name)


def _stamp(annotations: Mapping[str, str]) -> datetime | None:
    return parse_timestamp(annotations.get(STEP_UNTIL, ""))


class _MetadataOnly(WireStruct):
    metadata: ObjectMeta = ObjectMeta()


# Made before any thread needs it: a type that two threads use for the first time at once crashes msgspec.
_stored_decoder = msgspec.json.Decoder(_MetadataOnly)

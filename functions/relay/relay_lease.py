"""The Lease ``tenon-relay``: which invocation sends hints, and which one succeeds it.

The holder renews the Lease. When its end is near, its successor names itself in an annotation; once it has listed every
kind, it adds the resourceVersions that it has observed. The holder observes at least these, sends all its hints, and
releases the Lease with the versions that it has observed itself.

Every write is conditional: the holder's on its own name, all others on the resourceVersion that was read.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from shared.api.meta import decode_annotation
from shared.base.struct import WireStruct
from shared.cluster.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from shared.cluster.lease import NAMESPACE, RELAY_LEASE, LeaseObject, is_recent, micro_time
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.cluster.client import Client

ENDS = "tenon.sh/relay-ends"
SUCCESSOR = "tenon.sh/relay-successor"
OBSERVED = "tenon.sh/relay-observed"
RENEW_INTERVAL = timedelta(seconds=5)
DURATION = timedelta(seconds=20)
"""A holder or successor that hasn't renewed for this time is dead; so is one that is further ahead than that."""


T = TypeVar("T")
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class LeaseLostError(RuntimeError):
    """Another invocation has acquired the lease, or may have."""


class Successor(WireStruct, kw_only=True):
    """The invocation that will acquire the lease. ``observed``: by kind, once it has listed all; None before."""

    identity: str
    renewed: _Moment
    observed: dict[str, int] | None = None

    def is_alive(self, now: datetime) -> bool:
        """Whether it has renewed its annotation."""
        return is_recent(self.renewed, now=now, within=DURATION)


class State(WireStruct, kw_only=True):
    """The Lease as it was read. ``holder`` is "" for none; ``observed`` is that of a holder that handed over."""

    version: str = ""
    holder: str = ""
    renewed: datetime | None = None
    ends: datetime | None = None
    successor: Successor | None = None
    observed: dict[str, int] | None = None
    transitions: int = 0

    def is_held(self, now: datetime) -> bool:
        """Whether an invocation holds it and has renewed it."""
        return bool(self.holder) and self.renewed is not None and is_recent(self.renewed, now=now, within=DURATION)

    def has_successor(self, now: datetime) -> bool:
        """Whether an invocation waits for it."""
        return self.successor is not None and self.successor.is_alive(now)


class RelayLease:
    """The Lease, for the invocation ``identity``."""

    def __init__(self, client: Client, *, identity: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._path = LEASES.path(RELAY_LEASE, namespace=NAMESPACE)
        self._now = now
        self.identity = identity

    def read(self) -> State:
        """The Lease; without a holder if it doesn't exist.

        Raises:
            ApiError: the API server can't be read.
        """
        try:
            return _state(self._client.get(self._path))
        except NotFoundError:
            return State()

    def acquire(self, read: State, *, ends: datetime) -> bool:
        """Acquire the lease as it was ``read``, until ``ends``; False if it has changed since.

        Raises:
            ApiError: the API server can't be written.
        """
        now = micro_time(self._now())
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION.total_seconds()),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": read.transitions + 1,
        }
        annotations = {ENDS: micro_time(ends), SUCCESSOR: None, OBSERVED: None}
        if not read.version:
            return self._create(spec, {ENDS: annotations[ENDS]})
        return self._write_if_unchanged(read, {"metadata": {"annotations": annotations}, "spec": spec})

    def succeed(self, read: State, *, observed: Mapping[str, int] | None) -> bool:
        """Name this invocation as the holder's successor; False if the lease has changed since it was ``read``.

        Raises:
            ApiError: the API server can't be written.
        """
        successor = Successor(
            identity=self.identity, renewed=self._now(), observed=None if observed is None else dict(observed)
        )
        text = msgspec.json.encode(successor).decode()
        return self._write_if_unchanged(read, {"metadata": {"annotations": {SUCCESSOR: text}}})

    def renew(self) -> State:
        """Renew the held lease.

        Raises:
            LeaseLostError: another invocation holds it.
            ApiError: the API server can't be written.
        """
        return self._write_as_holder({"/spec/renewTime": micro_time(self._now())})

    def release(self, *, observed: Mapping[str, int] | None) -> None:
        """Release the held lease. ``observed`` are the versions up to which all hints were sent; None: not all were.

        Raises:
            LeaseLostError: another invocation holds it.
            ApiError: the API server can't be written.
        """
        changes = {"/spec/holderIdentity": ""}
        if observed is not None:
            changes[f"/metadata/annotations/{OBSERVED.replace('/', '~1')}"] = msgspec.json.encode(observed).decode()
        self._write_as_holder(changes)

    def _create(self, spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
        metadata = {"name": RELAY_LEASE, "namespace": NAMESPACE, "annotations": annotations}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        try:
            self._client.create(LEASES.path(namespace=NAMESPACE), lease)
        except AlreadyExistsError:
            return False
        return True

    def _write_if_unchanged(self, read: State, patch: Mapping[str, Any]) -> bool:
        metadata = {**patch["metadata"], "resourceVersion": read.version}
        try:
            self._client.patch(self._path, {**patch, "metadata": metadata})
        except (ConflictError, NotFoundError):
            return False
        return True

    def _write_as_holder(self, changes: Mapping[str, str]) -> State:
        steps = [{"op": "test", "path": "/spec/holderIdentity", "value": self.identity}]
        # "add" also replaces what is there.
        steps += [{"op": "add", "path": path, "value": value} for path, value in changes.items()]
        try:
            return _state(self._client.patch(self._path, steps, kind="json"))
        except (ConflictError, InvalidError, NotFoundError) as error:
            raise LeaseLostError(f"Lease {NAMESPACE}/{RELAY_LEASE} has another holder: {error}") from error


def _state(raw: bytes) -> State:
    lease = msgspec.json.decode(raw, type=LeaseObject)
    annotations, spec = lease.metadata.annotations, lease.spec
    return State(
        version=lease.metadata.resource_version,
        holder=spec.holder_identity or "",
        renewed=spec.renew_time,
        ends=_moment(annotations.get(ENDS, "")),
        successor=_decoded(annotations.get(SUCCESSOR, ""), Successor),
        observed=_decoded(annotations.get(OBSERVED, ""), dict[str, int]),
        transitions=spec.lease_transitions or 0,
    )


def _decoded(text: str, kind: type[T]) -> T | None:
    """The value of an annotation in JSON; None without it, and if somebody has written something else."""
    try:
        return decode_annotation(text, kind)
    except msgspec.DecodeError:
        return None


def _moment(text: str) -> datetime | None:
    try:
        return msgspec.convert(text, _Moment)
    except msgspec.ValidationError:
        return None

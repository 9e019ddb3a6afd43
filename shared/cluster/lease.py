"""One decision at a time: a ``coordination.k8s.io`` Lease that one holder has until it is released or runs out.

Every write of the Lease is bound to the resourceVersion it was read at, so of two that reach for it at once one gets
it. A holder that dies keeps it for ``duration`` and no longer. Expiry is judged by ``renewTime`` against our own clock
(Lambda's clocks are kept in step), and :meth:`Lease.check` writes to the Lease before a decision is acted upon, which
fails if anyone has taken it since.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ObjectMeta, Struct
from shared.cluster.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.cluster.client import Client

NAMESPACE = "kube-system"
DURATION = timedelta(seconds=60)
"""Longer than a decision takes, shorter than anybody would wait for one that died."""

_log = logging.getLogger(__name__)


class LeaseHeldError(RuntimeError):
    """Somebody else decides now; come back after ``until``."""

    def __init__(self, holder: str, until: datetime) -> None:
        super().__init__(f"{holder or 'somebody else'} holds the lease until {until:%H:%M:%S}")
        self.holder = holder
        self.until = until


class LeaseLostError(RuntimeError):
    """The lease ran out and may be somebody else's: what was decided under it must not be written."""


class LeaseSpec(Struct):
    """The part of a Lease that says whose it is. ``renew_time`` is a MicroTime: always six digits of a second."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class LeaseObject(Struct):
    """A Lease as the API has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Lease:
    """A lease that is held. Made by :func:`hold`."""

    def __init__(
        self,
        client: Client,
        held: LeaseObject,
        *,
        holder: str,
        now: Callable[[], datetime],
        duration: timedelta,
        renewed: datetime,
    ) -> None:
        self._client = client
        self._version = held.metadata.resource_version
        self._path = LEASES.path(held.metadata.name, namespace=held.metadata.namespace)
        self._now = now
        self._duration = duration
        self._renewed = renewed
        self.holder = holder

    @property
    def until(self) -> datetime:
        """When it runs out if it isn't renewed."""
        return self._renewed + self._duration

    def check(self) -> None:
        """Make sure that it is still ours, and ours for another ``duration``: call it before writing.

        Raises:
            LeaseLostError: it ran out, or was taken.
        """
        now = self._now()
        if now >= self.until:
            raise LeaseLostError(f"the lease ran out at {self.until:%H:%M:%S}, before the decision was written")
        try:
            stored = self._client.patch(
                self._path,
                {"metadata": {"resourceVersion": self._version}, "spec": {"renewTime": micro_time(now)}},
            )
        except (ConflictError, NotFoundError) as error:
            raise LeaseLostError(f"the lease was taken: {error.message}") from error
        self._version = msgspec.json.decode(stored, type=LeaseObject).metadata.resource_version
        self._renewed = now

    def release(self) -> None:
        """Give it back, so that nobody has to wait for its end. One that was lost is left alone."""
        try:
            self._client.patch(
                self._path,
                {
                    "metadata": {"resourceVersion": self._version},
                    "spec": {"holderIdentity": "", "renewTime": micro_time(self._now())},
                },
            )
        except ApiError as error:
            _log.warning("the lease was not released and runs out by itself: %s", error)


@contextlib.contextmanager
def hold(
    client: Client,
    *,
    cluster: str,
    holder: str,
    now: Callable[[], datetime],
    duration: timedelta = DURATION,
    namespace: str = NAMESPACE,
) -> Iterator[Lease]:
    """Hold the lease ``tenon-<cluster>`` while the body runs. ``holder`` is unique to this run (the request's id).

    Raises:
        LeaseHeldError: somebody else has it, or was quicker.
    """
    lease = _acquire(client, holder=holder, now=now, duration=duration, name=lease_name(cluster), namespace=namespace)
    try:
        yield lease
    finally:
        lease.release()


def _acquire(
    client: Client, *, holder: str, now: Callable[[], datetime], duration: timedelta, name: str, namespace: str
) -> Lease:
    path = LEASES.path(name, namespace=namespace)
    moment = now()
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": int(duration.total_seconds()),
        "acquireTime": micro_time(moment),
        "renewTime": micro_time(moment),
    }
    try:
        found = msgspec.json.decode(client.get(path), type=LeaseObject)
    except NotFoundError:
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**spec, "leaseTransitions": 0},
        }
        try:
            stored = client.create(LEASES.path(namespace=namespace), lease)
        except AlreadyExistsError as error:
            raise LeaseHeldError("", moment + duration) from error
    else:
        end = expiry(found.spec)
        current = found.spec.holder_identity or ""
        if current and current != holder and end > moment:
            raise LeaseHeldError(current, end)
        transitions = (found.spec.lease_transitions or 0) + (current != holder)
        try:
            stored = client.patch(
                path,
                {
                    "metadata": {"resourceVersion": found.metadata.resource_version},
                    "spec": {**spec, "leaseTransitions": transitions},
                },
            )
        except (ConflictError, NotFoundError) as error:
            raise LeaseHeldError("", moment + duration) from error
    held = msgspec.json.decode(stored, type=LeaseObject)
    return Lease(client, held, holder=holder, now=now, duration=duration, renewed=moment)


def lease_name(cluster: str) -> str:
    """The Lease's name: EKS allows capitals and underscores in a cluster's name, Kubernetes doesn't."""
    return f"tenon-{cluster.lower().replace('_', '-')}"


def expiry(spec: LeaseSpec) -> datetime:
    """When a lease runs out; one that was never renewed has."""
    if spec.renew_time is None:
        return datetime.min.replace(tzinfo=UTC)
    return spec.renew_time + timedelta(seconds=spec.lease_duration_seconds or 0)


def micro_time(moment: datetime) -> str:
    """Kubernetes' MicroTime, which is parsed with exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

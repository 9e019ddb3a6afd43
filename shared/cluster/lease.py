"""One run at a time: a ``coordination.k8s.io`` Lease with one holder until it is released or expires.

Scheduling decisions are made under :func:`hold`: whoever finds the lease held comes back later. Reconciles that look at
everything anyway are run by :func:`run_exclusively`: whoever finds the lease held asks its holder to run once more.

Every write of the Lease names the resourceVersion that was read, so only one of two concurrent writers acquires it.
After a crash the Lease expires after ``duration``. Expiry is computed from ``renewTime`` and the local clock (Lambda
synchronises clocks), and bounded by :func:`expiry`: a Lease that no function can have written so (renewed in the
future, or for years) holds up nobody. Before a decision is written, :meth:`Lease.check` renews the Lease, which fails
if another holder has acquired it; so it is safe to acquire one too early.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ApiStruct, ObjectMeta, namespaced_ref
from shared.base.struct import Struct
from shared.cluster.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shared.cluster.client import Client

NAMESPACE = "kube-system"
KARPENTER_LEASE = "karpenter-leader-election"
"""That of Karpenter's leader; its chart has it in its own namespace."""
RELAY_LEASE = "tenon-relay"
"""The Lease of the relay function (functions/relay), which needs a right to it by name."""
DURATION = timedelta(seconds=60)
"""Longer than a decision takes, and short enough to wait for after a crash."""

REPEAT_REQUESTED = "tenon.sh/repeat-requested"
"""The annotation by which the holder of a lease is asked to run once more; its value is different each time."""
_MAX_RUNS = 20
_RELEASE_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class LeaseHeldError(RuntimeError):
    """Another function holds the lease; try again after ``until``."""

    def __init__(self, holder: str, until: datetime) -> None:
        super().__init__(self._text(holder, until))
        self.holder = holder
        self.until = until

    def _text(self, holder: str, until: datetime) -> str:
        return f"{holder} holds the lease until {until:%H:%M:%S}"


class LeaseRaceError(LeaseHeldError):
    """Another function acquired the lease between this one's read and write; ``holder`` isn't known."""

    def __init__(self, until: datetime) -> None:
        super().__init__("", until)

    def _text(self, holder: str, until: datetime) -> str:  # noqa: ARG002 - as in the base class
        return "another function acquired the lease at the same moment"


class LeaseLostError(RuntimeError):
    """The lease expired or has another holder: the decision made under it must not be written."""


class LeaseSpec(ApiStruct):
    """The spec of a Lease. ``renew_time`` is a MicroTime: always six digits of a second."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class LeaseObject(ApiStruct):
    """A Lease object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


def read_lease(client: Client, name: str, *, namespace: str = NAMESPACE) -> LeaseObject | None:
    """The Lease as it is now, whoever holds it; None if it doesn't exist.

    Raises:
        ApiError: it can't be read.
    """
    try:
        return msgspec.json.decode(client.get(LEASES.path(name, namespace=namespace)), type=LeaseObject)
    except NotFoundError:
        return None


class Lease:
    """A held lease, returned by :func:`hold`."""

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
        self.annotations = held.metadata.annotations
        """Those that the lease had when it was acquired. Who changes them meanwhile, ends this decision."""
        self.repeat_requested = _repeat_requested(held)
        """The request to run once more that the lease had when it was acquired, "" for none."""

    @property
    def until(self) -> datetime:
        """When it expires unless it is renewed."""
        return self._renewed + self._duration

    def check(self, annotations: Mapping[str, str] = MappingProxyType({})) -> None:
        """Renew the lease for another ``duration``: call it before writing. These annotations are written with it.

        Raises:
            LeaseLostError: it expired, has another holder, or was changed, such as by a pause of the cluster.
        """
        now = self._now()
        if now >= self.until:
            raise LeaseLostError(f"the lease expired at {self.until:%H:%M:%S}, before the decision was written")
        try:
            stored = self._client.patch(
                self._path,
                {
                    "metadata": {
                        "resourceVersion": self._version,
                        **({"annotations": {**annotations}} if annotations else {}),
                    },
                    "spec": {"renewTime": micro_time(now)},
                },
            )
        except (ConflictError, NotFoundError) as error:
            raise LeaseLostError(
                "another function acquired the lease before the decision was written, or it was changed"
            ) from error
        self._version = msgspec.json.decode(stored, type=LeaseObject).metadata.resource_version
        self._renewed = now

    def release(self) -> None:
        """Release the lease, so that the next holder needn't wait until it expires. A lost lease isn't changed."""
        try:
            self._client.patch(
                self._path,
                {
                    "metadata": {"resourceVersion": self._version},
                    "spec": {"holderIdentity": "", "renewTime": micro_time(self._now())},
                },
            )
        except ConflictError:
            if _release(self._client, self._path, self.holder) is None:
                _log.info("%s released no lease: another function has acquired it", self.holder)
        except NotFoundError:
            _log.info("%s released no lease: it is gone", self.holder)
        except ApiError as error:
            _log.warning("releasing the lease failed; it expires by itself: %s", error)


class ExclusiveRun(Struct, kw_only=True):
    """What :func:`run_exclusively` did. ``request_left``: another function asked for a repetition that didn't run."""

    ran: bool
    request_left: bool = False


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
        LeaseHeldError: another function holds it.
        LeaseRaceError: another function acquired it first; a kind of LeaseHeldError.
    """
    lease = _acquire(client, holder=holder, now=now, duration=duration, name=lease_name(cluster), namespace=namespace)
    try:
        yield lease
    finally:
        lease.release()


def run_exclusively(
    client: Client,
    action: Callable[[], None],
    *,
    cluster: str,
    purpose: str,
    holder: str,
    now: Callable[[], datetime],
    duration: timedelta,
    run_time: timedelta,
) -> ExclusiveRun:
    """Run ``action`` under the lease ``tenon-<cluster>-<purpose>``, or have its holder run it again.

    ``action`` runs again while others asked for it, until ``run_time`` has passed. No request is lost: whoever releases
    the lease reads it once more, and whoever asks for a repetition of a lease that was released acquires it. If the
    lease can't be acquired because of an error, ``action`` runs without it.

    Raises:
        ApiError: a repetition can't be requested, or ``action`` raised it.
    """
    name = f"{lease_name(cluster)}-{purpose}"
    end = now() + run_time
    result = ExclusiveRun(ran=False)
    for _ in range(_MAX_RUNS):
        try:
            lease = _acquire(client, holder=holder, now=now, duration=duration, name=name, namespace=NAMESPACE)
        except LeaseHeldError:
            if _request_repeat(client, name, holder=holder, now=now):
                break
            continue
        except ApiError as error:
            _log.warning("the lease can't be acquired, running without it: %s", error)
            action()
            return ExclusiveRun(ran=True)
        try:
            action()
        finally:
            requested = _release(client, LEASES.path(name, namespace=NAMESPACE), holder)
        result = ExclusiveRun(ran=True, request_left=requested not in {None, lease.repeat_requested})
        if not result.request_left or now() >= end:
            break
    return result


def _request_repeat(client: Client, name: str, *, holder: str, now: Callable[[], datetime]) -> bool:
    """Ask the holder of the lease to run once more; False if it has been released meanwhile."""
    path = LEASES.path(name, namespace=NAMESPACE)
    request = {"metadata": {"annotations": {REPEAT_REQUESTED: f"{micro_time(now())} {holder}"}}}
    try:
        stored = msgspec.json.decode(client.patch(path, request), type=LeaseObject)
    except NotFoundError:
        return False
    return bool(stored.spec.holder_identity)


def _release(client: Client, path: str, holder: str) -> str | None:
    """Release the lease; the last request to run once more, None if the lease has another holder or can't be written.

    A request, or a pause of the cluster, changes the resourceVersion of a held lease, so the lease is read again.
    """
    try:
        for _ in range(_RELEASE_ATTEMPTS):
            lease = msgspec.json.decode(client.get(path), type=LeaseObject)
            if lease.spec.holder_identity != holder:
                return None
            released = {
                "metadata": {"resourceVersion": lease.metadata.resource_version},
                "spec": {"holderIdentity": ""},
            }
            with contextlib.suppress(ConflictError):
                client.patch(path, released)
                return _repeat_requested(lease)
    except ApiError as error:
        _log.warning("releasing the lease failed; it expires by itself: %s", error)
    return None


def _repeat_requested(lease: LeaseObject) -> str:
    return lease.metadata.annotations.get(REPEAT_REQUESTED, "")


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
        existing = msgspec.json.decode(client.get(path), type=LeaseObject)
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
            raise LeaseRaceError(moment + duration) from error
    else:
        end = expiry(existing.spec, now=moment, longest=duration)
        current = existing.spec.holder_identity or ""
        if current and current != holder and end > moment:
            raise LeaseHeldError(current, end)
        if current and current != holder:
            _report_implausible(client, existing, now=moment, longest=duration)
        transitions = (existing.spec.lease_transitions or 0) + (current != holder)
        try:
            stored = client.patch(
                path,
                {
                    "metadata": {"resourceVersion": existing.metadata.resource_version},
                    "spec": {**spec, "leaseTransitions": transitions},
                },
            )
        except (ConflictError, NotFoundError) as error:
            raise LeaseRaceError(moment + duration) from error
    held = msgspec.json.decode(stored, type=LeaseObject)
    return Lease(client, held, holder=holder, now=now, duration=duration, renewed=moment)


def _report_implausible(client: Client, lease: LeaseObject, *, now: datetime, longest: timedelta) -> None:
    """Say who held a lease that hasn't expired by its own fields, which say more than a function writes."""
    spec = lease.spec
    seconds = spec.lease_duration_seconds or 0
    if spec.renew_time is None or now - spec.renew_time >= timedelta(seconds=seconds):
        return
    message = (
        f'its holder "{spec.holder_identity}" says that it renewed it at {spec.renew_time.isoformat()} for {seconds} '
        f"s, but no function holds it for more than {longest.total_seconds():.0f} s: it was acquired all the same"
    )
    _log.warning("Lease %s: %s", lease.metadata.name, message)
    ref = namespaced_ref(LEASES.api_version, LEASES.kind, lease.metadata)
    recorder(client).record(ref, "Warning", "LeaseImplausible", message)


def lease_name(cluster: str) -> str:
    """The Lease's name; EKS allows capitals and underscores in a cluster's name, Kubernetes doesn't."""
    return f"tenon-{cluster.lower().replace('_', '-')}"


def expiry(spec: LeaseSpec, *, now: datetime, longest: timedelta) -> datetime:
    """When a lease expires; one that was never renewed has expired.

    Its holder may have died with a clock that was wrong, or another program may have written it. So a renewal more than
    ``longest`` after ``now`` counts for nothing, and a duration for at most ``longest``: it is at most twice that away.
    """
    if spec.renew_time is None or not is_recent(spec.renew_time, now=now, within=longest):
        return datetime.min.replace(tzinfo=UTC)
    return spec.renew_time + timedelta(seconds=min(spec.lease_duration_seconds or 0, longest.total_seconds()))


def is_recent(renewed: datetime, *, now: datetime, within: timedelta, ahead: timedelta | None = None) -> bool:
    """Whether a lease was renewed less than ``within`` ago.

    A renewal in the future is recent up to ``ahead`` (the same, if not given), for clocks that differ. A later one
    isn't, because nobody could tell when its holder died.
    """
    return -(within if ahead is None else ahead) < now - renewed < within


def micro_time(moment: datetime) -> str:
    """A Kubernetes MicroTime, which needs exactly six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

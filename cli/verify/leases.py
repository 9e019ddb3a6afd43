"""Whether Tenon's Leases are acquired and released, and the relay's is renewed: the heartbeat of what runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shared.cluster import resources
from shared.cluster.lease import NAMESPACE, RELAY_LEASE, lease_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.verify.objects import Obj
    from cli.verify.verification import Verification

_SWEEP_LIMIT = timedelta(seconds=150)
"""Two sweeps, and a decision's time."""
_LONGEST_HELD = timedelta(minutes=4)
"""Longer than any function's timeout, and a Lease's duration more: whoever holds it longer is no function of ours."""
_RELAY_SILENT = timedelta(seconds=30)


def problems(run: Verification, *, has_relay_function: bool) -> Iterator[str]:
    """What is wrong with the Leases; it waits for two sweeps where that may mend it."""
    name = lease_name(run.cluster)
    for lease in (name, f"{name}-lifecycle"):
        if not run.wait(lambda lease=lease: _is_used(run, lease), limit=_SWEEP_LIMIT):  # type: ignore[misc]  # its default
            yield _unused(run, lease)
    if has_relay_function and not run.wait(lambda: _relay_is_heard(run), limit=_SWEEP_LIMIT):
        silent = _moment(_spec(run, RELAY_LEASE), "renewTime")
        since = f"since {silent:%H:%M:%S} UTC" if silent is not None else "and never was"
        yield f"the relay is silent: Lease {NAMESPACE}/{RELAY_LEASE} isn't renewed {since}"


def _is_used(run: Verification, name: str) -> bool:
    """Whether somebody has acquired the Lease lately, and whoever holds it may be a function."""
    spec = _spec(run, name)
    acquired = _moment(spec, "acquireTime")
    return acquired is not None and run.now() - acquired <= _LONGEST_HELD


def _unused(run: Verification, name: str) -> str:
    spec = _spec(run, name)
    acquired = _moment(spec, "acquireTime")
    if acquired is None:
        return f"Lease {NAMESPACE}/{name} was never acquired: no sweep has run"
    if holder := spec.get("holderIdentity"):
        return f"Lease {NAMESPACE}/{name} is held by {holder} since {acquired:%H:%M:%S} UTC, so Tenon can't decide"
    return f"Lease {NAMESPACE}/{name} was last acquired at {acquired:%H:%M:%S} UTC: sweeps don't run"


def _relay_is_heard(run: Verification) -> bool:
    spec = _spec(run, RELAY_LEASE)
    renewed = _moment(spec, "renewTime")
    return bool(spec.get("holderIdentity")) and renewed is not None and run.now() - renewed <= _RELAY_SILENT


def _spec(run: Verification, name: str) -> Obj:
    lease = run.get(resources.LEASES, name, namespace=NAMESPACE)
    spec: Obj = lease.get("spec", {}) if lease is not None else {}
    return spec


def _moment(spec: Obj, field: str) -> datetime | None:
    return datetime.fromisoformat(spec[field]) if spec.get(field) else None

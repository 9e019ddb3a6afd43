"""Deterministic names of events and leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from shared.api.meta import ObjectRef
from shared.cluster.events import event_name
from shared.cluster.lease import LeaseSpec, expiry, lease_name, micro_time

POD = ObjectRef(api_version="v1", kind="Pod", namespace="default", name="web", uid="1")
OTHER = ObjectRef(api_version="v1", kind="Pod", namespace="default", name="web", uid="2")


def test_the_same_event_has_the_same_name() -> None:
    assert event_name(POD, "Nominated", "on n1") == event_name(POD, "Nominated", "on n1")
    other_names = [
        event_name(
            ObjectRef(api_version="v1", kind="Pod", namespace="default", name="web", uid="2"), "Nominated", "on n1"
        ),
        event_name(POD, "Evicted", "on n1"),
        event_name(POD, "Nominated", "on n2"),
    ]
    assert event_name(POD, "Nominated", "on n1") not in other_names
    assert len(set(other_names)) == 3


def test_a_long_object_name_gives_a_valid_event_name() -> None:
    long = ObjectRef(api_version="v1", kind="Node", name="n" * 253)
    assert len(event_name(long, "A", "b")) <= 253


def test_a_lease_expires_unless_renewed() -> None:
    renewed = datetime(2026, 11, 21, tzinfo=UTC)
    minute = timedelta(seconds=60)
    spec = LeaseSpec(renew_time=renewed, lease_duration_seconds=60)
    assert expiry(spec, now=renewed, longest=minute) == renewed + minute
    assert expiry(LeaseSpec(holder_identity="x"), now=renewed, longest=minute) < renewed


@given(
    renewed=st.datetimes(timezones=st.timezones() | st.just(timezone(timedelta(hours=-14)))) | st.none(),
    seconds=st.integers(min_value=-(2**31), max_value=2**31 - 1) | st.none(),
)
@example(renewed=datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-14))), seconds=2**31 - 1)
@example(renewed=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), seconds=-(2**31))
@example(renewed=datetime(2026, 11, 21, 0, 0, 59, tzinfo=UTC), seconds=2**31 - 1)
def test_no_lease_is_held_for_longer_than_two_of_its_durations(renewed: datetime | None, seconds: int | None) -> None:
    now, longest = datetime(2026, 11, 21, tzinfo=UTC), timedelta(seconds=60)
    assert expiry(LeaseSpec(renew_time=renewed, lease_duration_seconds=seconds), now=now, longest=longest) <= (
        now + 2 * longest
    )


def test_a_micro_time_always_has_six_digits() -> None:
    assert micro_time(datetime(2026, 11, 21, tzinfo=UTC)) == "2026-11-21T00:00:00.000000Z"


def test_a_leases_name_is_valid_in_kubernetes() -> None:
    assert lease_name("My_Cluster-1") == "tenon-my-cluster-1"

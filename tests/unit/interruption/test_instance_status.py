"""What EC2's status of an instance requires.

Karpenter's specs are in pkg/providers/instancestatus and pkg/controllers/interruption. Covered here: a failed system or
instance check counts after two minutes; healthy, initializing and unknown statuses and failed volumes don't; a
scheduled event counts at once, though all checks pass; a failed check wins over an event.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.interruptions.instance_status import FILTERS, MAX_IMPAIRED_PERCENT, brake, notice_of
from shared.interruptions.notice import Action

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
TWO_MINUTES = timedelta(minutes=2)


def failed(since: timedelta | None) -> dict[str, Any]:
    impaired = {"ImpairedSince": NOW - since} if since is not None else {}
    return {"Status": "impaired", "Details": [{"Name": "reachability", "Status": "failed", **impaired}]}


def status(**parts: Any) -> Any:
    return {"InstanceId": "i-1", **parts}


def event(code: str = "instance-retirement", *, start: datetime = NOW, description: str = "") -> dict[str, Any]:
    return {"Code": code, "NotBefore": start, "Description": description}


@pytest.mark.parametrize("check", ["SystemStatus", "InstanceStatus"])
@pytest.mark.parametrize("since", [TWO_MINUTES, timedelta(hours=1), None])
def test_a_check_that_fails_for_two_minutes_removes_the_node_at_once(check: str, since: timedelta | None) -> None:
    notice = notice_of(status(**{check: failed(since)}), now=NOW)
    assert notice is not None
    assert (notice.action, notice.effective_at, notice.running) == (Action.CORDON_AND_DRAIN, NOW, False)
    assert notice.reason == "InstanceUnhealthy"


@pytest.mark.parametrize(
    "healthy",
    [
        {},
        {"SystemStatus": failed(TWO_MINUTES - timedelta(seconds=1))},
        {"AttachedEbsStatus": failed(timedelta(hours=1))},
        {"SystemStatus": {"Status": "initializing"}, "InstanceStatus": {"Status": "insufficient-data"}},
        {"InstanceStatus": {"Status": "initializing", "Details": [{"Status": "initializing"}]}},
        {"SystemStatus": {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}},
        {"Events": [event(description="[Completed] done"), event(description="[Canceled] not needed")]},
    ],
)
def test_nothing_else_does(healthy: dict[str, Any]) -> None:
    assert notice_of(status(**healthy), now=NOW) is None


def test_a_scheduled_event_is_maintenance_that_starts_at_its_time() -> None:
    start = NOW + timedelta(days=5)
    later = event("system-reboot", start=start + timedelta(days=1))
    notice = notice_of(status(SystemStatus={"Status": "initializing"}, Events=[later, event(start=start)]), now=NOW)
    assert notice is not None
    assert (notice.action, notice.effective_at) == (Action.REPLACE_BEFORE_MAINTENANCE, start)
    assert notice.message == "EC2 has scheduled instance-retirement for 2026-12-01 12:00 UTC"


def test_a_failed_check_wins_over_an_event() -> None:
    notice = notice_of(status(SystemStatus=failed(TWO_MINUTES), Events=[event()]), now=NOW)
    assert notice is not None
    assert notice.action is Action.CORDON_AND_DRAIN


def test_every_status_is_asked_for_by_a_call_of_its_own() -> None:
    assert [[f["Name"] for f in filters] for filters in FILTERS] == [
        ["system-status.status"],
        ["instance-status.status"],
        ["event.code"],
    ]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60), st.sets(st.integers(0, 59)))
def test_the_brake_keeps_a_cluster_and_each_zone_from_losing_more_than_its_share(
    zones: list[str], failing: set[int]
) -> None:
    zone_of = {f"i-{n}": zone for n, zone in enumerate(zones)}
    impaired = {f"i-{n}" for n in failing if n < len(zones)}
    kept = brake(impaired, zone_of)
    removed = [id_ for id_ in impaired if not kept.why_kept(zone_of[id_])]
    for there in (list(zone_of), *([i for i in zone_of if zone_of[i] == z] for z in set(zones))):
        assert len(set(removed) & set(there)) <= -(-len(there) * MAX_IMPAIRED_PERCENT // 100)

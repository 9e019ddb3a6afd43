"""What ARC's answer about the cluster means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.lifecycle.statuses.zonal_shifts import AUTOSHIFT_VALIDITY, applied_shifts, zone_names
from shared.api import labels as names
from shared.api.kubernetes import Node
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassStatus, ResolvedSubnet
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def shift(zone: str, *, ends: timedelta = HOUR, applied: bool = True) -> dict[str, Any]:
    status = "APPLIED" if applied else "NOT_APPLIED"
    return {"awayFrom": zone, "expiryTime": NOW + ends, "appliedStatus": status}


def autoshift(zone: str, *, applied: bool = True) -> dict[str, Any]:
    return {"awayFrom": zone, "startTime": NOW, "appliedStatus": "APPLIED" if applied else "NOT_APPLIED"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, {}),
        ({"zonalShifts": [shift("az1")]}, {"az1": NOW + HOUR}),
        ({"zonalShifts": [shift("az1", applied=False)]}, {}),
        ({"zonalShifts": [shift("az1", ends=timedelta(0))]}, {}),
        ({"zonalShifts": [shift("az1"), shift("az1", ends=2 * HOUR), shift("az2")]}, {"az1": 2, "az2": 1}),
        ({"zonalShifts": [shift("az1")], "autoshifts": [autoshift("az1")]}, {"az1": NOW + HOUR}),
        ({"autoshifts": [autoshift("az1")]}, {"az1": NOW + AUTOSHIFT_VALIDITY}),
        ({"autoshifts": [autoshift("az1", applied=False)]}, {}),
    ],
)
def test_the_shifts_that_are_applied_now_count(answer: dict[str, Any], expected: dict[str, Any]) -> None:
    ends = {zone: NOW + HOUR * end if isinstance(end, int) else end for zone, end in expected.items()}
    assert applied_shifts(answer, {}, now=NOW) == ends


@pytest.mark.parametrize(("minutes", "after"), [(31, timedelta(minutes=31)), (30, AUTOSHIFT_VALIDITY)])
def test_the_end_of_an_autoshift_moves_twice_an_hour(minutes: int, after: timedelta) -> None:
    known = {"az1": NOW + timedelta(minutes=minutes)}
    assert applied_shifts({"autoshifts": [autoshift("az1")]}, known, now=NOW) == {"az1": NOW + after}


def test_zones_are_known_by_the_subnets_of_classes_and_by_nodes() -> None:
    subnets = [ResolvedSubnet(id="s", zone="us-east-1a", zone_id="use1-az4"), ResolvedSubnet(id="t", zone="us-east-1b")]
    node_class = EC2NodeClass(status=EC2NodeClassStatus(subnets=subnets))
    node = Node(metadata=ObjectMeta(name="n", labels={names.ZONE: "us-east-1c", names.ZONE_ID: "use1-az2"}))
    snapshot = Snapshot(taken_at=NOW, nodes=(node, Node()))
    assert zone_names(snapshot, [node_class]) == {"use1-az4": "us-east-1a", "use1-az2": "us-east-1c"}

"""A quota of vCPUs that is reached holds back every offering that shares it and is as large, and no other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.instance_type import beyond_quota, is_covered, is_of_quota, with_quotas

NOW = datetime(2026, 11, 27, tzinfo=UTC)
VCPUS = {"m7i.large": 2, "c7g.2xlarge": 8, "r6a.4xlarge": 16, "g6.xlarge": 4, "p5.48xlarge": 192}
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=tuple(
        Hardware(name=name, arch="amd64", vcpus=vcpus, memory_mib=8192, interfaces=3, addresses=10)
        for name, vcpus in VCPUS.items()
    ),
    offered=dict.fromkeys(VCPUS, ("us-east-1a", "us-east-1b")),
)


def held_back(*marked: tuple[str, str, str]) -> set[tuple[str, str]]:
    """The capacity types and instance types that can't be launched in either zone."""
    unavailable = with_quotas(frozenset(marked), CATALOG)
    return {
        (capacity_type, name)
        for capacity_type in ("spot", "on-demand")
        for name in VCPUS
        if {(capacity_type, name, "us-east-1a"), (capacity_type, name, "us-east-1b")} <= unavailable
    }


def test_types_of_other_families_of_the_quota_are_held_back_for_the_same_capacity_type_only() -> None:
    marked = beyond_quota("spot", "m5.large", 2)
    assert held_back(marked) == {("spot", "m7i.large"), ("spot", "c7g.2xlarge"), ("spot", "r6a.4xlarge")}


def test_smaller_types_may_fit_and_are_tried() -> None:
    assert held_back(beyond_quota("on-demand", "m5.2xlarge", 8)) == {
        ("on-demand", "c7g.2xlarge"),
        ("on-demand", "r6a.4xlarge"),
    }


def test_of_several_marks_of_a_quota_the_smallest_holds() -> None:
    marks = [beyond_quota("spot", "r5.4xlarge", 16), beyond_quota("spot", "c5.2xlarge", 8)]
    assert held_back(*marks) == {("spot", "c7g.2xlarge"), ("spot", "r6a.4xlarge")}


@pytest.mark.parametrize(("name", "held"), [("g6.xlarge", {("spot", "g6.xlarge")}), ("p4d.24xlarge", set())])
def test_families_of_accelerators_have_quotas_of_their_own(name: str, held: set[tuple[str, str]]) -> None:
    assert held_back(beyond_quota("spot", name, 4)) == held


def test_offerings_of_one_type_hold_back_that_type_only() -> None:
    offering = ("spot", "m7i.large", "us-east-1a")
    assert with_quotas(frozenset({offering}), CATALOG) == {offering}
    assert not is_covered("spot", "m7i.large", 2, filter(is_of_quota, {offering}))

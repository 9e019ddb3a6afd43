"""Reboots in place that end between two reads of the cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.export import families
from cli.export.observed_reboots import INVALID, NOT_BACK, NOT_CALLED, SUCCEEDED, ObservedReboots
from shared.api import nodeclaim, reboot
from shared.api.meta import ObjectMeta, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.base.struct import with_fields

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CONDITIONS = with_condition(
    [], nodeclaim.INITIALIZED, status=True, reason="Initialized", now=NOW - MINUTE, generation=1
)
IDLE = NodeClaim(metadata=ObjectMeta(name="c", uid="c"), status=NodeClaimStatus(conditions=CONDITIONS))
REQUESTED = reboot.with_request(IDLE, "why", now=NOW)
ISSUED = reboot.issued(REQUESTED, now=NOW + MINUTE)
BACK = reboot.ended(ISSUED, reboot.SUCCEEDED, "", now=NOW + 3 * MINUTE)


def failed(claim: NodeClaim, *, deleted: bool) -> NodeClaim:
    ended = reboot.ended(claim, reboot.FAILED, "why", now=NOW + 3 * MINUTE)
    metadata = with_fields(ended.metadata, deletion_timestamp=NOW if deleted else None)
    return with_fields(ended, metadata=metadata)


def values(*reads: NodeClaim | None) -> dict[str, float]:
    """What isn't zero after these reads, by metric and result; None: the NodeClaim is gone."""
    observed = ObservedReboots()
    for claim in reads:
        observed.observe([] if claim is None else [claim])
    return {
        f"{s.family.name.removeprefix('karpenter_nodes_')}{s.suffix} {s.labels.get('result', '')}".strip(): s.value
        for s in observed.samples()
        if s.value and s.family != families.DECISIONS
    }


def test_a_reboot_has_its_duration_and_that_of_the_recovery() -> None:
    assert values(IDLE, REQUESTED, ISSUED, BACK, BACK) == {
        "reboots_total succeeded": 1,
        "reboot_duration_seconds_count succeeded": 1,
        "reboot_duration_seconds_sum succeeded": 180,
        "reboot_recovery_duration_seconds_count": 1,
        "reboot_recovery_duration_seconds_sum": 120,
    }


@pytest.mark.parametrize(
    ("reads", "result"),
    [
        ((ISSUED, failed(ISSUED, deleted=True)), NOT_BACK),
        ((REQUESTED, failed(REQUESTED, deleted=True)), NOT_CALLED),
        ((IDLE, failed(REQUESTED, deleted=True)), NOT_CALLED),  # it took less than the interval of reads
        ((REQUESTED, failed(REQUESTED, deleted=False)), INVALID),
        ((IDLE, BACK), SUCCEEDED),
    ],
)
def test_a_reboot_has_the_result_that_karpenter_names(reads: tuple[NodeClaim, ...], result: str) -> None:
    assert {k: v for k, v in values(*reads).items() if k.startswith("reboots_total")} == {f"reboots_total {result}": 1}


@pytest.mark.parametrize("reads", [(BACK, BACK), (ISSUED, None), (BACK, IDLE)])
def test_what_was_there_before_and_what_ends_in_something_else_does_not_count(
    reads: tuple[NodeClaim | None, ...],
) -> None:
    assert values(*reads) == {}


def test_each_reboot_counts() -> None:
    again = reboot.with_request(BACK, "why", now=NOW + 10 * MINUTE)
    twice = reboot.ended(again, reboot.SUCCEEDED, "", now=NOW + 11 * MINUTE)
    assert values(IDLE, ISSUED, BACK, again, twice)["reboots_total succeeded"] == 2


def test_a_request_is_a_decision() -> None:
    observed = ObservedReboots()
    for claim in (IDLE, REQUESTED, ISSUED, BACK):
        observed.observe([claim])
    (decisions,) = (s for s in observed.samples() if s.family == families.DECISIONS)
    assert (decisions.value, decisions.labels) == (1, {"decision": "reboot", "reason": "unhealthy"})

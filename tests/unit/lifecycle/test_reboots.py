"""What a reboot needs next, and what is kept of it on the NodeClaim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from functions.lifecycle.claims.reboot import recovering, tainted, with_deadline
from functions.lifecycle.claims.reboot_rules import Action, reboot_step
from shared.api import labels as names
from shared.api import nodeclaim, reboot
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, NodeSystemInfo, Pod, PodSpec, Toleration
from shared.api.meta import Condition, ObjectMeta, condition
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus, is_rebooting
from shared.base.struct import with_fields

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OLD, NEW = "boot-1", "boot-2"


def claim(
    *,
    reason: str = reboot.REQUESTED,
    requested: timedelta = timedelta(),
    issued: timedelta | None = None,
    annotations: dict[str, str] | None = None,
    expire_after: str = "Never",
    termination_grace_period: str | None = None,
) -> NodeClaim:
    """A NodeClaim whose reboot was requested, and called, so long ago."""
    initialized = Condition(type=nodeclaim.INITIALIZED, status="True", last_transition_time=NOW - 60 * MINUTE)
    if issued is not None:
        initialized = Condition(type=nodeclaim.INITIALIZED, status="Unknown", last_transition_time=NOW - issued)
    rebooting = Condition(
        type=nodeclaim.REBOOTING, status="True", reason=reason, message="why", last_transition_time=NOW - requested
    )
    return NodeClaim(
        metadata=ObjectMeta(name="c", annotations=annotations or {}, creation_timestamp=NOW - 120 * MINUTE),
        spec=NodeClaimSpec(expire_after=expire_after, termination_grace_period=termination_grace_period),
        status=NodeClaimStatus(node_name="n", conditions=[initialized, rebooting]),
    )


def node(boot_id: str = OLD, *, ready: str = "True") -> Node:
    return Node(
        metadata=ObjectMeta(name="n", labels={names.INITIALIZED: "true", names.REGISTERED: "true"}),
        spec=NodeSpec(provider_id="aws:///a/i-1"),
        status=NodeStatus(
            conditions=[Condition(type="Ready", status=ready)], node_info=NodeSystemInfo(boot_id=boot_id)
        ),
    )


def pod(name: str = "web", *, priority: str = "", annotations: dict[str, str] | None = None) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", annotations=annotations or {}),
        spec=PodSpec(node_name="n", priority_class_name=priority),
    )


def grace(text: str) -> dict[str, str]:
    return {names.REBOOT_GRACE_PERIOD: text}


def recorded(called: timedelta | None = timedelta()) -> dict[str, str]:
    """The annotations once the boot ID is recorded; None: by Karpenter, which keeps no time."""
    at = {} if called is None else {names.REBOOT_CALLED_AT: (NOW - called).isoformat()}
    return {names.PRE_BOOT_ID: OLD, **at}


# --- the drain ---


def test_pods_are_evicted_in_groups_and_those_that_must_not_be_are_left() -> None:
    kept = pod("kept", annotations={names.DO_NOT_DISRUPT: "true"})
    critical = pod("dns", priority="system-cluster-critical")
    step = reboot_step(claim(requested=MINUTE), node(), [critical, pod(), kept], now=NOW)
    assert (step.action, [p.metadata.name for p in step.evict]) == (Action.DRAIN, ["web"])
    step = reboot_step(claim(requested=MINUTE), node(), [critical], now=NOW)
    assert [p.metadata.name for p in step.evict] == ["dns"]


def test_pods_that_tolerate_a_disruption_are_not_waited_for() -> None:
    agent = with_fields(pod(), spec=PodSpec(node_name="n", tolerations=[Toleration(operator="Exists")]))
    assert reboot_step(claim(requested=MINUTE), node(), [agent], now=NOW).action is Action.CALL


@pytest.mark.parametrize(
    ("annotations", "requested", "has_pods", "expected"),
    [
        (grace("10m"), 9 * MINUTE, True, Action.DRAIN),
        (grace("10m"), 10 * MINUTE, True, Action.CALL),
        (grace("10m"), 4 * SECOND, False, Action.DRAIN),  # pods may be on their way
        (grace("10m"), 5 * SECOND, False, Action.CALL),
        (grace("1s"), 4 * SECOND, True, Action.DRAIN),
        (grace("1s"), 5 * SECOND, True, Action.CALL),
        (grace("0s"), timedelta(), True, Action.CALL),
        (grace("0"), timedelta(), True, Action.CALL),
        ({}, 600 * MINUTE, True, Action.DRAIN),  # without a bound
        (grace("-5m"), MINUTE, False, Action.REFUSE),
        (grace("Never"), MINUTE, False, Action.REFUSE),
        (grace("soon"), MINUTE, False, Action.REFUSE),
    ],
)
def test_a_drain_ends_when_it_is_done_or_its_time_is_over(
    annotations: dict[str, str], requested: timedelta, *, has_pods: bool, expected: Action
) -> None:
    pods = [pod()] if has_pods else []
    assert reboot_step(claim(annotations=annotations, requested=requested), node(), pods, now=NOW).action is expected


# --- the call ---


@pytest.mark.parametrize(
    ("called", "boot_id", "expected"),
    [
        (timedelta(), OLD, Action.CALL),
        (timedelta(), NEW, Action.ISSUE),  # it has been called before
        (5 * MINUTE, OLD, Action.CALL),
        (5 * MINUTE + SECOND, OLD, Action.FAIL),
        (60 * MINUTE, NEW, Action.ISSUE),
        (None, OLD, Action.CALL),  # prepared by Karpenter, at any time
    ],
)
def test_a_call_is_tried_for_five_minutes_and_not_after_the_node_has_booted(
    called: timedelta | None, boot_id: str, expected: Action
) -> None:
    prepared = claim(requested=60 * MINUTE, annotations=recorded(called))
    assert reboot_step(prepared, node(boot_id), [pod()], now=NOW).action is expected


def test_what_is_recorded_before_the_call_stays_and_a_reboot_is_counted_once() -> None:
    first = reboot.with_call(claim(requested=MINUTE), OLD, now=NOW)
    assert first.metadata.annotations == {
        names.PRE_BOOT_ID: OLD,
        names.REBOOT_CALLED_AT: "2026-05-01T12:00:00Z",
        names.REBOOTS: "2026-05-01T11:59:00Z",
    }
    assert reboot.with_call(first, NEW, now=NOW + MINUTE) == first
    assert reboot.without_call(first, now=NOW).metadata.annotations == {names.REBOOTS: "2026-05-01T11:59:00Z"}


def test_nothing_is_recorded_for_a_nodeclaim_that_is_being_deleted() -> None:
    requested = claim()
    deleted = with_fields(requested, metadata=with_fields(requested.metadata, deletion_timestamp=NOW))
    assert reboot.with_call(deleted, OLD, now=NOW) == deleted
    assert reboot.with_request(deleted, "why", now=NOW) == deleted


# --- the recovery ---


@pytest.mark.parametrize(
    ("issued", "boot_id", "ready", "expected"),
    [
        (MINUTE, OLD, "True", Action.OBSERVE),
        (MINUTE, NEW, "False", Action.OBSERVE),
        (MINUTE, NEW, "True", Action.SUCCEED),
        (20 * MINUTE, OLD, "Unknown", Action.OBSERVE),
        (21 * MINUTE, OLD, "Unknown", Action.FAIL),
        (21 * MINUTE, NEW, "False", Action.FAIL),
        (21 * MINUTE, NEW, "True", Action.SUCCEED),  # it is back, only nobody has looked before
    ],
)
def test_a_node_must_be_ready_with_another_boot_id_within_twenty_minutes(
    issued: timedelta, boot_id: str, ready: str, expected: Action
) -> None:
    rebooting = claim(reason=reboot.ISSUED, requested=30 * MINUTE, issued=issued, annotations=recorded(None))
    assert reboot_step(rebooting, node(boot_id, ready=ready), [], now=NOW).action is expected


def test_a_node_that_was_not_initialized_before_has_twenty_minutes_too() -> None:
    rebooting = claim(reason=reboot.ISSUED, issued=60 * MINUTE, annotations=recorded(MINUTE))
    assert reboot_step(rebooting, node(), [], now=NOW).action is Action.OBSERVE


@pytest.mark.parametrize(
    ("rebooting", "expected"),
    [
        (claim(requested=5 * MINUTE), Action.WAIT),
        (claim(requested=6 * MINUTE), Action.FAIL),
        (claim(reason=reboot.ISSUED, issued=20 * MINUTE), Action.WAIT),
        (claim(reason=reboot.ISSUED, issued=21 * MINUTE), Action.FAIL),
    ],
)
def test_a_node_that_is_gone_is_waited_for_as_long(rebooting: NodeClaim, expected: Action) -> None:
    assert reboot_step(rebooting, None, [], now=NOW).action is expected


def test_a_reason_that_is_not_known_is_left_alone() -> None:
    assert reboot_step(claim(reason="RebootScheduled"), node(), [], now=NOW).action is Action.WAIT


@pytest.mark.parametrize(("expire_after", "expected"), [("100m", Action.EXPIRE), ("115m", Action.CALL)])
def test_the_end_of_an_expiration_wins(expire_after: str, expected: Action) -> None:
    expired = claim(requested=MINUTE, expire_after=expire_after, termination_grace_period="10m")
    assert reboot_step(expired, node(), [], now=NOW).action is expected


# --- what is written ---


def test_the_node_is_closed_from_the_request_until_it_has_booted_and_uninitialized_until_it_is_back() -> None:
    rebooting = claim(reason=reboot.ISSUED, annotations=recorded())
    before = tainted(node())
    assert tainted(before) == before
    down = recovering(before, rebooting)
    assert [t.key for t in down.spec.taints] == [names.REBOOTING_TAINT]
    assert names.INITIALIZED not in down.metadata.labels
    back = recovering(with_fields(before, status=node(NEW).status), rebooting)
    assert (back.spec.taints, names.INITIALIZED in back.metadata.labels) == ([], False)


def test_conditions_from_the_request_to_the_end() -> None:
    before = with_fields(claim(), status=with_fields(claim().status, conditions=claim().status.conditions[:1]))
    requested = reboot.with_request(before, "rebooting for X", now=NOW)
    assert is_rebooting(requested)
    assert reboot.phase(requested) == reboot.REQUESTED
    issued = reboot.issued(requested, now=NOW + MINUTE)
    rebooting = condition(issued.status.conditions, nodeclaim.REBOOTING)
    initialized = condition(issued.status.conditions, nodeclaim.INITIALIZED)
    assert rebooting is not None
    assert initialized is not None
    assert (rebooting.reason, rebooting.message, rebooting.last_transition_time) == (
        reboot.ISSUED,
        "rebooting for X",
        NOW,
    )
    assert (initialized.status, initialized.reason) == ("Unknown", "Rebooting")
    assert reboot.issued_at(issued) == NOW + MINUTE
    ended = reboot.ended(issued, reboot.SUCCEEDED, "back", now=NOW + 2 * MINUTE)
    assert not is_rebooting(ended)
    assert condition(ended.status.conditions, nodeclaim.DISRUPTION_REASON) is None
    assert reboot.ended(ended, reboot.FAILED, "late", now=NOW) == ended


def test_a_request_forgets_the_reboot_before() -> None:
    before = claim(annotations={**recorded(), **grace("1m")})
    assert reboot.with_grace_period(before, None) == before  # it isn't over
    again = reboot.with_grace_period(reboot.ended(before, reboot.SUCCEEDED, "", now=NOW), None)
    assert again.metadata.annotations == {}
    assert reboot.with_grace_period(again, 5 * MINUTE).metadata.annotations == grace("5m")


def test_two_reboots_in_a_day_are_allowed_and_what_cannot_be_read_does_not_count() -> None:
    def with_history(*texts: str) -> NodeClaim:
        return claim(annotations={names.REBOOTS: ",".join(texts)})

    today, yesterday, too_old = "2026-05-01T10:00:00Z", "2026-04-30T12:00:01Z", "2026-04-30T12:00:00Z"
    assert reboot.may_reboot(with_history(today, too_old, "soon"), now=NOW)
    assert not reboot.may_reboot(with_history(today, yesterday), now=NOW)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (grace("10m"), "2026-05-01T12:10:00Z"),
        ({**grace("10m"), names.TERMINATION_TIMESTAMP: "2026-05-01T12:03:00Z"}, "2026-05-01T12:03:00Z"),
        ({**grace("10m"), names.TERMINATION_TIMESTAMP: "2026-05-01T15:00:00Z"}, "2026-05-01T12:10:00Z"),
        ({}, None),
        (grace("soon"), None),
    ],
)
def test_a_reboot_that_failed_bounds_the_drain_as_before(annotations: dict[str, str], expected: str | None) -> None:
    after = with_deadline(claim(annotations=annotations), now=NOW)
    assert after.metadata.annotations.get(names.TERMINATION_TIMESTAMP) == expected

"""What one message of AWS, true or forged, may name: one instance, or several that EC2 must confirm one by one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given

from shared.interruptions.event_verification import InstanceFacts, Verdict, verify
from shared.interruptions.notice import Action, Evidence, MalformedEventError
from shared.interruptions.parser import OF_GROUPS, OF_INSTANCES, Event, Parsers, parse
from tests.fuzz.inputs import inputs
from tests.fuzz.parsers import EVENTS
from tests.fuzz.values import NOW


def check(event: Event) -> None:
    notice = event.notice
    if notice.action is Action.NO_ACTION:
        return
    assert len(notice.instance_ids) <= 1 or notice.evidence is Evidence.SCHEDULED
    if notice.evidence is Evidence.SCHEDULED:
        unlisted = InstanceFacts(state="running", capacity_type="spot")
        for facts in (None, unlisted):
            assert verify(notice.evidence, facts, age=NOW - event.time) in {Verdict.PENDING, Verdict.CONTRADICTED}


@given(body=inputs(EVENTS))
def test_a_message_names_one_instance_or_such_as_ec2_must_confirm(body: str) -> None:
    for parsers in (OF_INSTANCES, OF_GROUPS):
        with contextlib.suppress(MalformedEventError):
            check(parse(body, parsers))


@pytest.mark.parametrize(("parsers", "kinds"), [(OF_INSTANCES, 5), (OF_GROUPS, 3)])
def test_the_samples_have_every_kind(parsers: Parsers, kinds: int) -> None:
    parsed = []
    for body in EVENTS:
        with contextlib.suppress(MalformedEventError):
            parsed.append(parse(body, parsers))
    assert len({event.notice.evidence for event in parsed}) == len(parsed) == kinds == len(parsers)
    for event in parsed:
        check(event)

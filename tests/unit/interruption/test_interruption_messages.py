"""How AWS's documented samples are parsed, and how malformed events are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.interruptions.notice import Action, MalformedEventError
from shared.interruptions.parser import parse

Sample = Callable[[str], dict[str, Any]]


def test_a_spot_interruption_warning_takes_effect_in_two_minutes_and_makes_the_offering_unavailable(
    sample: Sample,
) -> None:
    event = parse(json.dumps(sample("spot_interruption")))
    assert event.notice.instance_ids == ("i-1234567890abcdef0",)
    assert event.notice.action is Action.CORDON_AND_DRAIN
    assert event.notice.effective_at == datetime(2021, 2, 3, 14, 7, 6, tzinfo=UTC)
    assert event.notice.offering_unavailable


def test_a_rebalance_recommendation_has_no_time_of_effect(sample: Sample) -> None:
    notice = parse(json.dumps(sample("rebalance_recommendation"))).notice
    assert (notice.action, notice.effective_at, notice.offering_unavailable) == (
        Action.APPLY_REBALANCE_POLICY,
        None,
        False,
    )


def test_a_capacity_reservation_interruption_takes_effect_at_the_stated_time(sample: Sample) -> None:
    event = sample("capacity_reservation_interruption")
    notice = parse(json.dumps(event)).notice
    assert notice.action is Action.CORDON_AND_DRAIN
    assert notice.effective_at == datetime(2025, 11, 20, 10, 10, tzinfo=UTC)
    del event["detail"]["instance-termination-time"]
    assert parse(json.dumps(event)).notice.effective_at == datetime(2025, 11, 20, 10, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "action", "within"),
    [
        ("pending", Action.NO_ACTION, 0),
        ("running", Action.NO_ACTION, 0),
        ("stopping", Action.CORDON_AND_DRAIN, 120),
        ("stopped", Action.CORDON_AND_DRAIN, 0),
        ("shutting-down", Action.CORDON_AND_DRAIN, 0),
        ("terminated", Action.CORDON_AND_DRAIN, 0),
    ],
)
def test_stopping_and_ended_instances_are_drained(sample: Sample, state: str, action: Action, within: int) -> None:
    event = sample("state_change")
    event["detail"]["state"] = state
    read = parse(json.dumps(event))
    assert read.notice.action is action
    assert read.notice.effective_at == read.time + timedelta(seconds=within)


def test_scheduled_maintenance_takes_effect_at_its_start_time(sample: Sample) -> None:
    notice = parse(json.dumps(sample("scheduled_change"))).notice
    assert notice.instance_ids == ("i-12345678",)
    assert notice.action is Action.REPLACE_BEFORE_MAINTENANCE
    assert notice.effective_at == datetime(2016, 6, 5, 15, 10, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "change",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "issue"},
        {"statusCode": "closed"},
        {"affectedEntities": []},
        {"affectedEntities": [{"entityValue": "vol-12345678"}]},
        {"affectedEntities": [{"entityValue": "i-12345678", "status": "RESOLVED"}]},
    ],
)
def test_health_events_without_affected_instances_need_no_action(sample: Sample, change: dict[str, Any]) -> None:
    event = sample("scheduled_change")
    event["detail"].update(change)
    assert parse(json.dumps(event)).notice.action is Action.NO_ACTION


@pytest.mark.parametrize(
    "kind",
    [
        "spot_interruption",
        "rebalance_recommendation",
        "state_change",
        "capacity_reservation_interruption",
        "scheduled_change",
    ],
)
@pytest.mark.parametrize("field", ["source", "detail-type", "time", "detail"])
def test_an_event_without_an_envelope_field_is_malformed(sample: Sample, kind: str, field: str) -> None:
    event = sample(kind)
    del event[field]
    with pytest.raises(MalformedEventError):
        parse(json.dumps(event))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("spot_interruption", {"detail": {}}, "instance-id"),
        ("spot_interruption", {"detail": {"instance-id": 7}}, "instance-id"),
        ("spot_interruption", {"detail": None}, "detail"),
        ("spot_interruption", {"detail-type": "EC2 Spot Instance Request Fulfillment"}, "Fulfillment"),
        ("spot_interruption", {"source": "aws.rds"}, "aws.rds"),
        ("spot_interruption", {"time": "yesterday"}, "time"),
        ("spot_interruption", {"time": "2021-02-03T14:05:06"}, "time zone"),
        ("state_change", {"detail": {"instance-id": "i-1"}}, "state"),
        (
            "capacity_reservation_interruption",
            {"detail": {"instance-id": "i-1", "instance-termination-time": "soon"}},
            "soon",
        ),
        (
            "capacity_reservation_interruption",
            {"detail": {"instance-id": "i-1", "instance-termination-time": "2025-01-01T00:00:00"}},
            "zone",
        ),
    ],
)
def test_the_error_names_the_malformed_field(sample: Sample, kind: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedEventError, match=message):
        parse(json.dumps({**sample(kind), **change}))


@pytest.mark.parametrize("change", [{"affectedEntities": "i-1"}, {"startTime": "soon"}])
def test_a_health_event_with_invalid_instances_or_start_time_is_malformed(
    sample: Sample, change: dict[str, Any]
) -> None:
    event = sample("scheduled_change")
    event["detail"].update(change)
    with pytest.raises(MalformedEventError):
        parse(json.dumps(event))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(body=st.text() | json_values.map(json.dumps))
def test_any_other_body_is_malformed(body: str) -> None:
    with pytest.raises(MalformedEventError):
        parse(body)


@given(
    kind=st.sampled_from(
        [
            ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
            ("aws.ec2", "EC2 Instance State-change Notification"),
            ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
            ("aws.health", "AWS Health Event"),
        ]
    ),
    detail=st.dictionaries(
        st.sampled_from(
            [
                "instance-id",
                "state",
                "instance-termination-time",
                "service",
                "eventTypeCategory",
                "affectedEntities",
                "startTime",
            ]
        ),
        json_values | st.sampled_from(["EC2", "scheduledChange", "stopping"]),
    ),
)
def test_any_detail_of_a_known_type_is_parsed_or_malformed(kind: tuple[str, str], detail: dict[str, Any]) -> None:
    body = json.dumps({"source": kind[0], "detail-type": kind[1], "time": "2021-02-03T14:05:06Z", "detail": detail})
    try:
        notice = parse(body).notice
    except MalformedEventError:
        return
    assert all(notice.instance_ids)

"""EventBridge's rules match AWS's documented samples and no similar events, by this test's own matching."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from infra.cluster.event_rules import INTERRUPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

RULES = {
    "SpotInterruption": "spot_interruption",
    "Rebalance": "rebalance_recommendation",
    "StateChange": "state_change",
    "ReservationInterruption": "capacity_reservation_interruption",
    "Health": "scheduled_change",
}
SIMILAR_EVENTS: dict[str, dict[str, Any]] = {
    "another service's event of that name": {"source": "aws.ecs"},
    "a custom event in AWS's name, but for its source": {"source": "my.ec2"},
    "EC2's fleets": {"detail-type": "EC2 Fleet Instance Change"},
    "EC2's spot fleets": {"detail-type": "EC2 Spot Fleet Instance Change"},
    "a spot request": {"detail-type": "EC2 Spot Instance Request Fulfillment"},
    "the longer name": {"detail-type": "EC2 Interruptible Capacity Reservation Instance Interruption Warning"},
    "a reclamation": {"detail-type": "EC2 Interruptible Capacity Reservation Allocation Reclamation Completed"},
    "a capacity block": {"detail-type": "Capacity Block Expiration Warning"},
    "an API call": {"detail-type": "AWS API Call via CloudTrail"},
    "abuse": {"detail-type": "AWS Health Abuse Event"},
    "other letters": {"detail-type": "ec2 spot instance interruption warning"},
}
STATES = {"pending": False, "running": False, "stopping": True, "stopped": True, "shutting-down": True}


def matches(pattern: Any, value: Any) -> bool:
    """EventBridge's exact matching: the fields of the pattern must exist; an array's values are alternatives."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(k in value and matches(p, value[k]) for k, p in pattern.items())
    assert isinstance(pattern, list)
    assert not any(isinstance(p, dict) for p in pattern), "operators are not used by these rules"
    values = value if isinstance(value, list) else [value]
    return any(p == v and type(p) is type(v) for p in pattern for v in values)


def pattern(rule: str) -> dict[str, Any]:
    """The pattern as in the template."""
    return {key.replace("_", "-"): value for key, value in INTERRUPTIONS[rule].items()}


def matching_rules(event: dict[str, Any]) -> set[str]:
    return {rule for rule in INTERRUPTIONS if matches(pattern(rule), event)}


def test_every_rule_has_a_documented_sample() -> None:
    assert set(RULES) == set(INTERRUPTIONS)


@pytest.mark.parametrize(("rule", "kind"), RULES.items())
def test_a_documented_sample_matches_only_its_rule(
    sample: Callable[[str], dict[str, Any]], rule: str, kind: str
) -> None:
    assert matching_rules(sample(kind)) == {rule}


@pytest.mark.parametrize("kind", RULES.values())
@pytest.mark.parametrize("similar", SIMILAR_EVENTS)
def test_similar_events_match_no_rule(sample: Callable[[str], dict[str, Any]], kind: str, similar: str) -> None:
    assert matching_rules({**sample(kind), **SIMILAR_EVENTS[similar]}) == set()


@pytest.mark.parametrize(("state", "wanted"), STATES.items())
def test_state_changes_of_starting_instances_match_no_rule(
    sample: Callable[[str], dict[str, Any]], state: str, *, wanted: bool
) -> None:
    event = sample("state_change")
    event["detail"]["state"] = state
    assert matching_rules(event) == ({"StateChange"} if wanted else set())


@pytest.mark.parametrize(
    "change", [{"service": "RDS"}, {"eventTypeCategory": "issue"}, {"eventTypeCategory": "accountNotification"}]
)
def test_health_events_of_other_services_and_categories_match_no_rule(
    sample: Callable[[str], dict[str, Any]], change: dict[str, str]
) -> None:
    event = sample("scheduled_change")
    event["detail"].update(change)
    assert matching_rules(event) == set()


def test_moto_matches_the_rules_like_this_test(sample: Callable[[str], dict[str, Any]]) -> None:
    from moto.events.models import EventPattern  # noqa: PLC0415 - slow to import, and only this test needs it

    events = [sample(kind) for kind in RULES.values()]
    events += [{**sample(kind), **change} for kind in RULES.values() for change in SIMILAR_EVENTS.values()]
    for rule in INTERRUPTIONS:
        theirs = EventPattern.load(json.dumps(pattern(rule)))
        assert [theirs.matches_event(e) for e in events] == [matches(pattern(rule), e) for e in events]

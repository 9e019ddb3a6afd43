"""What a node class selects although EC2's answers leave it out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.api.meta import is_true
from shared.base import aws
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClassStatus

Account = Any
"""The fixture's class: tests can't import from conftest."""
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
RESOURCES = {
    "subnets": ("DescribeSubnets", "Subnets", "SubnetsReady"),
    "security_groups": ("DescribeSecurityGroups", "SecurityGroups", "SecurityGroupsReady"),
    "amis": ("DescribeImages", "Images", "AMIsReady"),
}


def selected(status: EC2NodeClassStatus, field: str) -> set[str]:
    return {resource.id for resource in getattr(status, field)}


class LeftOut:
    """Makes EC2 leave resources out of the next answers of an operation: the first one of each, or all."""

    def __init__(self, field: str, *, answers: int, every: bool = False) -> None:
        operation, self._key, _ = RESOURCES[field]
        self._answers, self._every = answers, every
        aws.ec2().meta.events.register(f"after-call.ec2.{operation}", self._leave_out)

    def _leave_out(self, parsed: dict[str, Any], **_: object) -> None:
        if self._answers > 0:
            self._answers -= 1
            parsed[self._key] = [] if self._every else parsed[self._key][1:]


def at_minute(account: Account, node_class: Any, status: EC2NodeClassStatus, minute: int) -> EC2NodeClassStatus:
    """The status that a look at this minute gives a class with such a status."""
    resolved = with_fields(node_class, status=status)
    looked_at = NOW + timedelta(minutes=minute)
    return account.status(resolved, now=looked_at)  # type: ignore[no-any-return]  # the fixture's


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("field", RESOURCES)
def test_a_resource_that_two_answers_leave_out_stays_selected(account: Account, field: str, *, every: bool) -> None:
    node_class = account.node_class()
    first = account.status(node_class, now=NOW)
    LeftOut(field, answers=2, every=every)
    second = at_minute(account, node_class, first, 5)
    assert selected(second, field) == selected(first, field)
    assert is_true(second.conditions, "Ready")
    third = at_minute(account, node_class, second, 6)
    assert selected(third, field) == selected(first, field)


@pytest.mark.parametrize("field", RESOURCES)
def test_a_resource_that_is_gone_for_two_looks_is_no_longer_selected(account: Account, field: str) -> None:
    node_class = account.node_class()
    first = account.status(node_class, now=NOW)
    LeftOut(field, answers=100, every=True)
    second = at_minute(account, node_class, first, 5)
    assert is_true(second.conditions, "Ready")
    third = at_minute(account, node_class, second, 6)
    assert selected(third, field) == set()
    assert not is_true(third.conditions, RESOURCES[field][2])


def test_a_new_class_is_looked_up_twice_as_an_answer_may_leave_a_resource_out(account: Account) -> None:
    LeftOut("subnets", answers=1)
    status = account.status(account.node_class())
    assert {s.zone for s in status.subnets} == set(account.subnets)

"""What a warm process remembers of node classes that were changed: nothing of those of hours ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from shared.base import runtime
from shared.base.struct import with_fields
from shared.launch.node_class.deselection import unconfirmed

Account = Any
"""The fixture's class: tests can't import from conftest."""
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
STEP = timedelta(minutes=15)
CHANGES = 12


def entries() -> dict[str, int]:
    """The lengths of the maps in the process's cache."""
    return {name: len(value) for name, value in runtime.current().cache.items() if isinstance(value, dict)}


def change_and_launch(account: Account, number: int) -> None:
    """A class with another tag: another status, another launch template."""
    account.now = NOW + number * STEP
    node_class = account.node_class(tags={"revision": str(number)})
    for _ in range(2):  # the second look is remembered: the spec is known by then
        status = account.status(node_class, now=account.now)
        node_class = with_fields(node_class, status=status)
    claim = account.claim(f"claim-{number}")
    types = [account.instance_type("m5.large", on_demand=0.1)]
    with runtime.using(with_fields(runtime.current(), now=lambda: account.now)):
        account.launch([claim], types, node_class=node_class, now=account.now)


def test_a_class_that_changes_each_quarter_of_an_hour_leaves_nothing_behind(account: Account) -> None:
    change_and_launch(account, 0)
    before = entries()
    assert before["nodeclass:status"] == before["launch-templates"] == 1
    for number in range(1, CHANGES):
        change_and_launch(account, number)
    assert entries() == before


def test_resources_that_a_changed_class_missed_are_forgotten() -> None:
    with runtime.using(runtime.Runtime(environ={}, cache={})):
        for number in range(CHANGES):
            unconfirmed(runtime.current(), f"default/{number}", ["subnet-1"], now=NOW + number * STEP)
        assert entries()["nodeclass:missing"] == timedelta(hours=1) // STEP

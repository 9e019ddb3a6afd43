"""What all functions remember together in DynamoDB: offerings without capacity, and the calls they have left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from shared import aws, host
from shared.instances import unavailable
from shared.launch.budget import BURST, REFILL, Budget
from shared.launch.fleet import Launched

TABLE = "demo"
M5 = ("spot", "m5.large", "us-east-1a")

Account = Any
"""The fixture's class: tests can't import from conftest."""


@pytest.fixture
def table(account: Account) -> Account:
    aws.dynamodb().create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )
    return account


def test_an_offering_is_unavailable_for_three_minutes(table: Account) -> None:  # noqa: ARG001 (makes the table)
    now = host.current().now()
    unavailable.mark(aws.dynamodb(), TABLE, M5, reason="InsufficientInstanceCapacity", now=now)
    assert unavailable.current(aws.dynamodb(), TABLE, now=now + timedelta(seconds=179)) == {M5}
    assert unavailable.current(aws.dynamodb(), TABLE, now=now + timedelta(seconds=181)) == frozenset()


def test_marking_again_starts_the_time_anew(table: Account) -> None:  # noqa: ARG001 (makes the table)
    now = host.current().now()
    for later in (0, 100):
        unavailable.mark(aws.dynamodb(), TABLE, M5, reason="Unsupported", now=now + timedelta(seconds=later))
    assert unavailable.current(aws.dynamodb(), TABLE, now=now + timedelta(seconds=250)) == {M5}


def test_two_functions_share_one_budget(table: Account) -> None:  # noqa: ARG001 (makes the table)
    now = host.current().now()
    functions = [Budget(aws.dynamodb(), TABLE), Budget(aws.dynamodb(), TABLE)]
    granted = [functions[i % 2].take(now=now) for i in range(10)]
    assert sum(granted) == BURST
    later = now + timedelta(seconds=1)
    assert sum(functions[i % 2].take(now=later) for i in range(10)) == REFILL


def test_200_throttled_answers_stay_within_the_budget_and_all_run_in_the_end(table: Account) -> None:
    budget = Budget(aws.dynamodb(), TABLE)
    table.fleets.refusals = [("RequestLimitExceeded", "Request limit exceeded.")] * 200
    node_class, types = table.ready(), [table.instance_type("m5.large", spot=0.03)]
    claims = [table.claim(f"web-{i}", group=f"group-{i % 20}") for i in range(100)]
    start = now = host.current().now()
    done: dict[str, str] = {}
    while len(done) < len(claims):
        waiting = [c for c in claims if c.name not in done]
        results = table.launch(waiting, types, node_class=node_class, budget=budget, now=now)
        done |= {r.claim_name: r.instance_id for r in results if isinstance(r, Launched)}
        now += timedelta(seconds=20)
        assert table.fleets.calls <= BURST + (now - start).total_seconds() * REFILL
    assert len(set(done.values())) == len(table.running()) == 100
    assert table.fleets.calls == 200 + 20

"""Free addresses of subnets, as EC2 says them, are remembered for some minutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from shared.base import aws, runtime
from shared.launch.ec2_cloud_provider import read_conditions
from shared.launch.node_class.free_addresses import TTL, ShortSubnet, remember, short_subnets

Account = Any
"""The fixture's class: tests can't import from conftest."""


def test_the_subnets_with_fewer_addresses_than_needed_are_short(account: Account) -> None:
    small = account.add_subnet("us-east-1a", "10.0.240.0/28")  # 16 addresses, of which AWS keeps five
    subnets = account.ready().status.subnets
    assert small in {s.id for s in subnets}
    expected = ShortSubnet(id=small, zone="us-east-1a", free_addresses=11)
    assert short_subnets(aws.ec2(), subnets, needed=12) == (expected,)
    assert short_subnets(aws.ec2(), subnets, needed=11) == ()
    assert str(expected) == f"{small} in us-east-1a has 11 free addresses"


def test_a_single_zone_needs_no_call(account: Account) -> None:
    subnets = [s for s in account.ready().status.subnets if s.zone == "us-east-1a"]
    assert short_subnets(None, subnets, needed=100_000) == ()  # type: ignore[arg-type] # any call would fail


def test_short_subnets_are_forgotten_unless_they_are_repeated(table: str) -> None:
    now = runtime.current().now()
    short = ShortSubnet(id="subnet-1", zone="us-east-1a", free_addresses=0)
    remember(aws.dynamodb(), table, [short], now=now)
    in_time = read_conditions(aws.dynamodb(), table, commitments=None, now=now + TTL - timedelta(seconds=1))
    assert in_time.short_subnets == (short,)
    assert read_conditions(aws.dynamodb(), table, commitments=None, now=now + TTL).short_subnets == ()

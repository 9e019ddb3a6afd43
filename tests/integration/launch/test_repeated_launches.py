"""Launches that are repeated after a function died, or by another run: no NodeClaim gets a second instance."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels
from shared.base import aws
from shared.cloud_provider import LaunchedInstance
from shared.launch.instances import terminate

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

    Types = tuple[InstanceType, ...]

Account = Any
"""The fixture's class: tests can't import from conftest."""

SPOT_OR_NOT = (labels.CAPACITY_TYPE, "In", ["spot", "on-demand"])


def test_a_repeated_launch_launches_nothing_and_assigns_the_same_instances(account: Account, types: Types) -> None:
    claims = [account.claim(f"web-{i}") for i in range(3)]
    before = account.launch(claims, types)
    account.restart()
    assert account.launch(claims, types) == before
    assert len(account.running()) == 3


def test_a_repeated_launch_with_other_prices_finds_the_instances_by_tag(account: Account, types: Types) -> None:
    claims = [account.claim(f"web-{i}") for i in range(3)]
    before = account.launch(claims, types)
    account.restart()
    cheaper = (account.instance_type("c5.large", spot=0.02, on_demand=0.085), *types)
    after = account.launch(claims, cheaper)
    assert {r.claim_name: r.instance_id for r in after} == {r.claim_name: r.instance_id for r in before}
    assert len(account.running()) == 3


@pytest.mark.parametrize("recorded", [["web-0"], ["web-2"], ["web-0", "web-3"], ["web-1", "web-2", "web-3"]])
def test_claims_of_a_run_that_died_get_the_instances_that_it_would_have_recorded(
    account: Account, types: Types, recorded: list[str]
) -> None:
    claims = [account.claim(f"web-{i}") for i in range(4)]
    before = {r.claim_name: r.instance_id for r in account.launch(claims, types)}
    account.recorded = {name: before[name] for name in recorded}
    account.restart()
    after = account.launch([c for c in claims if c.name not in recorded], types)
    assert {r.claim_name: r.instance_id for r in after} == {n: i for n, i in before.items() if n not in recorded}
    assert len(account.running()) == 4


def test_a_claim_that_another_run_recorded_meanwhile_keeps_its_instance(account: Account, types: Types) -> None:
    claims = [account.claim(f"web-{i}") for i in range(4)]
    before = {r.claim_name: r.instance_id for r in account.launch(claims, types)}
    account.recorded = {"web-0": before["web-0"], "web-2": before["web-2"]}
    account.restart()
    after = account.launch(claims[1:], types)
    assert {r.claim_name: r.instance_id for r in after} == {n: i for n, i in before.items() if n != "web-0"}


def test_a_recorded_instance_that_has_ended_stands_for_no_other_claims(account: Account, types: Types) -> None:
    """Otherwise a claim whose instance EC2 doesn't show yet would get a second one."""
    claims = [account.claim(f"web-{i}") for i in range(3)]
    before = account.launch(claims, types)
    account.recorded = {"web-0": before[0].instance_id}
    terminate(aws.ec2(), [before[0].instance_id])
    account.restart()
    after = account.launch(claims[1:], types)
    assert [r.instance_id for r in after] == [r.instance_id for r in before[1:]]
    assert account.fleets.calls == 2


def test_missing_instances_are_launched_once_however_often_it_is_retried(account: Account, types: Types) -> None:
    claims = [account.claim(f"web-{i}") for i in range(3)]
    before = account.launch(claims, types)
    account.recorded = {"web-0": before[0].instance_id}
    terminate(aws.ec2(), [before[2].instance_id])
    for _ in range(3):
        account.restart()
        after = account.launch(claims[1:], types)
        assert all(isinstance(r, LaunchedInstance) for r in after)
    assert len(account.running()) == 3


@pytest.mark.parametrize(
    ("call", "nth"),
    [
        ("CreateLaunchTemplate", 1),
        ("CreateLaunchTemplate", 2),
        ("CreateFleet", 1),
    ],
)
@pytest.mark.parametrize("moment", ["before-call", "after-call"])
def test_dying_at_any_call_leaves_exactly_one_instance_a_claim(
    account: Account, types: Types, call: str, moment: str, nth: int
) -> None:
    claims = [account.claim(f"web-{i}") for i in range(3)]
    node_class = account.ready()
    seen = 0

    class Died(Exception):  # noqa: N818 (the process, not an error)
        pass

    def die(**_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            raise Died

    for client in (aws.ec2(), aws.ec2_without_retries()):
        client.meta.events.register_last(f"{moment}.ec2.{call}", die)
    with contextlib.suppress(Died):
        account.launch(claims, types, node_class=node_class)
    account.restart()
    after = account.launch(claims, types, node_class=node_class)
    assert all(isinstance(r, LaunchedInstance) for r in after)
    assert len({r.instance_id for r in after}) == len(account.running()) == 3

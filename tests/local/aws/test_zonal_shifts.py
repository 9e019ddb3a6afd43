"""ARC's zonal shifts, as the local cloud answers for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.local.aws.environment import Environment

ZONE = "use1-az6"


@pytest.fixture
def arn(env: Environment) -> str:
    env.cloud.prepare(cluster="demo", version="1.34", endpoint="https://127.0.0.1:1", certificate_authority="YQ==")
    (registered,) = env.cloud.zonal_shifts.resources
    assert registered.endswith(":cluster/demo")
    return registered


def arc() -> Any:
    return boto3.client("arc-zonal-shift")


def start(arn: str, *, zone: str = ZONE, expires_in: str = "1h") -> Any:
    return arc().start_zonal_shift(resourceIdentifier=arn, awayFrom=zone, expiresIn=expires_in, comment="test")


def applied(arn: str) -> list[tuple[str, str]]:
    answer = arc().get_managed_resource(resourceIdentifier=arn)
    return [(s["awayFrom"], s["appliedStatus"]) for s in (*answer["zonalShifts"], *answer["autoshifts"])]


def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as error:
        call()
    response: Any = error.value.response
    return response["Error"]["Code"], response.get("reason", "")


def test_a_shift_is_applied_until_its_expiry(env: Environment, arn: str) -> None:
    started = start(arn, expires_in="90m")
    assert started["status"] == "ACTIVE"
    assert started["expiryTime"] - started["startTime"] == timedelta(minutes=90)
    assert applied(arn) == [(ZONE, "APPLIED")]
    assert env.cloud.zonal_shifts.shifted_away() == {"us-east-1a"}
    env.clock.sleep(timedelta(minutes=90).total_seconds())
    assert applied(arn) == []
    assert env.cloud.zonal_shifts.shifted_away() == frozenset()


def test_a_shift_is_extended_and_cancelled_once(env: Environment, arn: str) -> None:
    shift = start(arn)["zonalShiftId"]
    updated = arc().update_zonal_shift(zonalShiftId=shift, expiresIn="72h")
    assert abs(updated["expiryTime"] - env.clock.now() - timedelta(hours=72)) < timedelta(seconds=1)
    assert arc().cancel_zonal_shift(zonalShiftId=shift)["status"] == "CANCELED"
    assert applied(arn) == []
    cancelled_twice = refused(lambda: arc().cancel_zonal_shift(zonalShiftId=shift))
    assert cancelled_twice == ("ConflictException", "ZonalShiftStatusNotActive")


def test_a_users_shift_takes_precedence_over_an_autoshift(env: Environment, arn: str) -> None:
    env.cloud.zonal_shifts.autoshift("us-east-1b")
    assert [status for _, status in applied(arn)] == ["APPLIED"]
    start(arn)
    assert [status for _, status in applied(arn)] == ["APPLIED", "NOT_APPLIED"]
    assert env.cloud.zonal_shifts.shifted_away() == {"us-east-1a"}


@pytest.mark.parametrize(
    ("given", "code", "reason"),
    [
        ({"zone": "us-east-1a"}, "ValidationException", "InvalidAz"),
        ({"expires_in": "73h"}, "ValidationException", "InvalidExpiresIn"),
        ({"expires_in": "1d"}, "ValidationException", "InvalidExpiresIn"),
    ],
)
@pytest.mark.usefixtures("env")
def test_what_arc_refuses(arn: str, given: dict[str, str], code: str, reason: str) -> None:
    assert refused(lambda: start(arn, **given)) == (code, reason)


@pytest.mark.usefixtures("env")
def test_one_shift_at_a_time_and_only_of_registered_resources(arn: str) -> None:
    start(arn)
    assert refused(lambda: start(arn, zone="use1-az1")) == ("ConflictException", "ZonalShiftAlreadyExists")
    for call in (lambda: start(f"{arn}-other"), lambda: applied(f"{arn}-other")):
        assert refused(call)[0] == "ResourceNotFoundException"

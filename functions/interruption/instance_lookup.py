"""What EC2 says of the machines that events name: one question for a whole batch, and no answer is no objection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from functions.interruption.event_verification import Seen
from functions.interruption.messages.notice import Basis
from shared import aws
from shared.api import labels as names
from shared.launch import instances

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

_VALUES_A_FILTER = 200
_OF_SPOT = frozenset({Basis.SPOT, Basis.SPOT_TAKEN})


def ask(named: Mapping[str, Collection[Basis]], *, logger: Logger) -> dict[str, Seen]:
    """What EC2 says of each instance that it knows, given on what the events about it rest.

    Nothing at all where it can't be asked. A spot request tells of its instance all that a warning needs, in a few
    bytes; instances themselves are described only where that isn't enough.
    """
    ec2 = aws.ec2_short_timeout()
    try:
        statuses = _statuses(sorted(i for i, bases in named.items() if _OF_SPOT.intersection(bases)), ec2)
        left = sorted(i for i, bases in named.items() if i not in statuses or not _OF_SPOT.issuperset(bases))
        found = instances.describe(left, ec2=ec2)
    except (BotoCoreError, ClientError) as error:
        logger.warning(
            "EC2 could not be asked, so events are believed",
            extra={"instances": len(named), "error": type(error).__name__, "why": str(error)},
        )
        return {}
    seen = {i: Seen(state="running", capacity_type=names.SPOT, spot_status=code) for i, code in statuses.items()}
    return seen | {
        i.id: Seen(state=i.state, capacity_type=i.capacity_type, spot_status=statuses.get(i.id, "")) for i in found
    }


def _statuses(instance_ids: Sequence[str], ec2: EC2Client) -> dict[str, str]:
    """The status code of the spot request that each instance came from, by instance; no request, no entry."""
    found: dict[str, str] = {}
    for start in range(0, len(instance_ids), _VALUES_A_FILTER):
        some = list(instance_ids[start : start + _VALUES_A_FILTER])
        pages = ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "instance-id", "Values": some}]
        )
        for page in pages:
            for request in page["SpotInstanceRequests"]:
                found[request.get("InstanceId", "")] = request.get("Status", {}).get("Code", "")
    return found

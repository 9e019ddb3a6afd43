"""What EC2 reports about the instances of a batch of events; without an answer, events are accepted as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api import labels as names
from shared.base.aws import PAGES, filter_chunks
from shared.base.struct import with_fields
from shared.interruptions import instance_status
from shared.interruptions.event_verification import UNKNOWN, InstanceFacts
from shared.interruptions.notice import Evidence
from shared.launch import instances

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger
    from mypy_boto3_ec2 import EC2Client

_SPOT_EVIDENCE = frozenset({Evidence.SPOT, Evidence.SPOT_INTERRUPTED})


def instance_facts(
    ec2: EC2Client, evidence_by_instance: Mapping[str, Collection[Evidence]], *, now: datetime, logger: Logger
) -> dict[str, InstanceFacts]:
    """What EC2 reports, for each instance id; empty if EC2 can't be called.

    For spot warnings the spot request alone is enough, and its description is small; the instances themselves are
    described only where other evidence is needed. ``ec2`` should have short time-outs, as the answer is of use at once.
    """
    if any(Evidence.SCHEDULED in evidence for evidence in evidence_by_instance.values()):
        return _with_scheduled_events(ec2, evidence_by_instance, now=now, logger=logger)
    return _instance_facts(ec2, evidence_by_instance, logger=logger)


def scheduled_events(ec2: EC2Client, *, now: datetime, logger: Logger) -> dict[str, datetime] | None:
    """When the first scheduled event of each instance of the Region starts that has one; None if EC2 can't be called.

    One call with pages: EC2 knows no filter by instance for it, and refuses ids that it doesn't know any more.
    """
    try:
        pages = ec2.get_paginator("describe_instance_status").paginate(
            Filters=instance_status.SCHEDULED, PaginationConfig=PAGES
        )
        statuses = [status for page in pages for status in page["InstanceStatuses"]]
    except (BotoCoreError, ClientError) as error:
        logger.warning(
            "EC2's scheduled events can't be read, so none counts; it takes ec2:DescribeInstanceStatus",
            extra={"error": type(error).__name__, "why": str(error)},
        )
        return None
    return instance_status.scheduled_starts(statuses, now=now)


def _with_scheduled_events(
    ec2: EC2Client, evidence_by_instance: Mapping[str, Collection[Evidence]], *, now: datetime, logger: Logger
) -> dict[str, InstanceFacts]:
    scheduled = {i for i, evidence in evidence_by_instance.items() if Evidence.SCHEDULED in evidence}
    unscheduled = {i: e for i, evidence in evidence_by_instance.items() if (e := set(evidence) - {Evidence.SCHEDULED})}
    facts = _instance_facts(ec2, unscheduled, logger=logger) if unscheduled else {}
    starts = scheduled_events(ec2, now=now, logger=logger)
    if starts is None:
        return facts
    unknown = InstanceFacts(state=UNKNOWN, capacity_type="")
    return facts | {i: with_fields(facts.get(i, unknown), scheduled_at=starts.get(i)) for i in scheduled}


def _instance_facts(
    ec2: EC2Client, evidence_by_instance: Mapping[str, Collection[Evidence]], *, logger: Logger
) -> dict[str, InstanceFacts]:
    spot_ids = sorted(i for i, evidence in evidence_by_instance.items() if _SPOT_EVIDENCE.intersection(evidence))
    try:
        statuses = _spot_request_statuses(spot_ids, ec2)
        other_ids = sorted(
            i
            for i, evidence in evidence_by_instance.items()
            if i not in statuses or not _SPOT_EVIDENCE.issuperset(evidence)
        )
        described = instances.get(ec2, other_ids)
    except (BotoCoreError, ClientError) as error:
        logger.warning(
            "EC2 could not be called; events are accepted without verification",
            extra={"instances": len(evidence_by_instance), "error": type(error).__name__, "why": str(error)},
        )
        return {}
    facts = {i: InstanceFacts(state=UNKNOWN, capacity_type="") for i in evidence_by_instance}
    facts |= {
        i: InstanceFacts(state="running", capacity_type=names.SPOT, spot_status=code) for i, code in statuses.items()
    }
    return facts | {
        i.id: InstanceFacts(
            state=i.state, capacity_type=i.capacity_type, spot_status=statuses.get(i.id, ""), instance=i
        )
        for i in described
    }


def _spot_request_statuses(instance_ids: Sequence[str], ec2: EC2Client) -> dict[str, str]:
    """The status code of each instance's spot request; instances without one are missing."""
    statuses: dict[str, str] = {}
    for ids in filter_chunks(instance_ids):
        pages = ec2.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "instance-id", "Values": ids}], PaginationConfig=PAGES
        )
        for page in pages:
            for request in page["SpotInstanceRequests"]:
                statuses[request.get("InstanceId", "")] = request.get("Status", {}).get("Code", "")
    return statuses

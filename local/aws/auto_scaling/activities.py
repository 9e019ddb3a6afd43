"""Scaling activities: what an Auto Scaling group did and why, as DescribeScalingActivities answers."""

from __future__ import annotations

import itertools
import json
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

IN_PROGRESS, SUCCESSFUL, FAILED = "InProgress", "Successful", "Failed"
_DONE = 100
_MAX_RECORDS = 100
_IDS = uuid.UUID("5a6c1c8e-0e1e-4f7b-9a0c-6b1d7f7f0c11")
"""The namespace of the activities' ids: the same in each run."""


class Activity(MutableStruct, kw_only=True):
    """A scaling activity; the attributes are named as moto's serializer expects them."""

    activity_id: str
    auto_scaling_group_name: str
    description: str
    cause: str
    start_time: datetime
    end_time: datetime | None = None
    status_code: str = IN_PROGRESS
    status_message: str = ""
    progress: int = 0
    instance_id: str = ""
    details: dict[str, str] = {}

    def end(self, now: datetime, *, failure: str = "") -> None:
        """End the activity, with the reason if it failed."""
        if self.end_time is None:
            self.end_time, self.progress = now, _DONE
            self.status_code, self.status_message = (FAILED if failure else SUCCESSFUL), failure

    def answer(self) -> dict[str, Any]:
        """As in DescribeScalingActivities' answer."""
        return {
            "ActivityId": self.activity_id,
            "AutoScalingGroupName": self.auto_scaling_group_name,
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": self.start_time,
            "StatusCode": self.status_code,
            "Progress": self.progress,
            **({"Details": json.dumps(self.details)} if self.details else {}),
            **({"EndTime": self.end_time} if self.end_time is not None else {}),
            **({"StatusMessage": self.status_message} if self.status_message else {}),
        }


class Activities(MutableStruct):
    """All activities, oldest first."""

    all: list[Activity] = []
    _numbers: itertools.count[int] = msgspec.field(default_factory=itertools.count)

    def start(
        self,
        group: str,
        description: str,
        cause: str,
        now: datetime,
        *,
        instance_id: str = "",
        details: dict[str, str] | None = None,
    ) -> Activity:
        """Begin an activity."""
        activity = Activity(
            activity_id=str(uuid.uuid5(_IDS, str(next(self._numbers)))),
            auto_scaling_group_name=group,
            description=description,
            cause=f"At {timestamp(now)} {cause}",
            start_time=now,
            instance_id=instance_id,
            details=details or {},
        )
        self.all.append(activity)
        return activity

    def of_instance(self, instance_id: str) -> list[Activity]:
        """The activities about an instance that haven't ended."""
        return [a for a in self.all if a.instance_id == instance_id and a.end_time is None]

    def page(self, *, group: str, ids: Collection[str], token: str, limit: int) -> dict[str, Any]:
        """DescribeScalingActivities' answer, newest first; "" and an empty collection stand for all."""
        newest_first = [
            a
            for a in reversed(self.all)
            if (not group or a.auto_scaling_group_name == group) and (not ids or a.activity_id in ids)
        ]
        start, size = int(token or 0), min(limit or _MAX_RECORDS, _MAX_RECORDS)
        end = start + size
        answer: dict[str, Any] = {"Activities": [a.answer() for a in newest_first[start:end]]}
        return {**answer, "NextToken": str(end)} if end < len(newest_first) else answer


def timestamp(now: datetime) -> str:
    """The time as Auto Scaling writes it in causes."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")

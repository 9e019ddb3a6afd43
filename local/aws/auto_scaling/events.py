"""Auto Scaling's events on EventBridge's default bus: lifecycle actions, and launches and terminations that ended.

The fields are those of the user guide of EC2 Auto Scaling, "Amazon EC2 Auto Scaling event reference".
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from local.aws import backends
from local.aws.auto_scaling.activities import FAILED, timestamp
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from local.aws.auto_scaling.activities import Activity

EC2, GROUP, WARM_POOL = "EC2", "AutoScalingGroup", "WarmPool"
"""Where an instance comes from or goes to."""


class Events(MutableStruct):
    """Events that are sent in the next step: the caller of an API gets its response first."""

    region: str
    now: Callable[[], datetime]
    _waiting: list[dict[str, Any]] = []

    def add(self, detail_type: str, resources: Sequence[str], detail: dict[str, Any]) -> None:
        """Send this event in the next step."""
        self._waiting.append(
            {
                "Source": "aws.autoscaling",
                "DetailType": detail_type,
                "Detail": json.dumps(detail),
                "Resources": list(resources),
                "Time": self.now().timestamp(),
            }
        )

    def activity_ended(self, group: Any, activity: Activity, *, origin: str, destination: str) -> None:
        """Send that a launch or termination has ended."""
        verb = "Launch" if activity.description.startswith("Launching") else "Terminate"
        failed = activity.status_code == FAILED
        resources = [str(group.arn)]
        if activity.instance_id:
            resources.append(f"arn:aws:ec2:{self.region}:{backends.ACCOUNT}:instance/{activity.instance_id}")
        detail = {
            "ActivityId": activity.activity_id,
            "AutoScalingGroupName": activity.auto_scaling_group_name,
            "Cause": activity.cause,
            "Description": activity.description,
            "EC2InstanceId": activity.instance_id,
            "Details": activity.details,
            "StartTime": timestamp(activity.start_time),
            "EndTime": timestamp(self.now()),
            "RequestId": str(uuid.uuid5(uuid.NAMESPACE_OID, activity.activity_id)),
            # AWS sends successful ones before the activity is marked as such.
            "StatusCode": FAILED if failed else "InProgress",
            "StatusMessage": activity.status_message,
            "Origin": origin,
            "Destination": destination,
        }
        self.add(f"EC2 Instance {verb} {'Unsuccessful' if failed else 'Successful'}", resources, detail)

    def send(self) -> bool:
        """Send what waits; whether anything was sent."""
        events, self._waiting = self._waiting, []
        if events:
            backends.events(self.region).put_events(events)
        return bool(events)

    @property
    def waiting(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._waiting)

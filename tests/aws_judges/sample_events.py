"""AWS's sample events, hints, and near misses of both; each with its bus and the rules that have to match it.

Shapes and names are those of AWS's references:
docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, rebalance-recommendations.html,
monitoring-instance-state-changes.html, capacity-blocks-monitor.html, monitor-fcr-state.html,
monitor-ec2-fleet-using-eventbridge.html;
docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html;
docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-event-reference.html;
docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch-and-eventbridge.html.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.base import hints
from shared.base.struct import Struct
from tests.aws_judges.rule_engine import DEFAULT_BUS, OWN_BUS, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLES = Path(__file__).parent.parent / "unit" / "interruption" / "samples"
_INSTANCE = "i-1234567890abcdef0"
_SPOT = frozenset({"spot-interruption", "node-group-spot"})
_HEALTH = frozenset({"health", "node-group-health"})
NOTHING: frozenset[str] = frozenset()


class Sample(Struct, kw_only=True):
    """An event on a bus, and the names of the rules that match it where a stack has them."""

    name: str
    event: Event
    rules: frozenset[str] = NOTHING
    bus: str = DEFAULT_BUS


def _file(name: str, **changes: Any) -> Event:
    """AWS's sample of that name, with other values at the top or, by a name with ``detail_``, in its detail."""
    event: Event = json.loads((_SAMPLES / f"{name}.json").read_text())
    for key, value in changes.items():
        if key.startswith("detail_"):
            event["detail"][key.removeprefix("detail_")] = value
        else:
            event[key.replace("_", "-")] = value
    return event


def _event(source: str, detail_type: str, *, resources: tuple[str, ...] = (), **detail: Any) -> Event:
    return {
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": detail_type,
        "source": source,
        "account": "123456789012",
        "time": "2026-11-21T12:00:00Z",
        "region": "us-east-1",
        "resources": list(resources),
        "detail": detail,
    }


def _instances() -> Iterator[Sample]:
    yield Sample(name="spot warning", event=_file("spot_interruption"), rules=_SPOT)
    yield Sample(name="rebalance", event=_file("rebalance_recommendation"), rules=frozenset({"rebalance"}))
    yield Sample(
        name="interruption of a reservation",
        event=_file("capacity_reservation_interruption"),
        rules=frozenset({"reservation-interruption"}),
    )
    for state in ("pending", "running", "stopping", "stopped", "shutting-down", "terminated"):
        ends = state not in ("pending", "running")
        yield Sample(
            name=f"an instance is {state}",
            event=_file("state_change", detail_state=state),
            rules=frozenset({"state-change"}) if ends else NOTHING,
        )
    yield Sample(
        name="a member of a node group ends",
        event=_lifecycle_action("terminate", "TERMINATING"),
        rules=frozenset({"node-group-termination"}),
    )


def _lifecycle_action(verb: str, transition: str) -> Event:
    return _event(
        "aws.autoscaling",
        f"EC2 Instance-{verb} Lifecycle Action",
        resources=("arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:1:autoScalingGroupName/my-asg",),
        LifecycleActionToken="87654321-4321-4321-4321-210987654321",
        AutoScalingGroupName="my-asg",
        LifecycleHookName="my-lifecycle-hook",
        EC2InstanceId=_INSTANCE,
        LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}",
        Origin="AutoScalingGroup",
        Destination="EC2",
    )


def _health() -> Iterator[Sample]:
    yield Sample(name="scheduled change", event=_file("scheduled_change"), rules=_HEALTH)
    for code in ("PERSISTENT_INSTANCE_RETIREMENT", "SYSTEM_REBOOT_MAINTENANCE", "INSTANCE_POWER_MAINTENANCE"):
        event = _file("scheduled_change", detail_eventTypeCode=f"AWS_EC2_{code}_SCHEDULED", detail_statusCode="open")
        yield Sample(name=f"scheduled change {code}", event=event, rules=_HEALTH)
    for category in ("issue", "accountNotification", "investigation", "ScheduledChange"):
        event = _file("scheduled_change", detail_eventTypeCategory=category)
        yield Sample(name=f"health event of category {category}", event=event)
    for service in ("EBS", "RDS", "ec2", "EKS", "AUTOSCALING"):
        yield Sample(name=f"scheduled change of {service}", event=_file("scheduled_change", detail_service=service))
    abuse = _file("scheduled_change", detail_type="AWS Health Abuse Event")
    yield Sample(name="abuse event", event={**abuse, "detail-type": "AWS Health Abuse Event"})
    yield Sample(name="scheduled change of another source", event=_file("scheduled_change", source="aws.ec2"))


def _near_instances() -> Iterator[Sample]:
    for name in ("spot_interruption", "rebalance_recommendation", "state_change", "capacity_reservation_interruption"):
        event = _file(name)
        for source in ("aws.health", "aws.EC2", "com.example", "aws.ec2spot", "tenon.functions"):
            yield Sample(name=f"{name} from {source}", event={**event, "source": source})
        detail_type = event["detail-type"]
        for misspelled in (detail_type.lower(), f"{detail_type} ", detail_type.rpartition(" ")[0]):
            yield Sample(name=f"{name} as {misspelled!r}", event={**event, "detail-type": misspelled})
        yield Sample(name=f"{name} on the own bus", event=event, bus=OWN_BUS)
    yield Sample(name="a state in capitals", event=_file("state_change", detail_state="Terminated"))
    yield Sample(name="a state change without a state", event={**_file("state_change"), "detail": {}})
    yield Sample(name="an instance launches", event=_lifecycle_action("launch", "LAUNCHING"))


def _unfollowed_by_tenon() -> Iterator[Sample]:
    """Events of the same services that nothing here follows."""
    reservation = "arn:aws:ec2:us-east-1:123456789012:capacity-reservation/cr-1234567890abcdefg"
    for detail_type in (
        "Capacity Block Delivered",
        "Capacity Block Expiration Warning",
        "Capacity Block Reservation Expiration Warning",
        "EC2 Capacity Reservation Scheduled",
        "EC2 Capacity Reservation Active",
        "EC2 Capacity Reservation Expired",
        "EC2 Fleet State Change",
        "EC2 Fleet Instance Change",
        "EC2 Fleet Spot Instance Request Change",
        "EC2 Fleet Information",
        "EC2 Fleet Error",
        "EC2 Spot Fleet Instance Change",
        "EC2 Spot Instance Request Fulfillment",
        "EBS Volume Notification",
        "EBS Snapshot Notification",
        "AWS API Call via CloudTrail",
    ):
        yield Sample(
            name=f"EC2's {detail_type}",
            event=_event("aws.ec2", detail_type, resources=(reservation,), state="terminated", service="EC2"),
        )
    for detail_type in (
        "EC2 Instance Launch Successful",
        "EC2 Instance Terminate Successful",
        "EC2 Instance Launch Unsuccessful",
        "EC2 Auto Scaling Instance Refresh Started",
    ):
        yield Sample(name=detail_type, event=_event("aws.autoscaling", detail_type, EC2InstanceId=_INSTANCE))
    yield Sample(name="a schedule", event=_event("aws.events", hints.SCHEDULED))


def _of_users() -> Iterator[Sample]:
    """What CapacityBuffers may follow: the alarm ``latency``, and ``Deploy begins`` of ``my.app``."""
    state = {"value": "ALARM", "reason": "Threshold Crossed", "timestamp": "2026-11-21T12:00:00.000+0000"}
    for alarm in ("latency", "latency-2", "Latency"):
        yield Sample(
            name=f"alarm {alarm}",
            event=_event("aws.cloudwatch", "CloudWatch Alarm State Change", alarmName=alarm, state=state),
            rules=frozenset({"buffer-alarms"}) if alarm == "latency" else NOTHING,
        )
    changed = _event("aws.cloudwatch", "CloudWatch Alarm Configuration Change", alarmName="latency", state=state)
    yield Sample(name="an alarm is edited", event=changed)
    for source, detail_type in (
        ("my.app", "Deploy begins"),
        ("my.app", "Deploy ends"),
        ("my.apps", "Deploy begins"),
        ("aws.my.app", "Deploy begins"),
    ):
        followed = (source, detail_type) == ("my.app", "Deploy begins")
        yield Sample(
            name=f"{detail_type} of {source}",
            event=_event(source, detail_type, secret="s"),
            rules=frozenset({"buffer-events0"}) if followed else NOTHING,
        )


_HINTS = {
    hints.PODS_UNSCHEDULABLE: "pods-unschedulable",
    hints.NODE_POOLS_CHANGED: "node-pools-changed",
    hints.CAPACITY_BUFFERS_CHANGED: "capacity-buffers",
    hints.NODES_CHANGED: "nodes-changed",
    hints.NODES_EMPTIED: "nodes-emptied",
    hints.NODES_UNDERUTILIZED: "nodes-emptied",
    hints.NODES_DELETED: "nodes-emptied",
    hints.NODES_DELETING: "deleting",
    hints.NODE_CLAIMS_DELETING: "deleting",
    hints.DRAINS_UNBLOCKED: "deleting",
    hints.CATALOG_MISSING: "catalog-missing",
}
_UNMATCHED_HINTS = (hints.RELAY_STARTED, hints.DRAIN, hints.REQUEUE, hints.PODS_CREATED)


def _hints() -> Iterator[Sample]:
    for detail_type, rule in _HINTS.items():
        source = hints.FUNCTIONS if detail_type == hints.CATALOG_MISSING else hints.RELAY
        wrong_source = hints.RELAY if detail_type == hints.CATALOG_MISSING else hints.FUNCTIONS
        own = _event(source, detail_type, cluster="demo", keys=["default/web-1"])
        yield Sample(name=f"hint {detail_type}", event=own, rules=frozenset({rule}), bus=OWN_BUS)
        yield Sample(name=f"hint {detail_type} from {wrong_source}", event={**own, "source": wrong_source}, bus=OWN_BUS)
        for cluster in ("other", "demo2", "Demo", ""):
            detail = {"cluster": cluster, "keys": ["default/web-1"]}
            yield Sample(name=f"hint {detail_type} of {cluster!r}", event={**own, "detail": detail}, bus=OWN_BUS)
        yield Sample(name=f"hint {detail_type} without a cluster", event={**own, "detail": {"keys": []}}, bus=OWN_BUS)
        yield Sample(name=f"hint {detail_type} on the default bus", event=own)
    for detail_type in _UNMATCHED_HINTS:
        yield Sample(name=detail_type, event=_event(hints.RELAY, detail_type, cluster="demo", keys=[]), bus=OWN_BUS)


SAMPLES: tuple[Sample, ...] = (
    *_instances(),
    *_health(),
    *_near_instances(),
    *_unfollowed_by_tenon(),
    *_of_users(),
    *_hints(),
)

"""The EventBridge rules that a deployment must have, and to which function's queue or function each sends.

A test compares them with the synthesised stack: infra/cluster/event_rules.py needs the CDK, which users of the command
don't have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.status.interruption_feed import RULES as INTERRUPTION_RULES
from infra.function_sizes import CATALOG, DISRUPTION, INTERRUPTION, LIFECYCLE, PROVISIONER, RELAY, TERMINATION

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "Sweep": (PROVISIONER, LIFECYCLE, DISRUPTION, INTERRUPTION),
    "RelayCheck": (RELAY,),
    "RefreshTypes": (CATALOG,),
    "RefreshPrices": (CATALOG,),
}
"""On the default bus: by construct id, the functions that are invoked."""
ANNOUNCEMENTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(INTERRUPTION_RULES, (INTERRUPTION,))
"""On the default bus: AWS's events about instances."""
HINTS: Mapping[str, tuple[str, ...]] = {
    "PodsUnschedulable": (PROVISIONER,),
    "NodePoolsChanged": (PROVISIONER, LIFECYCLE, DISRUPTION),
    "CapacityBuffers": (PROVISIONER, LIFECYCLE),
    "NodesChanged": (LIFECYCLE,),
    "NodesEmptied": (DISRUPTION,),
    "Deleting": (TERMINATION,),
    "CatalogMissing": (CATALOG,),
}
"""On the cluster's own bus."""

_HEALTH: Mapping[str, Any] = {"service": "EC2", "eventTypeCategory": "scheduledChange"}
SAMPLES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "SpotInterruption": (
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"},
    ),
    "Rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": "i-0123456789abcdef0"}),
    "StateChange": (
        "aws.ec2",
        "EC2 Instance State-change Notification",
        {"instance-id": "i-0123456789abcdef0", "state": "stopping"},
    ),
    "ReservationInterruption": (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
        {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"},
    ),
    "Health": ("aws.health", "AWS Health Event", _HEALTH),
}
"""An event that each rule of AWS's events must match: source, detail type, detail."""

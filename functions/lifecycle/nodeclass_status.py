"""Status of node classes: what they select on AWS now, and an event for each condition that is False."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import aws
from shared.api.nodeclass import READY
from shared.cluster import resources, writes
from shared.cluster.connect import describe
from shared.launch.resolved_node_pools import resolve_node_classes

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclass import EC2NodeClass
    from shared.snapshot import Snapshot


def write_statuses(context: ReconcileContext, snapshot: Snapshot) -> dict[str, EC2NodeClass]:
    """Resolve the node classes on AWS and write their statuses; by name, the classes with these statuses."""
    resolved_classes = resolve_node_classes(
        snapshot.node_classes,
        describe(aws.eks(), context.settings.cluster_name),
        default_instance_profile=context.settings.node_instance_profile,
        now=context.now,
    )
    for node_class in snapshot.node_classes:
        resolved_class = resolved_classes[node_class.name]
        context.attempt(node_class.ref, partial(_write_status, context, node_class, resolved_class))
    return dict(resolved_classes)


def _write_status(context: ReconcileContext, node_class: EC2NodeClass, resolved_class: EC2NodeClass) -> None:
    after = writes.update_status(
        context.client,
        resources.for_kind(node_class.api_version, node_class.kind),
        node_class,
        lambda c: replace(c, status=resolved_class.status),
    )
    for condition in after.status.conditions:
        if condition.status == "False" and condition.type != READY:
            context.recorder.record(node_class.ref, "Warning", condition.reason, condition.message)

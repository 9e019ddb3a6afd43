"""Status of node classes: what they select on AWS now, and an event for each condition that has something to say."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.ami_family.families import is_version_held
from shared.api import meta
from shared.api.kubelet import has_expressions
from shared.api.nodeclass import READY
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.cluster.connect import describe
from shared.launch import boot_failures
from shared.launch.node_class.status import NodeClassResolver
from shared.launch.resolved_node_pools import resolve_node_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclass import EC2NodeClass
    from shared.launch.boot_failures import BootFailure
    from shared.snapshot import Snapshot


BOOT_SUCCEEDED = "BootSucceeded"
"""Condition that is False after an instance of the class died at boot, until one registers."""


def write_statuses(
    context: ReconcileContext, snapshot: Snapshot, failures: Mapping[tuple[str, str], BootFailure]
) -> dict[str, EC2NodeClass]:
    """Resolve the node classes on AWS and write their statuses; by name, the classes with these statuses.

    While AWS can't be asked they keep the statuses that they have, and everything else is done. ``failures`` are those
    at boot, by NodePool and node class.
    """
    try:
        resolved_classes = _resolved(context, snapshot)
    except (BotoCoreError, ClientError) as error:
        context.report.failures += 1
        context.logger.warning("Node classes can't be resolved and stay as they are", extra={"why": str(error)})
        return {c.name: c for c in snapshot.node_classes}
    by_class = {node_class: failure for (_, node_class), failure in sorted(failures.items())}
    for node_class in snapshot.node_classes:
        resolved_class = _with_boot_condition(resolved_classes[node_class.name], by_class.get(node_class.name), context)
        context.attempt(node_class.ref, partial(_write_status, context, node_class, resolved_class))
    return dict(resolved_classes)


def _resolved(context: ReconcileContext, snapshot: Snapshot) -> Mapping[str, EC2NodeClass]:
    resolver = NodeClassResolver(
        clients=context.aws,
        runtime=context.runtime,
        cluster=describe(
            context.aws.eks(),
            context.settings.cluster_name,
            recent=any(map(is_version_held, snapshot.node_classes)),
        ),
        default_instance_profile=context.settings.node_instance_profile,
        catalog=context.catalog() if any(has_expressions(c.spec.kubelet) for c in snapshot.node_classes) else None,
    )
    return resolve_node_classes(resolver, snapshot.node_classes, now=context.now)


def _with_boot_condition(
    node_class: EC2NodeClass, failure: BootFailure | None, context: ReconcileContext
) -> EC2NodeClass:
    """The class with condition BootSucceeded, which a class gets with its first failure."""
    before = node_class.status.conditions
    if failure is None and meta.condition(before, BOOT_SUCCEEDED) is None:
        return node_class
    conditions = meta.with_condition(
        before,
        BOOT_SUCCEEDED,
        status=failure is None,
        reason=boot_failures.BOOT_FAILED if failure is not None else BOOT_SUCCEEDED,
        message=boot_failures.explain(failure, node_class) if failure is not None else "",
        now=context.now,
        generation=node_class.metadata.generation,
    )
    return with_fields(node_class, status=with_fields(node_class.status, conditions=conditions))


def _write_status(context: ReconcileContext, node_class: EC2NodeClass, resolved_class: EC2NodeClass) -> None:
    after = writes.update_status(
        context.client,
        resources.for_kind(node_class.api_version, node_class.kind),
        node_class,
        lambda c: with_fields(c, status=resolved_class.status),
    )
    for condition in after.status.conditions:
        # a condition that is True says what isn't as the user may expect
        if condition.message and condition.status != "Unknown" and condition.type != READY:
            context.recorder.record(node_class.ref, "Warning", condition.reason, condition.message)

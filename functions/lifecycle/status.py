"""What objects say of themselves: pools and classes what they can do now, and those that can't be used, why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from functions.lifecycle import nodepool_status
from shared import aws
from shared.api import labels as names
from shared.api.meta import Condition, ObjectMeta, Struct
from shared.api.nodeclass import READY
from shared.cluster import resources, writes
from shared.cluster.connect import describe
from shared.launch.node_class import readiness
from shared.launch.resolved_node_pools import resolve_node_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.lifecycle.context import Run
    from functions.lifecycle.liveness import GivenUp
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.snapshot import InvalidObject, Snapshot


class _Conditioned(Struct):
    conditions: list[Condition] = []


class _Anything(Struct):
    """Any object, seen only as far as its conditions: for objects that are too broken to be read."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Conditioned = _Conditioned()


def write(run: Run, snapshot: Snapshot, failed: Mapping[str, GivenUp], *, classes: bool) -> None:
    """Write all statuses; ``classes``: see what AWS makes of the node classes now. ``failed`` is by pool."""
    for broken in snapshot.invalid:
        run.each(broken.ref, partial(_tell_invalid, run, broken))
    live: Mapping[str, EC2NodeClass] = {c.name: c for c in snapshot.node_classes}
    if classes:
        live = resolve_node_classes(
            snapshot.node_classes,
            describe(aws.eks(), run.settings.cluster_name),
            default_instance_profile=run.settings.node_instance_profile,
            now=run.now,
        )
        for node_class in snapshot.node_classes:
            run.each(node_class.ref, partial(_write_class, run, node_class, live[node_class.name]))
    for pool in snapshot.node_pools:
        run.each(pool.ref, partial(_write_pool, run, pool, snapshot, live, failed.get(pool.name)))


def _write_class(run: Run, node_class: EC2NodeClass, live: EC2NodeClass) -> None:
    after = writes.update_status(
        run.client,
        resources.for_kind(node_class.api_version, node_class.kind),
        node_class,
        lambda c: replace(c, status=live.status),
    )
    failing = [c for c in after.status.conditions if c.status == "False" and c.type != READY]
    for condition in failing:
        run.recorder.record(node_class.ref, "Warning", condition.reason, condition.message)


def _write_pool(
    run: Run, pool: NodePool, snapshot: Snapshot, live: Mapping[str, EC2NodeClass], failed: GivenUp | None
) -> None:
    node_class = readiness.node_class_of(pool, live.values())
    writes.update_status(
        run.client,
        resources.for_kind(pool.api_version, pool.kind),
        pool,
        lambda p: replace(
            p,
            status=nodepool_status.status(
                p, snapshot.node_claims, snapshot.nodes, node_class, now=run.now, failed=failed
            ),
        ),
    )
    obstacle = readiness.node_class_not_ready(pool, node_class)
    if obstacle is not None:
        run.recorder.record(pool.ref, "Warning", *obstacle)


def _tell_invalid(run: Run, broken: InvalidObject) -> None:
    """Say what is wrong: by an event, and on our own kinds by conditions too."""
    message = "; ".join(broken.problems)
    run.recorder.record(broken.ref, "Warning", "Invalid", message)
    run.logger.warning("An object can't be used", extra={"object": str(broken.ref), "why": message})
    resource = resources.for_kind(broken.ref.api_version, broken.ref.kind)
    if resource.group not in {names.GROUP, names.AWS_GROUP}:
        return
    writes.update_status(
        run.client,
        resource,
        writes.read(run.client, resource, broken.ref.name, _Anything),
        lambda o: replace(
            o,
            status=_Conditioned(
                conditions=nodepool_status.invalid_conditions(
                    o.status.conditions, broken.problems, generation=o.metadata.generation, now=run.now
                )
            ),
        ),
    )

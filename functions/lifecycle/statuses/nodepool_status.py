"""Status of NodePools: resources, node count, and the conditions that say whether they can launch.

``status`` is pure; ``write_statuses`` writes it. Rules: Karpenter's nodepool/counter, nodepool/readiness and
nodepool/registrationhealth controllers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.claims.liveness import LivenessFailure
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, condition, with_condition, with_same_condition
from shared.api.nodeclass import READY, VALIDATION_SUCCEEDED
from shared.api.nodepool import NodePoolStatus
from shared.api.quantity import NODES, add, format_resources, parse_resources
from shared.api.spot import read_spot_options
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.disruption.budgets import budget_problems
from shared.instance_types.instance_type import excluded_types
from shared.launch import boot_failures
from shared.launch.resolved_node_pools import node_class_not_ready, node_class_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.launch.boot_failures import BootFailure
    from shared.snapshot import Snapshot

NODE_CLASS_READY = "NodeClassReady"
NODE_REGISTRATION_HEALTHY = "NodeRegistrationHealthy"
PAUSED = "Paused"
SPOT_OPTIONS_VALID = "SpotOptionsValid"
BUDGETS_VALID = "DisruptionBudgetsValid"
INSTANCE_TYPES_FOUND = "InstanceTypesFound"
NO_INSTANCE_TYPES = "NoCompatibleInstanceTypes"
INVALID_BUDGET = "InvalidDisruptionBudget"
INVALID_ANNOTATION = "InvalidAnnotation"
PAUSED_REASON = EventReason("Paused")
BREAKER_REASON = EventReason("CircuitBreakerOpen")


def write_statuses(
    context: ReconcileContext,
    snapshot: Snapshot,
    node_classes: Mapping[str, EC2NodeClass],
    failures: Mapping[str, LivenessFailure],
    paused: Mapping[str, tuple[EventReason, str]] | None = None,
) -> None:
    """Write every NodePool's status. ``failures`` are liveness failures of this reconcile, by NodePool name.

    ``paused`` are (reason, message) by name too; None: neither they nor instance types were read, so conditions Paused
    and InstanceTypesFound stay as they are.
    """
    catalog = context.catalog() if paused is not None else None
    for pool in snapshot.node_pools:
        node_class = node_class_of(pool, node_classes.values())
        excluded = None if catalog is None else excluded_types(pool.spec.template.spec.requirements, catalog)
        write = partial(_write_status, context, pool, snapshot, node_class, failures.get(pool.name), excluded)
        context.attempt(pool.ref, write)
        if paused is not None:
            context.attempt(pool.ref, partial(_write_paused, context, pool, paused.get(pool.name)))


def boot_failures_by_pool(
    failures: Mapping[tuple[str, str], BootFailure], node_classes: Mapping[str, EC2NodeClass]
) -> dict[str, LivenessFailure]:
    """By NodePool: the machines that died at boot, as failures of registration."""
    return {
        pool: LivenessFailure(
            reason=boot_failures.BOOT_FAILED, message=boot_failures.explain(failure, node_classes.get(node_class))
        )
        for (pool, node_class), failure in failures.items()
    }


def pauses(
    context: ReconcileContext,
    snapshot: Snapshot,
    failures: Mapping[tuple[str, str], BootFailure],
    node_classes: Mapping[str, EC2NodeClass],
) -> dict[str, tuple[EventReason, str]]:
    """By NodePool: that it, the cluster or its launches are paused, as condition Paused says it (reason, message)."""
    paused: dict[str, tuple[EventReason, str]] = {}
    everywhere = boot_failures.cluster_wide(failures, snapshot.node_claims)
    for pool in snapshot.node_pools:
        node_class = node_class_of(pool, node_classes.values())
        failure = failures.get((pool.name, node_class.name if node_class is not None else ""), everywhere)
        if failure is not None:
            paused[pool.name] = BREAKER_REASON, boot_failures.paused_message(failure, node_class, now=context.now)
    by_users = context.pauses(snapshot)
    context.report.paused, context.report.breakers = len(by_users), len(paused)
    return {**paused, **{name: (PAUSED_REASON, pause.message) for name, pause in by_users.items()}}


def status(
    pool: NodePool,
    claims: Iterable[NodeClaim],
    nodes: Iterable[Node],
    node_class: EC2NodeClass | None,
    *,
    now: datetime,
    failure: LivenessFailure | None = None,
    excluded: str | None = None,
) -> NodePoolStatus:
    """The NodePool's status: resources of its NodeClaims, its node count, and its conditions.

    ``failure`` is the liveness failure of one of its NodeClaims in this reconcile. ``excluded`` says why no instance
    type is left for it, "" if one is; None: that isn't known.
    """
    pool_claims = [c for c in claims if c.metadata.labels.get(names.NODEPOOL) == pool.name]
    node_count = sum(1 for n in nodes if n.metadata.labels.get(names.NODEPOOL) == pool.name)
    capacity = add(*(parse_resources(c.status.capacity) for c in pool_claims)) if pool_claims else {}
    generation = pool.metadata.generation
    conditions = with_condition(
        pool.status.conditions, VALIDATION_SUCCEEDED, status=True, reason="Valid", now=now, generation=generation
    )
    blocker = node_class_not_ready(pool, node_class)
    reason, message = blocker or ("Ready", "")
    conditions = with_condition(
        conditions,
        NODE_CLASS_READY,
        status=blocker is None,
        reason=reason,
        message=message,
        now=now,
        generation=generation,
    )
    conditions = _with_registration_health(conditions, pool_claims, failure, now=now, generation=generation)
    with_validity = partial(_with_validity, now=now, generation=generation)
    conditions = with_validity(conditions, SPOT_OPTIONS_VALID, INVALID_ANNOTATION, read_spot_options(pool)[1])
    conditions = with_validity(conditions, BUDGETS_VALID, INVALID_BUDGET, budget_problems(pool))
    if excluded is not None:
        problems = [excluded] if excluded else []
        conditions = with_validity(conditions, INSTANCE_TYPES_FOUND, NO_INSTANCE_TYPES, problems)
    return NodePoolStatus(
        resources={**format_resources({**capacity, NODES: node_count})},
        nodes=node_count,
        conditions=_with_ready(conditions, now=now, generation=generation),
    )


def _with_registration_health(
    conditions: list[Condition],
    claims: Iterable[NodeClaim],
    failure: LivenessFailure | None,
    *,
    now: datetime,
    generation: int,
) -> list[Condition]:
    """The conditions with NodeRegistrationHealthy: Unknown at first, False after a failure, True after a registration.

    After a failure, only a later registration makes it True again.
    """
    with_health = partial(with_condition, conditions, NODE_REGISTRATION_HEALTHY, now=now, generation=generation)
    if failure is not None:
        return with_health(status=False, reason=failure.reason, message=failure.message)
    before = condition(conditions, NODE_REGISTRATION_HEALTHY)
    registered_at = _last_registration(claims, now)
    failed_at = before.last_transition_time if before is not None and before.status == "False" else None
    if registered_at is not None and (failed_at is None or registered_at > failed_at):
        return with_health(status=True, reason="NodesRegister")
    if before is None:
        return with_health(status=None, reason="AwaitingNodes", message="no node has registered yet")
    return with_same_condition(conditions, NODE_REGISTRATION_HEALTHY, generation=generation)


def _with_validity(
    conditions: list[Condition], type_: str, reason: str, problems: Sequence[str], *, now: datetime, generation: int
) -> list[Condition]:
    """The conditions with this one, only if there are problems: then it is False; Ready stays."""
    if not problems:
        return [c for c in conditions if c.type != type_]
    message = "; ".join(problems)
    return with_condition(
        conditions, type_, status=False, reason=reason, message=message, now=now, generation=generation
    )


def _last_registration(claims: Iterable[NodeClaim], now: datetime) -> datetime | None:
    """When the last of the NodeClaims was registered; None if none is."""
    conditions = (condition(claim.status.conditions, nodeclaim.REGISTERED) for claim in claims)
    registered = [c.last_transition_time or now for c in conditions if c is not None and c.status == "True"]
    return max(registered, default=None)


def _with_ready(conditions: list[Condition], *, now: datetime, generation: int) -> list[Condition]:
    """The conditions with Ready: True when ValidationSucceeded and NodeClassReady are, and there are instance types."""
    failing = next(
        (
            c
            for type_ in (VALIDATION_SUCCEEDED, NODE_CLASS_READY, INSTANCE_TYPES_FOUND)
            if (c := condition(conditions, type_)) is not None and c.status != "True"
        ),
        None,
    )
    return with_condition(
        conditions,
        READY,
        status=failing is None,
        reason="Ready" if failing is None else failing.reason,
        message="" if failing is None else failing.message,
        now=now,
        generation=generation,
    )


def _write_status(
    context: ReconcileContext,
    pool: NodePool,
    snapshot: Snapshot,
    node_class: EC2NodeClass | None,
    failure: LivenessFailure | None,
    excluded: str | None,
) -> None:
    def change(current: NodePool) -> NodePool:
        after = status(
            current,
            snapshot.node_claims,
            snapshot.nodes,
            node_class,
            now=context.now,
            failure=failure,
            excluded=excluded,
        )
        return with_fields(current, status=after)

    writes.update_status(context.client, resources.for_kind(pool.api_version, pool.kind), pool, change)
    obstacle = node_class_not_ready(pool, node_class)
    if obstacle is not None:
        context.recorder.record(pool.ref, "Warning", *obstacle)
    if excluded:
        context.recorder.record(pool.ref, "Warning", EventReason("NoCompatibleInstanceTypes"), excluded)
    for problem in read_spot_options(pool)[1]:
        context.recorder.record(pool.ref, "Warning", EventReason("InvalidAnnotation"), problem)
    for problem in budget_problems(pool):
        message = f"no node of the NodePool is disrupted until this is mended: {problem}"
        context.recorder.record(pool.ref, "Warning", EventReason("InvalidDisruptionBudget"), message)


def with_obstacle(
    pool: NodePool, type_: str, obstacle: tuple[EventReason, str] | None, *, now: datetime
) -> list[Condition]:
    """The NodePool's conditions with one that is True for the obstacle (reason, message), and absent without one."""
    conditions = pool.status.conditions
    if obstacle is None:
        return [c for c in conditions if c.type != type_]
    reason, message = obstacle
    generation = pool.metadata.generation
    return with_condition(
        conditions, type_, status=True, reason=reason, message=message, now=now, generation=generation
    )


def _write_paused(context: ReconcileContext, pool: NodePool, pause: tuple[EventReason, str] | None) -> None:
    """Write condition Paused, and an event when it changes; the condition is never False, so that no pool has it."""
    before = condition(pool.status.conditions, PAUSED)
    context.write_conditions(pool, partial(with_obstacle, type_=PAUSED, obstacle=pause, now=context.now))
    if pause == ((before.reason, before.message) if before is not None else None):
        return
    if pause is not None:
        context.recorder.record(pool.ref, "Warning", *pause)
    else:
        context.recorder.record(pool.ref, "Normal", EventReason("Resumed"), "launches and disruption continue")

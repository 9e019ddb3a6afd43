"""Claims come to their nodes: registered, initialized, or given up when that takes too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle import liveness, registration
from functions.lifecycle.eviction_release import Releasing, release
from functions.lifecycle.provider_id import restore
from shared import hints, parallel
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason, is_true
from shared.cluster import resources, writes
from shared.launch.instances import describe_cluster_instances, instance_id
from shared.termination import garbage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from functions.lifecycle.context import Run
    from functions.lifecycle.liveness import GivenUp
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.launch.instances import Instance
    from shared.snapshot import Snapshot
    from shared.termination.delayed_eviction import DelayedPods

_STEPS = {
    nodeclaim.REGISTERED: EventReason("Registered"),
    nodeclaim.INITIALIZED: EventReason("Initialized"),
}
"""The conditions that a claim gets with its node, each with the event that says so."""
_TOGETHER = 2 * parallel.THREADS
"""Nodes that join at once, before those whose pods wait for them are told."""


def bring_forward(run: Run, snapshot: Snapshot) -> Mapping[str, GivenUp]:
    """Bring each claim as far as its node is. By pool, why one of its claims was given up, if any was."""
    nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
    launched = _launched(run, snapshot)
    releasing = _releasing(run, snapshot, nodes)
    failed: dict[str, GivenUp] = {}
    joining: list[tuple[NodeClaim, Node]] = []
    for claim in snapshot.node_claims:
        if claim.metadata.deletion_timestamp is not None:
            continue
        node = nodes.get(claim.status.provider_id) if claim.status.provider_id else None
        if node is not None:
            joining.append((claim, node))
            continue
        if claim.name in launched.dealt:
            run.each(claim.ref, partial(restore, run, claim, launched.dealt[claim.name]))
            continue
        group = claim.metadata.annotations.get(names.LAUNCH_GROUP, "")
        given_up = liveness.given_up(claim, now=run.now, undealt=launched.undealt.get(group, ""))
        if given_up is not None:
            failed[claim.metadata.labels.get(names.NODEPOOL, "")] = given_up
            run.each(claim.ref, partial(_give_up, run, claim, given_up))
    _join_all(run, joining, releasing)
    run.each("drains", releasing.rest)
    return failed


def adopt(run: Run, snapshot: Snapshot) -> None:
    """Take over what Karpenter, or an older version, made: our finalizer, and fingerprints of our version."""
    pools = {p.name: p for p in snapshot.node_pools}
    classes = {c.name: c for c in snapshot.node_classes}
    for claim in snapshot.node_claims:
        pool = pools.get(claim.metadata.labels.get(names.NODEPOOL, ""))
        node_class = classes.get(claim.spec.node_class_ref.name)
        change = partial(registration.adopted, pool=pool, node_class=node_class)
        run.each(claim.ref, partial(run.update, resources.NODE_CLAIMS, claim, change))


@dataclass(frozen=True, kw_only=True)
class _Launched:
    """Living instances of claims that are late and name none: by claim, or by launch group where none has it yet."""

    dealt: Mapping[str, Instance] = field(default_factory=dict)
    undealt: Mapping[str, str] = field(default_factory=dict)


def _launched(run: Run, snapshot: Snapshot) -> _Launched:
    late = {c.name: c for c in snapshot.node_claims if liveness.is_late(c, now=run.now)}
    if not late:
        return _Launched()
    held = {instance_id(c.status.provider_id) for c in snapshot.node_claims}
    free = [
        i for i in describe_cluster_instances(run.settings.cluster_name) if garbage.is_alive(i) and i.id not in held
    ]
    return _Launched(
        dealt={name: i for i in free if (name := i.tags.get(names.NODECLAIM_TAG, "")) in late},
        undealt={
            group: i.id for i in free if names.NODECLAIM_TAG not in i.tags and (group := i.tags.get(names.LAUNCH_GROUP))
        },
    )


def _join_all(run: Run, joining: Iterable[tuple[NodeClaim, Node]], releasing: Releasing) -> None:
    """Join them, several at once: a hundred nodes that come together shall not wait for one another.

    Whoever waits for one of them is released when it is there, not when all are.
    """

    def join(pair: tuple[NodeClaim, Node]) -> None:
        run.each(pair[0].ref, partial(_join, run, *pair))

    changing: list[tuple[NodeClaim, Node]] = []
    for claim, node in joining:
        if _is_further(claim, node, now=run.now):
            changing.append((claim, node))
        else:
            run.each(claim.ref, partial(releasing.after, claim.name))
    for first in range(0, len(changing), _TOGETHER):
        together = changing[first : first + _TOGETHER]
        parallel.each(join, together)
        for claim, _ in together:
            run.each(claim.ref, partial(releasing.after, claim.name))


def _is_further(claim: NodeClaim, node: Node, *, now: datetime) -> bool:
    """Whether anything of the two is to be written."""
    after = registration.node_after(node, claim)
    return after != node or registration.claim_after(claim, after, now=now) != claim


def _join(run: Run, claim: NodeClaim, node: Node) -> None:
    node = writes.update(run.client, resources.NODES, node, lambda n: registration.node_after(n, claim))
    after = writes.update_status(
        run.client,
        resources.NODE_CLAIMS,
        claim,
        lambda c: registration.claim_after(c, node, now=run.now),
    )
    for type_, reason in _STEPS.items():
        if is_true(after.status.conditions, type_) and not is_true(claim.status.conditions, type_):
            run.logger.info(
                "A NodeClaim got further",
                extra={"nodeclaim": claim.name, "node": node.metadata.name, "now": type_},
            )
            run.recorder.record(claim.ref, "Normal", reason, f"node {node.metadata.name}")
            made = claim.metadata.creation_timestamp
            with run.counting:
                if type_ == nodeclaim.REGISTERED:
                    run.report.registered += 1
                else:
                    run.report.initialized += 1
                    taken = (run.now - made).total_seconds() if made is not None else 0.0
                    run.report.slowest_ready = max(run.report.slowest_ready, taken)


def _give_up(run: Run, claim: NodeClaim, why: GivenUp) -> None:
    run.give_up(claim, why.reason, why.message)
    run.report.given_up += 1


def _releasing(run: Run, snapshot: Snapshot, nodes: Mapping[str, Node]) -> Releasing:
    """The drains that can go on because pods stayed until some of these nodes joined."""

    def write(claim: str, stays: DelayedPods) -> None:
        run.each(claim, partial(release, run.client, claim, stays))

    return Releasing(snapshot.node_claims, nodes, write=write, tell=partial(run.send, hints.DRAIN))

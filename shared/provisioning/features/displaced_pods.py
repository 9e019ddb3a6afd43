"""Finds out which machines had no room for the pods that they were launched for, and brakes launching them again.

A pod that is gone may have been deleted by anybody; its events say whether it was preempted by a DaemonSet's pod or
evicted by the kubelet. What is known of the last half hour is kept in a record in the cluster: machines without pods
are soon deleted, with their NodeClaims.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ApiStruct, decode_annotation
from shared.api.pods import controller, is_daemon, waited
from shared.base.struct import with_fields
from shared.cluster import lease_record, listing, resources
from shared.cluster.errors import ApiError
from shared.provisioning.round import SETTLING_SECONDS, Feature
from shared.scheduling.nominations import displacements
from shared.scheduling.nominations.displacements import ROOM_FOR_DAEMON, Brake, PossibleLoss, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aws_lambda_powertools import Logger

    from shared.api.kubernetes import Pod
    from shared.cloud_provider import ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.lease_record import LeaseRecord
    from shared.provisioning.round import Provisioning, Round, Schedule
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

RECORD = "displaced-pods"
_MAX_LOOKUPS = 10
"""The pods whose events are read in one run, those of the newest machines first."""
_PREEMPTED = "Preempted"
_EVICTED = frozenset(
    {
        "Evicted",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "Preempting",
        "TaintManagerEviction",
    }
)
"""The reasons of events by which the kubelet or the taint controller says that a pod can't stay on its node."""
_EVICTING_COMPONENTS = frozenset({"kubelet", "node-controller", "taint-eviction-controller"})
"""Evictions by others, Tenon's own drains too, say nothing about a machine's room, but for those that make room."""


class _Related(ApiStruct):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Source(ApiStruct):
    component: str = ""


class _Event(ApiStruct):
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    related: _Related | None = None

    @property
    def is_eviction(self) -> bool:
        """Whether the node could not keep the pod."""
        return self.reason in _EVICTED and self.source.component in _EVICTING_COMPONENTS

    def makes_room_for(self, daemons: Collection[str]) -> bool:
        """Whether the pod was evicted for one of these pods."""
        waiting = self.message.partition(f"{ROOM_FOR_DAEMON}, ")[2]
        return self.reason in _EVICTED and waiting in daemons


class DisplacedPods(Feature, kw_only=True):
    """The brake on launching the same machine again for pods that lost theirs; a first machine has none."""

    provisioning: Provisioning

    def after(self, round_: Round) -> Round:
        """The round decided again without the pods that get no machine now, which have the reason."""
        if not round_.decision.new_node_claims:
            return round_
        settings, logger = self.provisioning.settings, self.provisioning.logger
        brake = brake_for(
            self.provisioning.client, round_.snapshot, round_.decision, cluster=settings.cluster_name, logger=logger
        )
        if brake is None:
            return round_
        return self.provisioning.decide(with_fields(round_, schedule=partial(_schedule_braked, round_.schedule, brake)))


def _schedule_braked(
    schedule: Schedule, brake: Brake, snapshot: Snapshot, *, resolved_pools: ResolvedNodePools
) -> Decision:
    decision = schedule(with_fields(snapshot, pods=brake.snapshot.pods), resolved_pools=resolved_pools)
    return with_fields(decision, pod_errors={**decision.pod_errors, **brake.refused})


def brake_for(client: Client, snapshot: Snapshot, decision: Decision, *, cluster: str, logger: Logger) -> Brake | None:
    """The brake for pods that the decision launches machines for; None if there is nothing to brake.

    Without the record or the events, which may not be readable, nothing is braked.
    """
    pods = {pod.key: pod for pod in snapshot.pods}
    new_pods = {key: pods[key] for claim in decision.new_node_claims for key in claim.pods if key in pods}
    possible = displacements.possible_losses(snapshot, {displacements.workload_of(p) for p in new_pods.values()})
    if not possible and all(waited(p, now=snapshot.taken_at) < SETTLING_SECONDS for p in new_pods.values()):
        return None
    try:
        stored = lease_record.read(client, cluster=cluster, record=RECORD)
        before = _decoded(stored, logger)
        unknown = [loss for loss in possible if loss.claim.name not in before.get(loss.workload, {})]
        proven = _proven(client, unknown, snapshot, pods)
        after = displacements.with_losses(before, proven, now=snapshot.taken_at)
        if proven:
            lease_record.write(client, stored, msgspec.json.encode(after).decode())
    except ApiError as error:
        logger.warning("Couldn't read which pods lost their machines", extra={"record": RECORD, "why": str(error)})
        return None
    _log_losses(proven, after, logger)
    return displacements.brake(snapshot, after, new_pods)


def _log_losses(proven: Iterable[PossibleLoss], record: Record, logger: Logger) -> None:
    for loss in proven:
        logger.warning(
            "A machine refused pods that it was launched for"
            if loss.refused and not loss.kept_out
            else "A machine had no room for pods that it was launched for",
            extra={"nodeclaim": loss.claim.name, "pods": loss.pods, "machines": len(record[loss.workload])},
        )


def _decoded(stored: LeaseRecord, logger: Logger) -> Record:
    if not stored.text:
        return {}
    try:
        return decode_annotation(stored.text, Record)
    except msgspec.MsgspecError as error:
        logger.warning("Ignored a record that can't be used", extra={"record": str(stored), "why": str(error)})
        return {}


def _proven(
    client: Client, possible: Iterable[PossibleLoss], snapshot: Snapshot, pods: dict[str, Pod]
) -> list[PossibleLoss]:
    """The losses that need no proof or whose pods' events prove them."""
    lookups = 0
    proven: list[PossibleLoss] = []
    for loss in possible:
        if loss.needs_no_proof:
            proven.append(loss)
            continue
        daemons = _planned_daemons(loss, snapshot)
        for key in loss.pods:
            lookups += 1
            if lookups > _MAX_LOOKUPS:
                return proven
            if _was_displaced(client, key, pods, daemons):
                proven.append(loss)
                break
    return proven


def _planned_daemons(loss: PossibleLoss, snapshot: Snapshot) -> frozenset[str]:
    """The pods (namespace/name) of DaemonSets that existed when the NodeClaim was planned, so the plan has them."""
    planned = loss.claim.metadata.creation_timestamp
    if planned is None:
        return frozenset()
    older = {
        (d.metadata.namespace, d.metadata.name)
        for d in snapshot.daemon_sets
        if d.metadata.creation_timestamp is not None and d.metadata.creation_timestamp < planned
    }
    owned = ((pod, controller(pod.metadata)) for pod in snapshot.pods if is_daemon(pod))
    return frozenset(p.key for p, owner in owned if owner is not None and (p.metadata.namespace, owner.name) in older)


def _was_displaced(client: Client, key: str, pods: dict[str, Pod], planned: Collection[str]) -> bool:
    """Whether the pod's events say so; ``planned`` are pods of DaemonSets that its machine was planned with."""
    namespace, _, name = key.partition("/")
    listed = listing.list_objects(
        client,
        resources.EVENTS,
        _Event,
        fields=f"involvedObject.kind=Pod,involvedObject.name={name}",
        namespace=namespace,
    )
    return any(
        event.is_eviction or _is_by_daemon(event, pods) or event.makes_room_for(planned) for event in listed.objects
    )


def _is_by_daemon(event: _Event, pods: dict[str, Pod]) -> bool:
    """Whether a DaemonSet's pod preempted the pod. Any other takes its place once, not on each machine."""
    if event.reason != _PREEMPTED or event.related is None:
        return False
    preemptor = pods.get(f"{event.related.namespace}/{event.related.name}")
    return preemptor is not None and is_daemon(preemptor)

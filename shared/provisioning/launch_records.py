"""The report of a run of provisioning, its events, and what the launches of a decision cost: planned and bought price.

The latter goes to the decision log and a log line.
The lifecycle function adds the realised price once the decision's pods run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import EventReason
from shared.api.nodepool import node_group_of
from shared.api.pods import waited
from shared.base.decision_log import LaunchRecord
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import MutableStruct
from shared.cloud_provider import LaunchedInstance, LaunchFailure
from shared.scheduling.state.daemonsets import may_be_ignored

_MAX_EVENTS = 100
"""How many pods get an event in one run; the next run continues."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import LaunchResult
    from shared.cluster.events import Recorder
    from shared.provisioning.round import Round
    from shared.scheduling.decision import Decision, UnschedulableReason
    from shared.snapshot import Snapshot


class ProvisioningReport(MutableStruct, kw_only=True):
    """The results of all rounds.

    ``planned_price`` and ``bought_price`` are those of the launched NodeClaims, USD per hour.
    ``group_nodes`` is how many nodes node groups were asked for.
    ``decision_seconds`` is the slowest decision, ``longest_pod_wait`` the longest wait of a pod for its NodeClaim (s).
    Of the last round: ``unschedulable`` pods (namespace/name), ``unlaunched`` NodeClaims, the ``nominated_claims`` by
    pod that is expected on a node that doesn't exist yet, and the ``snapshot`` that was decided from.
    """

    claims_created: int = 0
    group_nodes: int = 0
    planned_price: float = 0.0
    bought_price: float = 0.0
    decision_seconds: float = 0.0
    longest_pod_wait: float | None = None
    launched: list[LaunchedInstance] = []
    failed: list[LaunchFailure] = []
    unschedulable: frozenset[str] = frozenset()
    unlaunched: frozenset[str] = frozenset()
    nominated_claims: Mapping[str, str] = {}
    snapshot: Snapshot | None = None

    @property
    def throttled(self) -> bool:
        """Whether EC2 throttled a call, so that the messages should be delivered again."""
        return any(f.kind == "throttled" for f in self.failed)

    def add_round(self, scheduled: Round, results: Sequence[LaunchResult], *, now: datetime) -> None:
        """Add a round's results."""
        claims = (*scheduled.unlaunched, *scheduled.created)
        launched = [r for r in results if isinstance(r, LaunchedInstance)]
        self.claims_created += len(scheduled.created)
        self.group_nodes += sum(scale_up.nodes for scale_up in scheduled.scale_ups)
        self.decision_seconds = max(self.decision_seconds, scheduled.decision.stats.get("seconds", 0.0))
        if any(claim.pods for claim in scheduled.decision.new_node_claims):
            self.longest_pod_wait = max(
                self.longest_pod_wait or 0.0, longest_pod_wait(scheduled.decision, scheduled.snapshot, now)
            )
        self.launched += launched
        self.planned_price += planned_price(claims, launched)
        self.bought_price += sum(r.price for r in launched)
        self.failed += [r for r in results if isinstance(r, LaunchFailure)]
        self.unschedulable = frozenset(scheduled.decision.pod_errors)
        self.nominated_claims, self.snapshot = scheduled.nominated_claims, scheduled.snapshot
        self.unlaunched = frozenset(c.name for c in claims) - {r.claim_name for r in launched}


def planned_price(claims: Iterable[NodeClaim], launched: Iterable[LaunchedInstance]) -> float:
    """USD per hour that those of the NodeClaims were planned with that have these instances."""
    prices = {c.name: nodeclaim.planned_price(c) for c in claims}
    return sum(prices[r.claim_name] for r in launched)


def record_launches(
    created: Sequence[NodeClaim],
    results: Iterable[LaunchResult],
    put: Callable[[LaunchRecord], None],
    *,
    pods: Mapping[str, str],
    before: float,
    now: datetime,
    logger: Logger,
) -> None:
    """Record the launches of a decision's ``created`` NodeClaims with ``put``.

    ``pods`` has the NodeClaim of each pod, ``before`` is the price of the nodes that existed and stay, USD per hour.
    """
    names_of_created = {c.name for c in created}
    launched = [r for r in results if isinstance(r, LaunchedInstance) and r.claim_name in names_of_created]
    if not launched:
        return
    record = LaunchRecord(
        decision=created[-1].metadata.annotations.get(names.DECISION, ""),
        at=now,
        pods=sum(claim in names_of_created for claim in pods.values()),
        nodes=len(launched),
        planned=planned_price(created, launched),
        bought=sum(r.price for r in launched),
        before=before,
    )
    logger.info(
        "Launched the nodes of a decision",
        extra={
            "decision": record.decision,
            "nodes": record.nodes,
            "pods": record.pods,
            "planned_usd_per_hour": round(record.planned, 6),
            "bought_usd_per_hour": round(record.bought, 6),
            "usd_per_hour_before": round(record.before, 6),
        },
    )
    put(record)


def record_nominations(scheduled: Round, results: Iterable[LaunchResult], recorder: Recorder) -> None:
    """Record on pods which of the NodeClaims that this round created, and that have an instance now, they get."""
    created = {c.name for c in scheduled.created}
    launched = {r.claim_name for r in results if isinstance(r, LaunchedInstance)} & created
    nominated = {pod: claim for pod, claim in scheduled.nominated_claims.items() if claim in launched}
    if not nominated:
        return
    pods = [p for p in scheduled.snapshot.pods if p.key in nominated and not p.spec.node_name][:_MAX_EVENTS]

    def record(pod: Pod) -> None:
        message = f"Pod should schedule on nodeclaim/{nominated[pod.key]}, which is launched for it"
        recorder.record(pod.ref, "Normal", "Nominated", message)

    in_threads(record, pods, threads=KUBERNETES_THREADS)


def nominated_claims(decision: Decision, snapshot: Snapshot) -> dict[str, str]:
    """By pod: the existing NodeClaim without a node that it is expected on."""
    nodes = {n.metadata.name for n in snapshot.nodes}
    return {pod: name for name, pods in decision.existing_nodes.items() if name not in nodes for pod in pods}


def longest_pod_wait(decision: Decision, snapshot: Snapshot, now: datetime) -> float:
    """The longest time in seconds that a pod has waited for one of the new NodeClaims."""
    pods = {key for claim in decision.new_node_claims for key in claim.pods}
    return max((waited(p, now=now) for p in snapshot.pods if p.key in pods), default=0.0)


def report_events(scheduled: Round, recorder: Recorder, logger: Logger) -> None:
    """Log and record events on NodePools that lack nodes, on unschedulable pods, and on pods that groups grow for.

    Where nodes are launched, also on the DaemonSets that they keep no room for.
    """
    _report_pools(scheduled, recorder, logger)
    snapshot = scheduled.snapshot
    if scheduled.decision.new_node_claims and snapshot.daemon_sets and may_be_ignored(snapshot):
        # Imported here: in most clusters, no DaemonSet is ignored.
        from shared.scheduling.state.ignored_daemonsets import ignored_daemon_sets  # noqa: PLC0415

        for ref, message in ignored_daemon_sets(snapshot, scheduled.resolved_pools.instance_types):
            recorder.record(ref, "Warning", "DaemonSetIgnored", message)
    # Not on pods that still run on a leaving node.
    errors = {**scheduled.recently_unavailable, **scheduled.decision.pod_errors}
    grown_for = {pod: scale_up.message for scale_up in scheduled.scale_ups for pod in scale_up.pods}
    pods = {p.key: p for p in snapshot.pods if not p.spec.node_name} if errors or grown_for else {}
    for key, error in sorted(errors.items())[:_MAX_EVENTS]:
        if key in pods:
            _record_unschedulable(pods[key], error, recorder)
            logger.warning("A pod can't be scheduled", extra={"pod": key, "why": error.message})
    for key, message in sorted(grown_for.items())[:_MAX_EVENTS]:
        if key in pods:
            recorder.record(pods[key].ref, "Normal", "TriggeredScaleUp", message)


def _report_pools(scheduled: Round, recorder: Recorder, logger: Logger) -> None:
    """Log and record why NodePools have fewer replicas or standby nodes."""
    missing = {
        EventReason("ReplicasMissing"): scheduled.missing_replicas,
        EventReason("StandbyNotPossible"): scheduled.missing_standbys,
    }
    for pool in scheduled.snapshot.node_pools if any(missing.values()) else ():
        for reason, messages in missing.items():
            if message := messages.get(pool.name):
                recorder.record(pool.ref, "Warning", reason, message)
                logger.warning("A NodePool lacks nodes", extra={"nodepool": pool.name, "why": message})


def _record_unschedulable(pod: Pod, error: UnschedulableReason, recorder: Recorder) -> None:
    """Record why a pod gets no node; in Cluster Autoscaler's words where node groups are scaled."""
    if any(node_group_of(name) for name in error.criteria):
        recorder.record(pod.ref, "Normal", "NotTriggerScaleUp", f"pod didn't trigger scale-up: {error.message}")
    else:
        recorder.record(pod.ref, "Warning", "FailedScheduling", error.message)

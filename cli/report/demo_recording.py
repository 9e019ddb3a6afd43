"""A run of the demo as a recording: from the local cluster's timeline, with reasons from the decision log."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from cli.cluster.offerings import CatalogOfferings
from cli.object_snapshot import snapshot_of
from cli.report.lower_bound import BoundedPod, lower_bound
from cli.report.recording import Mark, NodeSpan, RecordedDecision, RecordedLaunches, Recording, Sample
from local.world import catalog_cache
from shared.api.kubernetes import Pod
from shared.api.pods import is_daemon
from shared.api.quantity import QuantityError
from shared.base import aws, decision_log, runtime
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from cli.report.lower_bound import LowerBound
    from local.kubernetes.objects import Change
    from local.world import World
    from local.world.timeline import TimelineEvent
    from shared.base.decision_log import DecisionRecord, LaunchRecord

_DECIMALS = 3
_SPAN_TIMES = {
    "claim created": "created", "claim launched": "launched", "claim initialized": "ready",
    "claim terminating": "deleted", "claim deleted": "terminated",
}  # fmt: skip
"""The time of a :class:`NodeSpan` that each timeline event sets."""

_BOUNDING_KINDS = (
    ("v1", "Node"),
    ("v1", "LimitRange"),
    ("apps/v1", "DaemonSet"),
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.sh/v1alpha5", "Provisioner"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
)
"""What a node may be, and what of it isn't for pods, with the versions as they are stored."""


class Recorder(MutableStruct):
    """Records a local cluster from the moment the recorder is created."""

    world: World
    price: Callable[[str, str, str], float]
    title: str
    marks: list[tuple[datetime, str]] = []
    pods: dict[str, BoundedPod] = {}
    first_event: int = 0

    def __post_init__(self) -> None:
        self.first_event = len(self.world.timeline.all)
        self.world.store.subscribe(self._on_change)

    def mark(self, label: str) -> None:
        """Mark the start of a step."""
        self.marks.append((self.world.clock.now(), label))

    def recording(self) -> Recording:
        """The run so far."""
        now = self.world.clock.now()
        start = self.marks[0][0] if self.marks else now

        def at(moment: datetime) -> float:
            return round((moment - start).total_seconds(), _DECIMALS)

        events = sorted(self.world.timeline.all[self.first_event :], key=lambda e: e.at)
        disruptions, launches = self._decision_log(start)
        decisions = [RecordedDecision.of(d, at(d.at)) for d in disruptions]
        bound = self._lower_bound()
        return Recording(
            title=self.title,
            start=start,
            end=at(now),
            spans=_node_spans(events, at, self.price, decisions),
            samples=_samples(events, at, self.price, self.pods, bound),
            decisions=sorted(decisions, key=lambda d: (d.at, d.node)),
            launches=[RecordedLaunches.of(record, at(record.at)) for record in launches],
            marks=[Mark(at(moment), label) for moment, label in self.marks],
        )

    def _on_change(self, change: Change) -> None:
        """Remember the requests of each new pod: the timeline doesn't have them."""
        if change.kind.kind != "Pod" or change.type != "ADDED":
            return
        pod = msgspec.convert(change.object, Pod)
        if is_daemon(pod):
            return
        try:
            self.pods[pod.key] = BoundedPod.of(pod)
        except QuantityError:
            return

    def _decision_log(self, start: datetime) -> tuple[tuple[DecisionRecord, ...], tuple[LaunchRecord, ...]]:
        environ = self.world.aws.deployed.function("disruption").environ
        with runtime.using(runtime.Runtime(environ=environ, now=self.world.clock.now, sleep=self.world.clock.sleep)):
            table = environ["TENON_TABLE_NAME"]
            disruptions = decision_log.since(aws.dynamodb_with_errors(), table, start)
            return disruptions, decision_log.launches_since(aws.dynamodb_with_errors(), table, start)

    def _lower_bound(self) -> LowerBound:
        world = self.world
        now = world.clock.now()
        objects = {kind: world.store.list(world.store.kind(version, kind)) for version, kind in _BOUNDING_KINDS}
        snapshot, _ = snapshot_of(objects, now=now, used=objects, refused={})
        offerings = CatalogOfferings(raw=catalog_cache.load_or_fetch(region=world.region, seed=world.seed, now=now))
        requested = {resource for pod in self.pods.values() for resource in pod.requests}
        return lower_bound(snapshot, offerings.resolve_pools(snapshot), requested)


def _node_spans(
    events: Sequence[TimelineEvent],
    at: Callable[[datetime], float],
    price: Callable[[str, str, str], float],
    decisions: Sequence[RecordedDecision],
) -> list[NodeSpan]:
    times: dict[str, dict[str, float]] = {}
    details: dict[str, dict[str, str]] = {}
    for event in events:
        if event.type in _SPAN_TIMES:
            times.setdefault(event.name, {}).setdefault(_SPAN_TIMES[event.type], at(event.at))
            details.setdefault(event.name, {}).update({k: str(v) for k, v in event.details.items() if v})
    most_pods = _most_pods(events)
    reasons = {d.node: f"{d.reason}: {d.why}" for d in decisions if d.outcome == "taken"}
    spans = []
    for claim, claim_times in times.items():
        claim_details: defaultdict[str, str] = defaultdict(str, details[claim])
        node = claim_details["node"]
        offering = claim_details["instance_type"], claim_details["zone"], claim_details["capacity_type"]
        spans.append(
            NodeSpan(
                name=node or claim,
                pool=claim_details["pool"],
                instance_type=offering[0],
                zone=offering[1],
                capacity_type=offering[2],
                price=price(*offering) if "launched" in claim_times else None,
                most_pods=most_pods[node],
                why=reasons.get(node, ""),
                chunks=0,
                **claim_times,
            )
        )
    return sorted(spans, key=lambda s: (s.created or 0.0, s.name))


def _most_pods(events: Iterable[TimelineEvent]) -> Counter[str]:
    """The largest number of pods that each node had at a time."""
    current: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for event in events:
        if event.type in {"pod bound", "pod deleted"} and event.details["node"]:
            node = event.details["node"]
            current[node] += 1 if event.type == "pod bound" else -1
            most[node] = max(most[node], current[node])
    return most


def _samples(
    events: Iterable[TimelineEvent],
    at: Callable[[datetime], float],
    price: Callable[[str, str, str], float],
    pods: dict[str, BoundedPod],
    bound: LowerBound,
) -> list[Sample]:
    """The totals after each event that changes them; of several at one moment the last."""
    costs: dict[str, float] = {}
    pending: set[str] = set()
    scheduled: dict[str, BoundedPod] = {}
    samples = {0.0: Sample(0.0, 0.0, 0.0, 0, 0)}
    for event in events:
        match event.type:
            case "claim launched":
                details = event.details
                costs[event.name] = price(details["instance_type"], details["zone"], details["capacity_type"])
            case "claim deleted":
                costs.pop(event.name, None)
            case "pod created" if event.name in pods:
                pending.add(event.name)
            case "pod bound" if event.name in pods:
                pending.discard(event.name)
                scheduled[event.name] = pods[event.name]
            case "pod deleted":
                pending.discard(event.name)
                scheduled.pop(event.name, None)
            case _:
                continue
        moment = max(0.0, at(event.at))
        cost = round(sum(costs.values(), 0.0), 6)
        samples[moment] = Sample(moment, cost, round(bound.of(scheduled.values()), 6), len(scheduled), len(pending))
    return list(samples.values())

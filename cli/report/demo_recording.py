"""A world's run as a recording: everything from what the cluster and AWS saw, reasons from the decision log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from cli.cluster.offerings import CatalogOfferings
from cli.report.lower_bound import bound
from cli.report.recording import Decided, Mark, Recording, Sample, Span
from local.kubernetes import kinds
from local.world import catalog_cache
from shared import aws, decision_log, runtime
from shared.api.kubernetes import DaemonSet, Node, Pod
from shared.api.pods import is_daemon, requests
from shared.api.quantity import QuantityError, add
from shared.cluster import conversion
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from cli.report.lower_bound import Bound
    from local.kubernetes.objects import Change
    from local.world import World
    from local.world.timeline import TimelineEvent
    from shared.api.quantity import Resources
    from shared.decision_log import DecisionRecord

_ROUNDING = 3


@dataclass
class Recorder:
    """Listens to a world from the moment it is made."""

    world: World
    price: Callable[[str, str, str], float]
    title: str
    marks: list[tuple[datetime, str]] = field(default_factory=list)
    asked: dict[str, Resources] = field(default_factory=dict)
    begun: int = 0

    def __post_init__(self) -> None:
        self.begun = len(self.world.timeline.all)
        self.world.store.subscribe(self._note)

    def mark(self, label: str) -> None:
        """A step begins now."""
        self.marks.append((self.world.clock.now(), label))

    def recording(self) -> Recording:
        """The run so far."""
        start, end = self.marks[0][0] if self.marks else self.world.clock.now(), self.world.clock.now()
        logged = self._logged(start)

        def at(moment: datetime) -> float:
            return round((moment - start).total_seconds(), _ROUNDING)

        happenings = sorted(self.world.timeline.all[self.begun :], key=lambda h: h.at)
        decisions = [_decided(d, at(d.at)) for d in logged]
        decisions += _interruptions(happenings, at)
        return Recording(
            title=self.title,
            start=start,
            end=at(end),
            spans=_spans(happenings, at, self.price, decisions),
            samples=_samples(happenings, at, self.price, self.asked, self._bound()),
            decisions=sorted(decisions, key=lambda d: (d.at, d.node)),
            marks=[Mark(at(moment), label) for moment, label in self.marks],
        )

    def _note(self, change: Change) -> None:
        if change.kind.kind != "Pod" or change.type != "ADDED":
            return
        pod = msgspec.convert(change.object, Pod)
        if is_daemon(pod):
            return
        try:
            self.asked[pod.key] = requests(pod)
        except QuantityError:
            return

    def _logged(self, start: datetime) -> tuple[DecisionRecord, ...]:
        environ = self.world.aws.deployed.function("disruption").environ
        with runtime.using(runtime.Runtime(environ=environ, now=self.world.clock.now, sleep=self.world.clock.sleep)):
            return decision_log.since(aws.dynamodb(), environ["TENON_TABLE_NAME"], start)

    def _bound(self) -> Bound:
        world = self.world
        now = world.clock.now()
        kept = {
            name: world.store.list(world.store.kind(version, name))
            for version, name in (
                ("karpenter.sh/v1", "NodePool"),
                ("karpenter.sh/v1alpha5", "Provisioner"),
                ("karpenter.k8s.aws/v1", "EC2NodeClass"),
                ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
            )
        }
        snapshot = Snapshot(
            taken_at=now,
            nodes=tuple(msgspec.convert(n, Node) for n in world.nodes()),
            node_pools=conversion.node_pools([*kept["NodePool"], *kept["Provisioner"]])[0],
            node_classes=conversion.node_classes([*kept["EC2NodeClass"], *kept["AWSNodeTemplate"]])[0],
            daemon_sets=tuple(msgspec.convert(d, DaemonSet) for d in world.store.list(kinds.DAEMON_SETS)),
        )
        sold = CatalogOfferings(raw=catalog_cache.load_or_fetch(region=world.region, seed=world.seed, now=now))
        return bound(snapshot, sold.resolve_pools(snapshot), {r for one in self.asked.values() for r in one})


def _decided(logged: DecisionRecord, at: float) -> Decided:
    return Decided(
        at=at, node=logged.node, outcome=logged.outcome, reason=logged.reason, why=logged.why, savings=logged.savings
    )


def _interruptions(happenings: Iterable[TimelineEvent], at: Callable[[datetime], float]) -> list[Decided]:
    """What EC2 decided: machines that it takes back."""
    nodes: dict[str, str] = {}
    found = []
    for h in happenings:
        if h.type == "claim registered":
            nodes[h.details["instance"]] = h.details["node"]
        if h.type == "interruption":
            why = f"EC2 takes {h.name} back two minutes later"
            node = nodes.get(h.name, h.name)
            found.append(Decided(at=at(h.at), node=node, outcome="taken", reason="Interrupted", why=why))
    return found


_STEPS = {
    "claim created": "asked", "claim launched": "launched", "claim initialized": "ready", "claim leaving": "leaving",
    "claim gone": "gone",
}  # fmt: skip


def _spans(
    happenings: Iterable[TimelineEvent],
    at: Callable[[datetime], float],
    price: Callable[[str, str, str], float],
    decisions: Sequence[Decided],
) -> list[Span]:
    times: dict[str, dict[str, float]] = {}
    about: dict[str, dict[str, str]] = {}
    on: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for h in happenings:
        if h.type in _STEPS:
            times.setdefault(h.name, {}).setdefault(_STEPS[h.type], at(h.at))
            about.setdefault(h.name, {}).update({k: str(v) for k, v in h.details.items() if v})
        elif h.type in {"pod bound", "pod gone"} and h.details["node"]:
            on[h.details["node"]] += 1 if h.type == "pod bound" else -1
            most[h.details["node"]] = max(most[h.details["node"]], on[h.details["node"]])
    why = {d.node: f"{d.reason}: {d.why}" for d in decisions if d.outcome == "taken"}
    found = []
    for claim, moments in times.items():
        observed = about[claim]
        node = observed.get("node", "")
        kind = observed.get("instance_type", ""), observed.get("zone", ""), observed.get("capacity_type", "")
        found.append(
            Span(
                name=node or claim,
                pool=observed.get("pool", ""),
                instance_type=kind[0],
                zone=kind[1],
                capacity_type=kind[2],
                price=price(*kind) if "launched" in moments else None,
                most_pods=most[node],
                why=why.get(node, ""),
                **moments,
            )
        )
    return sorted(found, key=lambda s: (s.asked or 0.0, s.name))


def _samples(
    happenings: Iterable[TimelineEvent],
    at: Callable[[datetime], float],
    price: Callable[[str, str, str], float],
    asked: dict[str, Resources],
    least: Bound,
) -> list[Sample]:
    costs: dict[str, float] = {}
    pending: set[str] = set()
    placed: dict[str, Resources] = {}
    found = [Sample(0.0, 0.0, 0.0, 0, 0)]
    for h in happenings:
        match h.type:
            case "claim launched":
                costs[h.name] = price(h.details["instance_type"], h.details["zone"], h.details["capacity_type"])
            case "claim gone":
                costs.pop(h.name, None)
            case "pod created" if h.name in asked:
                pending.add(h.name)
            case "pod bound" if h.name in asked:
                pending.discard(h.name)
                placed[h.name] = asked[h.name]
            case "pod gone":
                pending.discard(h.name)
                placed.pop(h.name, None)
            case _:
                continue
        moment = max(0.0, at(h.at))
        total = add(*placed.values()) if placed else {}
        now = Sample(moment, round(sum(costs.values(), 0.0), 6), round(least.of(total), 6), len(placed), len(pending))
        if found[-1].at == moment:
            found[-1] = now
        else:
            found.append(now)
    return found

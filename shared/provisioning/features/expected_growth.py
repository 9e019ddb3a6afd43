"""Expected growth: a node that is bought while a workload grows has room for the pods of the next hour.

A service that is scaled out over hours gets its pods one by one. A node for each few of them is small, each runs all
DaemonSets again, and consolidation replaces them later, which moves pods. EC2 asks about as much for two small nodes as
for one of twice their size, so one node that is filled within the hour costs less than several that are full at once.

What is expected is what came: as many pods of each workload as it has got more over the last hour. Not expected are
pods of workloads that jumped (a burst says nothing about the next one) or are being updated, of Jobs, and those that
ask for extended resources: GPUs without pods cost too much.

Expected pods are pods of the decision alone. They get no node of their own, take no room from pods that exist, and a
decision that would leave one of these without a node is made without them. What has been seen is remembered by the
process: one that has just started expects nothing, so nothing depends on it.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from shared.api.kubernetes import Affinity, Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.pods import is_daemon, requests
from shared.api.quantity import QuantityError
from shared.base import runtime
from shared.base.struct import Struct, with_fields
from shared.disruption.workloads import current_workloads, workload_of
from shared.provisioning.round import Feature
from shared.scheduling.buffers.chunks import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from shared.disruption.workloads import CurrentWorkloads
    from shared.provisioning.round import Provisioning, Round
    from shared.snapshot import Snapshot

WINDOW = timedelta(hours=1)
"""The growth over this time is expected once more."""
_LEAST, _MOST = 0.5, 4.0
"""Growth that was seen over less or more, in windows, says nothing about the next one."""
_STEP = WINDOW / 12
"""How long after an observation the next one is made, so that there are few."""
_JUMP = 0.25
"""A workload that grew by a greater share in a window is not expected to go on."""
_MOST_EXPECTED = 0.1
"""The most expected pods, as a share of all."""
_BASIC = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_LAST = "~"
"""Sorts expected pods after others of their kind, which so get the best of the nodes that are planned for all."""
_FINITE = ("Job ", "CronJob ")


class _Observation(Struct):
    at: datetime
    pods: Mapping[str, int]
    """By workload."""


class GrowthHistory:
    """How many pods each workload had, as one process saw it, and what follows for the next window."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._observations: deque[_Observation] = deque()
        self._expected: dict[str, int] = {}

    def expected(self, current: Callable[[], CurrentWorkloads], *, now: datetime) -> dict[str, int]:
        """How many more pods of each workload are expected over the next window.

        Counting the pods of a large cluster takes time, so that is done once in a while.
        """
        if not self._observations or now - self._observations[-1].at >= _STEP:
            self._expected = self._observe(current(), now)
        return self._expected

    def _observe(self, current: CurrentWorkloads, now: datetime) -> dict[str, int]:
        seen = self._observations
        pods = {name: workload.pods for name, workload in current.workloads.items()}
        seen.append(_Observation(now, pods))
        while len(seen) > 1 and now - seen[1].at >= WINDOW:
            seen.popleft()
        windows = (now - seen[0].at) / WINDOW
        if not _LEAST <= windows <= _MOST:
            return {}
        steady = {name: pods for name, pods in seen[0].pods.items() if name not in current.changing}
        return _rounded(_growth(steady, pods, windows), most=int(_MOST_EXPECTED * sum(pods.values())))


def _growth(before: Mapping[str, int], now: Mapping[str, int], windows: float) -> Iterator[tuple[str, float]]:
    for name in sorted(before):
        grown = (now.get(name, 0) - before[name]) / windows
        if 0 < grown <= max(1.0, _JUMP * before[name]) and not name.startswith(_FINITE):
            yield name, grown


def _rounded(expected: Iterable[tuple[str, float]], *, most: int) -> dict[str, int]:
    """Whole pods: what is rounded off is carried on to the next workload, so that the sum is right."""
    rounded: dict[str, int] = {}
    total = 0.0
    taken = 0
    for name, pods in expected:
        total += pods
        if whole := min(round(total), most) - taken:
            rounded[name] = whole
            taken += whole
    return rounded


def expected_pods(snapshot: Snapshot, expected: Mapping[str, int]) -> tuple[Pod, ...]:
    """The pods that stand for so many more of each workload: like one of its pods, without rules about other pods."""
    examples: dict[str, Pod] = {}
    for pod in snapshot.pods if expected else ():
        if len(examples) == len(expected):
            break
        if not is_daemon(pod) and (name := workload_of(pod)) in expected:
            examples.setdefault(name, pod)
    return tuple(
        _like(pod, f"{_LAST}{pod.metadata.name}{SEPARATOR}{number}")
        for name, pod in sorted(examples.items())
        if _asks_for_basics(pod)
        for number in range(expected[name])
    )


def _asks_for_basics(pod: Pod) -> bool:
    try:
        return not pod.spec.resource_claims and _BASIC.issuperset(requests(pod))
    except QuantityError:
        return False


def _like(pod: Pod, name: str) -> Pod:
    spec = pod.spec
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=pod.metadata.namespace,
            annotations=pod.metadata.annotations,
        ),
        spec=PodSpec(
            node_selector=spec.node_selector,
            affinity=Affinity(node_affinity=spec.affinity.node_affinity) if spec.affinity is not None else None,
            tolerations=spec.tolerations,
            containers=[with_fields(c, ports=[]) for c in spec.containers],
            init_containers=[with_fields(c, ports=[]) for c in spec.init_containers],
            overhead=spec.overhead,
            resources=spec.resources,
            priority=spec.priority,
            runtime_class_name=spec.runtime_class_name,
        ),
    )


class ExpectedGrowth(Feature, kw_only=True):
    """The growth that one round expects."""

    history: GrowthHistory

    def before(self, round_: Round) -> Round:
        """The round with the pods that are expected."""
        expected = self.history.expected(partial(current_workloads, round_.snapshot), now=round_.now)
        pods = expected_pods(round_.snapshot, expected)
        return with_fields(round_, snapshot=with_fields(round_.snapshot, growth=pods)) if pods else round_


def expected_growth(provisioning: Provisioning) -> ExpectedGrowth:
    """The feature with what this process has seen."""
    return ExpectedGrowth(history=runtime.cached(f"{provisioning.by}:growth", GrowthHistory))

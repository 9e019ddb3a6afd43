"""Simulates a cluster with the pods of a trace, second by second, under rules that launch, move and remove nodes.

kube-scheduler binds a pod to the node that has room and that its default plugins score highest. A pod without a node
waits for the next decision, two seconds later, and then for the boot of the node. Each minute the rules say which nodes
are empty and which get soft taints. They consolidate at their own interval, and again as soon as a
command is started or carried out. Commands are validated after 15 s. Replacements are ready before their nodes are
drained. All rules have the same boots.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bench.month.bill import NodeSpan
from bench.month.catalog import DEFAULT_POOL, GPU_POOL, POOLS, RESOURCES, ZONES, size_of
from bench.month.simulated_objects import Record, SimulatedNode, SimulatedPod
from local.kubelets.behavior import Timing
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from bench.month.catalog import Catalog
    from bench.month.load_trace import Trace, TracePod
    from bench.month.simulated_objects import Command, Launch, Placement

BATCH, LAUNCH, VALIDATION, QUEUE, TERMINATION = 2, 2, 15, 5, 5
"""Seconds: from a pod's arrival to the decision (a batch ends after one idle second), of CreateFleet, from a command to
its validation (as Karpenter's), between looks at replacements, and from the drain to the instance's end."""
EMPTY_INTERVAL = 60
"""Seconds between looks at empty nodes."""
_MAX_NODES = 1024
_TIMING = Timing()


class Rules(Protocol):
    """What decides. ``is_concurrent``: consolidation continues while commands are in progress.

    ``interval`` is that between consolidations where none is in progress, in seconds.
    """

    is_concurrent: bool
    interval: int

    def place(self, cluster: SimulatedCluster, pods: Sequence[SimulatedPod]) -> Placement:
        """Where these pods go, which fit on no node that is ready."""
        ...

    def empty_nodes(self, cluster: SimulatedCluster) -> Sequence[str]:
        """The empty nodes to delete now."""
        ...

    def soft_taints(self, cluster: SimulatedCluster) -> Iterable[tuple[SimulatedNode, int]]:
        """How many soft taints nodes have from now on; the others have none."""
        ...

    def consolidate(self, cluster: SimulatedCluster) -> Command | None:
        """The next command; None while there is none."""
        ...

    def validated(self, cluster: SimulatedCluster, command: Command) -> Command | None:
        """The command as it is still valid; None when it isn't."""
        ...


class _ActiveCommand(MutableStruct):
    command: Command
    replacements: tuple[str, ...]
    target: dict[str, str]
    """The replacement by pod."""


class SimulatedCluster:
    """One trace under the rules; ``seed`` draws boots."""

    def __init__(self, trace: Trace, catalog: Catalog, rules: Rules, *, seed: int, seconds: int) -> None:
        self.catalog = catalog
        self.now = 0
        self.nodes: dict[str, SimulatedNode] = {}
        self.pods: dict[str, SimulatedPod] = {}
        self.pending: dict[str, SimulatedPod] = {}
        self.free = np.zeros((_MAX_NODES, len(RESOURCES)), np.int64)
        self.version = 0
        """Changes with every change of pods and nodes."""
        self.zone_counts: dict[str, NDArray[np.int64]] = {}
        """Pods by zone, of each workload with zone_spread."""
        self.record = Record()
        self._rules = rules
        self._seed, self._end = seed, seconds
        self.capacity = np.ones((_MAX_NODES, len(RESOURCES)), np.int64)
        self._bindable = np.zeros(_MAX_NODES, np.int8)
        """1 + the pool's index, 0 for rows that take no pods."""
        self.zone_indexes = np.zeros(_MAX_NODES, np.int64)
        self.pool_indexes = np.zeros(_MAX_NODES, np.int64)
        self.soft_taints = np.zeros(_MAX_NODES, np.int64)
        """How many soft taints each row has."""
        self._row_nodes: dict[int, SimulatedNode] = {}
        self._rows = list(range(_MAX_NODES - 1, -1, -1))
        self._top = 0
        self._serial, self._order = count(), count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._has_batch = False
        self._active: list[_ActiveCommand] = []
        self._is_deciding = False
        self._trace = trace

    def run(self) -> Record:
        """Simulate the whole trace."""
        for pod in self._trace.pods:
            if pod.created < self._end:
                self._at(pod.created, lambda pod=pod: self._create(pod))  # type: ignore[misc]  # bound in the loop
                self._at(pod.deleted, lambda pod=pod: self._delete(pod))  # type: ignore[misc]
        self._at(EMPTY_INTERVAL, self._sweep)
        self._at(self._rules.interval, self._consolidate_regularly)
        while self._events and self._events[0][0] < self._end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = self._end
        for node in self.nodes.values():
            self._bill(node, self._end)
        return self.record

    def _at(self, time: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    # --- pods ---

    def _create(self, trace: TracePod) -> None:
        pool = GPU_POOL if trace.gpus else DEFAULT_POOL
        size = np.array(size_of(trace.cpu, trace.memory, trace.gpus), np.int64)
        pod = SimulatedPod(trace, size, pool, self.now)
        self.pods[trace.name] = pod
        self._bind_or_wait(pod)

    def _delete(self, trace: TracePod) -> None:
        pod = self.pods.pop(trace.name)
        self.pending.pop(trace.name, None)
        if pod.node:
            self._unassign(pod)
        self.version += 1

    def _bind_or_wait(self, pod: SimulatedPod) -> None:
        self.version += 1
        row = self._best_row(pod)
        if row is not None:
            self._assign(pod, row)
            self._note_wait(pod)
            return
        self.pending[pod.trace.name] = pod
        if not self._has_batch:
            self._has_batch = True
            self._at(self.now + BATCH, self._decide)

    def _best_row(self, pod: SimulatedPod) -> int | None:
        """The node with room that kube-scheduler's default plugins and weights score highest, by cpu and memory.

        They are TaintToleration (3), NodeResourcesFit (least allocated, 1) and NodeResourcesBalancedAllocation (1).
        """
        top = self._top
        fits = (self._bindable[:top] == POOLS.index(pod.pool) + 1) & (self.free[:top] >= pod.size).all(1)
        if pod.trace.zone_spread:
            fits &= pod.allowed_zones(self.zone_counts)[self.zone_indexes[:top]]
        rows = np.flatnonzero(fits)
        if not len(rows):
            return None
        left = (self.free[rows, :2] - pod.size[:2]) / self.capacity[rows, :2]
        taints = self.soft_taints[rows]
        score = left.sum(1) / 2 - np.abs(left[:, 0] - left[:, 1]) / 2 - 3 * taints / max(1, taints.max())
        return int(rows[int(score.argmax())])

    def _assign(self, pod: SimulatedPod, row: int) -> None:
        node = self._row_nodes[row]
        node.pods[pod.trace.name] = pod
        node.empty_since = None
        node.last_pod_event = self.now
        pod.node = node.name
        self.free[row] -= pod.size
        self._count_zone(pod, node, 1)

    def _unassign(self, pod: SimulatedPod) -> None:
        node = self.nodes[pod.node]
        del node.pods[pod.trace.name]
        node.last_pod_event = self.now
        if not node.pods and node.is_ready:
            node.empty_since = self.now
        self.free[node.row] += pod.size
        self._count_zone(pod, node, -1)
        pod.node = ""

    def _count_zone(self, pod: SimulatedPod, node: SimulatedNode, change: int) -> None:
        if pod.trace.zone_spread:
            counts = self.zone_counts.setdefault(pod.trace.workload, np.zeros(len(ZONES), np.int64))
            counts[ZONES.index(node.zone)] += change

    def _note_wait(self, pod: SimulatedPod) -> None:
        waits = self.record.moved_waits if pod.is_moved else self.record.waits
        waits.append(self.now - pod.since)
        pod.since = self.now

    def _decide(self) -> None:
        """Bind what fits by now, and launch nodes for the other pending pods."""
        self._has_batch = False
        self._bind_pending()
        if not self.pending:
            return
        placement = self._rules.place(self, list(self.pending.values()))
        for name, node in placement.existing.items():
            self._assign(self.pending.pop(name), self.nodes[node].row)
        for launch in placement.launches:
            node_ = self._launch(launch, is_replacement=False)
            for name in launch.pods:
                self._assign(self.pending.pop(name), node_.row)
        self.record.unschedulable += len(self.pending)
        self.version += 1

    def _bind_pending(self) -> None:
        for pod in list(self.pending.values()):
            row = self._best_row(pod)
            if row is not None:
                del self.pending[pod.trace.name]
                self._assign(pod, row)
                self._note_wait(pod)

    # --- nodes ---

    def _launch(self, launch: Launch, *, is_replacement: bool) -> SimulatedNode:
        offerings = self.catalog.offerings[launch.pool]
        serial, row = next(self._serial), self._rows.pop()
        node = SimulatedNode(
            name=f"n{serial:06d}",
            row=row,
            instance_type=launch.instance_type,
            zone=launch.zone,
            capacity_type=launch.capacity_type,
            pool=launch.pool,
            price=offerings.price_of(launch.instance_type, launch.zone, launch.capacity_type),
            launched=self.now + LAUNCH,
            is_replacement=is_replacement,
            expected=launch.expected,
            is_reserved=is_replacement,
        )
        self.nodes[node.name] = self._row_nodes[row] = node
        self._top = max(self._top, row + 1)
        self.free[row] = offerings.free[offerings.row[launch.instance_type]]
        self.capacity[row] = self.free[row]
        self.soft_taints[row] = 0
        self.zone_indexes[row] = ZONES.index(launch.zone)
        self.pool_indexes[row] = POOLS.index(launch.pool)
        rng = random.Random(f"{self._seed} {serial}")  # noqa: S311 (boots)
        boot = _TIMING.draw(_TIMING.boot, rng) + _TIMING.draw(_TIMING.ready, rng)
        self._at(node.launched + round(boot.total_seconds()), lambda: self._initialize(node))
        self.version += 1
        return node

    def _initialize(self, node: SimulatedNode) -> None:
        node.is_ready, node.initialized = True, self.now
        node.last_pod_event = self.now
        node.empty_since = None if node.pods or node.is_reserved else self.now
        for pod in node.pods.values():
            self._note_wait(pod)
        self.version += 1
        self._update_bindable(node)
        self._bind_pending()

    def _update_bindable(self, node: SimulatedNode) -> None:
        takes_pods = node.is_ready and not node.is_leaving and not node.is_reserved
        self._bindable[node.row] = POOLS.index(node.pool) + 1 if takes_pods else 0

    def _remove(self, node: SimulatedNode) -> None:
        """Drain the node: its pods are bound elsewhere or wait."""
        node.is_leaving = True
        self._update_bindable(node)
        self._at(self.now + TERMINATION, lambda: self._terminate(node))
        self.version += 1

    def _terminate(self, node: SimulatedNode) -> None:
        del self.nodes[node.name], self._row_nodes[node.row]
        self._rows.append(node.row)
        self._bill(node, self.now)
        self.version += 1

    def _bill(self, node: SimulatedNode, end: int) -> None:
        if end > node.launched:
            offering = node.instance_type, node.zone, node.capacity_type
            self.record.spans.append(NodeSpan(*offering, node.launched, end))

    # --- disruption ---

    def _sweep(self) -> None:
        self._at(self.now + EMPTY_INTERVAL, self._sweep)
        if self.pending and not self._has_batch:
            self._has_batch = True
            self._at(self.now + BATCH, self._decide)
        if any(n.empty_since is not None and not n.is_leaving and not n.is_reserved for n in self.nodes.values()):
            for name in self._rules.empty_nodes(self):
                self._remove(self.nodes[name])
        self.soft_taints[:] = 0
        for node, taints in self._rules.soft_taints(self):
            self.soft_taints[node.row] = taints

    def _consolidate_regularly(self) -> None:
        self._at(self.now + self._rules.interval, self._consolidate_regularly)
        self._consolidate()

    def _consolidate(self) -> None:
        if self._is_deciding or (self._active and not self._rules.is_concurrent):
            return
        command = self._rules.consolidate(self)
        if command is not None:
            self._is_deciding = True
            self._at(self.now + VALIDATION, lambda: self._start(command))

    def _start(self, command: Command) -> None:
        """Validate the command and start it: the nodes take no more pods, and replacements are launched."""
        self._is_deciding = False
        valid = self._rules.validated(self, command)
        if valid is None:
            self.record.invalid += 1
            return
        self.record.commands += 1
        for name in valid.nodes:
            self.nodes[name].is_leaving = True
            self._update_bindable(self.nodes[name])
        target: dict[str, str] = {}
        replacements = []
        for launch in valid.launches:
            node = self._launch(launch, is_replacement=True)
            replacements.append(node.name)
            target.update(dict.fromkeys(launch.pods, node.name))
        self.version += 1
        self._active.append(_ActiveCommand(valid, tuple(replacements), target))
        self._process(self._active[-1])
        if self._rules.is_concurrent:
            self._consolidate()

    def _process(self, active: _ActiveCommand) -> None:
        """Drain the command's nodes once all replacements are ready."""
        if not all(self.nodes[name].is_ready for name in active.replacements):
            self._at(self.now + QUEUE, lambda: self._process(active))
            return
        self._active.remove(active)
        for name in active.replacements:
            self.nodes[name].is_reserved = False
            self._update_bindable(self.nodes[name])
        leaving = [self.nodes[name] for name in active.command.nodes]
        evicted = [pod for node in leaving for pod in node.pods.values()]
        for node in leaving:
            self._remove(node)
        self._move(evicted, active.target)
        for name in active.replacements:
            self.nodes[name].empty_since = None if self.nodes[name].pods else self.now
        if not self._rules.is_concurrent:
            self._at(self.now + QUEUE, self._consolidate)

    def _move(self, evicted: Iterable[SimulatedPod], target: Mapping[str, str]) -> None:
        """Evict the pods: those with a replacement start there, the others where kube-scheduler binds them."""
        pods = list(evicted)
        self.record.moved += len(pods)
        for pod in pods:
            self._unassign(pod)
            pod.is_moved, pod.since = True, self.now
        for pod in sorted(pods, key=lambda p: p.trace.name not in target):
            replacement = self.nodes.get(target.get(pod.trace.name, ""))
            if replacement is not None and (self.free[replacement.row] >= pod.size).all():
                self._assign(pod, replacement.row)
                self._note_wait(pod)
            else:
                self._bind_or_wait(pod)

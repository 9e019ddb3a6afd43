"""What a class of pods may be placed on, judged against everything at once.

A kind is a class with its choices made: which preferences still count, which alternative of its affinity, which
topology domains. Its masks over rows, offerings and existing places are all that packing looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.api.taints import EFFECTS, REPELLING, untolerated
from shared.scheduling.rules.host_ports import ports_conflict
from shared.scheduling.rules.requirements import Requirements, ValueSet, both, contradiction, only, signature
from shared.scheduling.topology.host_counts import HostRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.api.kubernetes import Toleration
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import ClusterState

    BoolArray = NDArray[np.bool_]
    Pins = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Feasibility:
    """Where pods of one class may go.

    ``custom`` numbers, by row, what they ask of labels that only pools define; ``mask_key`` is equal for kinds that may
    go to the same machines, ``asked`` for those of equal requirements.
    """

    requirements: Requirements
    options: BoolArray
    custom: NDArray[np.int64]
    offerings: BoolArray
    nodes: BoolArray
    host: HostRules
    ports: frozenset[HostPort]
    mounted_volumes: frozenset[tuple[str, str]]
    mask_key: int
    requirements_key: int = 0

    @cached_property
    def without_host_rules(self) -> Feasibility:
        """The kind for machines on which nobody holds a rule about hosts."""
        return replace(self, host=HostRules())

    @property
    def launchable(self) -> bool:
        """Whether there is any machine to buy for it."""
        return bool(self.options.any())


class FeasibilityChecker:
    """Judges requirements against the market and the inventory; remembers, as classes share most of them."""

    def __init__(self, launch_options: LaunchOptions, cluster_state: ClusterState) -> None:
        self.launch_options = launch_options
        self.cluster_state = cluster_state
        self._customs: dict[tuple[tuple[str, ValueSet], ...], int] = {(): 0}
        self._parts: dict[tuple[int, str, ValueSet], tuple[BoolArray | None, bool, ValueSet | None]] = {}
        self._tolerated: dict[tuple[tuple[tuple[str, str, str, str], ...], bool], tuple[BoolArray, BoolArray]] = {}
        self._costs: dict[tuple[int, bytes], float] = {}
        self._masks: dict[tuple[bytes, bytes, bytes], int] = {}
        self._asked: dict[object, int] = {}
        self._judged: dict[object, tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]] = {}

    def check(
        self, requirements: Requirements, tolerations: tuple[Toleration, ...], *, tolerate_prefer_no_schedule: bool
    ) -> tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]:
        """Rows, what is asked of custom labels by row, offerings, and places. ``soft``: PreferNoSchedule is no bar."""
        key = (signature(requirements), tolerations_key(tolerations), tolerate_prefer_no_schedule)
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = self._check(
                requirements, tolerations, tolerate_prefer_no_schedule=tolerate_prefer_no_schedule
            )
        return found

    def _check(
        self, requirements: Requirements, tolerations: tuple[Toleration, ...], *, tolerate_prefer_no_schedule: bool
    ) -> tuple[BoolArray, NDArray[np.int64], BoolArray, BoolArray]:
        launch_options = self.launch_options
        templates, places = self.tolerated(tolerations, tolerate_prefer_no_schedule=tolerate_prefer_no_schedule)
        options = np.zeros(len(launch_options.template_of), np.bool_)
        custom = np.zeros(len(launch_options.template_of), np.int64)
        offerings = np.ones(len(launch_options.offerings), np.bool_)
        for key, allowed in requirements.items():
            if key in launch_options.columns:
                offerings &= launch_options.offerings_allowed(key, allowed)
        for i, pool in enumerate(launch_options.templates):
            if not templates[i]:
                continue
            mask = np.ones(len(pool.types), np.bool_)
            narrowed: list[tuple[str, ValueSet]] = []
            for key, allowed in sorted(requirements.items()):
                if key in launch_options.columns:
                    continue
                if pool.catalog.knows(key):
                    mask &= pool.catalog.types_allowed(key, allowed)[pool.types]
                    continue
                state = pool.state(key)
                met = state & allowed
                if met.empty:
                    break
                if met != state:
                    narrowed.append((key, met))
            else:
                options[pool.options] = mask & np.isfinite(launch_options.price[pool.options][:, offerings]).any(1)
                custom[pool.options] = self._customs.setdefault(tuple(narrowed), len(self._customs))
        return options, custom, offerings, places & self.cluster_state.allowed(requirements)

    def tolerated(
        self, tolerations: tuple[Toleration, ...], *, tolerate_prefer_no_schedule: bool
    ) -> tuple[BoolArray, BoolArray]:
        """Which pools' and which places' taints are tolerated."""
        key = (tolerations_key(tolerations), tolerate_prefer_no_schedule)
        found = self._tolerated.get(key)
        if found is None:
            effects = REPELLING if tolerate_prefer_no_schedule else EFFECTS
            carried = {
                *(p.taints for p in self.launch_options.templates),
                *(p.taints for p in self.cluster_state.nodes),
            }
            by_taints = {t: untolerated(tolerations, t, effects=effects) is None for t in carried}
            found = self._tolerated[key] = (
                np.fromiter(
                    (by_taints[p.taints] for p in self.launch_options.templates),
                    np.bool_,
                    len(self.launch_options.templates),
                ),
                np.fromiter(
                    (by_taints[p.taints] for p in self.cluster_state.nodes), np.bool_, len(self.cluster_state.nodes)
                ),
            )
        return found

    def cost(self, feasibility: Feasibility, requests: NDArray[np.int64]) -> float:
        """The least share of a machine's price that a pod of this size takes, USD per hour; inf if none fits."""
        key = (feasibility.mask_key, requests.tobytes())
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._cost(feasibility, requests)
        return found

    def _cost(self, feasibility: Feasibility, requests: NDArray[np.int64]) -> float:
        if not feasibility.launchable:
            return float("inf")
        bought = self.launch_options.price[feasibility.options][:, feasibility.offerings].min(1)
        needed = np.flatnonzero(requests)
        share = (requests[needed] / np.maximum(self.launch_options.free[feasibility.options][:, needed], 1)).max(1)
        share[share > 1] = np.inf
        return float((bought * share).min())

    def custom_values(self, number: int) -> Mapping[str, ValueSet]:
        """What a number of ``custom`` stands for."""
        return dict(list(self._customs)[number])

    def _taken(self, ports: frozenset[HostPort]) -> BoolArray:
        """The rows on which a daemon has one of these ports."""
        found = np.zeros(len(self.launch_options.template_of), np.bool_)
        for pool in self.launch_options.templates:
            for daemon_ports, runs in pool.daemon_ports:
                if ports_conflict(ports, daemon_ports):
                    found[pool.options] |= runs
        return found

    def feasibility(
        self,
        requirements: Requirements,
        tolerations: tuple[Toleration, ...],
        host: HostRules,
        *,
        tolerate_prefer_no_schedule: bool,
        pins: Pins = (),
        ports: frozenset[HostPort] = frozenset(),
        mounted_volumes: frozenset[tuple[str, str]] = frozenset(),
    ) -> Feasibility | None:
        """The kind of these requirements within these domains; None where they contradict each other."""
        pinned = both(requirements, {key: only(value) for key, value in pins}) if pins else requirements
        if contradiction(pinned) is not None:
            return None
        options, custom, offerings, places = self.check(
            pinned, tolerations, tolerate_prefer_no_schedule=tolerate_prefer_no_schedule
        )
        if ports:
            options = options & ~self._taken(ports)
        masks = (options.tobytes(), custom.tobytes(), offerings.tobytes())
        number = self._masks.setdefault(masks, len(self._masks))
        asked = self._asked.setdefault(signature(pinned), len(self._asked))
        return Feasibility(pinned, options, custom, offerings, places, host, ports, mounted_volumes, number, asked)


def tolerations_key(tolerations: tuple[Toleration, ...]) -> tuple[tuple[str, str, str, str], ...]:
    """A hashable form of tolerations, the same whatever their order."""
    return tuple(sorted((t.key, t.operator, t.value, t.effect) for t in tolerations))

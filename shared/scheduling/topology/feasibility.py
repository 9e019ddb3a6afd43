"""Which launch options, offerings and existing nodes are feasible for a pod group, evaluated for all of them at once.

A feasibility belongs to a group with its choices made: which preferences count, which alternative of its node affinity,
which topology domains. Packing looks at nothing but its masks over launch options, offerings and nodes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import HOSTNAME
from shared.api.taints import EFFECTS, REPELLING, untolerated
from shared.base.struct import Struct, with_fields
from shared.scheduling.rules.host_ports import ports_conflict
from shared.scheduling.rules.requirements import (
    ABSENT,
    Requirements,
    ValueSet,
    conflicting_key,
    intersect,
    only,
    signature,
)
from shared.scheduling.state.instance_type_arrays import undominated
from shared.scheduling.topology.domain_counts import NO_DOMAIN, HostRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import Toleration
    from shared.scheduling.rules.host_ports import HostPort
    from shared.scheduling.rules.volume_topology import MountedVolume
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.state.state_nodes import StateNodes

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Pins = tuple[tuple[str, str], ...]
    """Topology keys with the value that is chosen."""
    Masks = tuple[Bools, Ints, Bools, Bools]
    """Launch options; by launch option the number of the custom labels that are required; offerings; nodes."""
    TolerationsKey = tuple[tuple[str, str, str, str], ...]


class Feasibility(Struct, eq=False, dict=True):
    """Where pods of one group may run.

    ``custom`` numbers, by launch option, the requirements on labels that only NodePools define; 0 for none.
    ``mask_key`` is equal for feasibilities with the same launch options and offerings, ``requirements_key`` for those
    with equal requirements.
    """

    requirements: Requirements
    options: Bools
    custom: Ints
    offerings: Bools
    nodes: Bools
    host: HostRules
    ports: frozenset[HostPort]
    mounted_volumes: frozenset[MountedVolume]
    mask_key: int
    requirements_key: int = 0

    @cached_property
    def without_host_rules(self) -> Feasibility:
        """The same for nodes whose pods have no rules about hosts."""
        return with_fields(self, host=HostRules())

    @property
    def launchable(self) -> bool:
        """Whether a new node could be launched for it."""
        return bool(self.options.any())


class FeasibilityChecker:
    """Evaluates requirements against launch options and existing nodes; remembers, as groups share most of them."""

    def __init__(self, launch_options: LaunchOptions, state_nodes: StateNodes) -> None:
        self.launch_options = launch_options
        self.state_nodes = state_nodes
        self._custom_labels: dict[tuple[tuple[str, ValueSet], ...], int] = {(): 0}
        self._tolerated: dict[tuple[TolerationsKey, bool], tuple[Bools, Bools]] = {}
        self._costs: dict[tuple[int, bytes], float] = {}
        self._mask_keys: dict[tuple[bytes, bytes, bytes], int] = {}
        self._requirements_keys: dict[object, int] = {}
        self._checked: dict[object, Masks] = {}
        self._evaluated: dict[object, Feasibility | None] = {}
        self._undominated: dict[int, tuple[Floats, Floats]] = {}
        self._label_values: dict[object, tuple[str, ...]] = {}

    def feasibility(
        self,
        requirements: Requirements,
        tolerations: tuple[Toleration, ...],
        host: HostRules,
        *,
        tolerate_prefer_no_schedule: bool,
        pins: Pins = (),
        ports: frozenset[HostPort] = frozenset(),
        mounted_volumes: frozenset[MountedVolume] = frozenset(),
    ) -> Feasibility | None:
        """The feasibility of these requirements within these domains; None where they conflict."""
        tolerated = (tolerations_key(tolerations), tolerate_prefer_no_schedule)
        key = (signature(requirements), tolerated, pins, ports)
        if key not in self._evaluated:
            pinned = intersect(requirements, dict(map(_pinned, pins))) if pins else requirements
            is_possible = conflicting_key(pinned) is None
            masks = self.check(pinned, tolerations, tolerate_prefer_no_schedule=tolerate_prefer_no_schedule)
            self._evaluated[key] = self._with_keys(pinned, masks, ports) if is_possible else None
        feasibility = self._evaluated[key]
        if feasibility is None:
            return None
        return with_fields(feasibility, host=host, mounted_volumes=mounted_volumes)

    def _with_keys(self, requirements: Requirements, masks: Masks, ports: frozenset[HostPort]) -> Feasibility:
        """The feasibility of pods without rules about hosts."""
        options, custom, offerings, nodes = masks
        if ports:
            options = options & ~self._options_with_daemons_on(ports)
        mask = (options.tobytes(), custom.tobytes(), offerings.tobytes())
        return Feasibility(
            requirements=requirements,
            options=options,
            custom=custom,
            offerings=offerings,
            nodes=nodes,
            host=HostRules(),
            ports=ports,
            mounted_volumes=frozenset(),
            mask_key=self._mask_keys.setdefault(mask, len(self._mask_keys)),
            requirements_key=self._requirements_keys.setdefault(signature(requirements), len(self._requirements_keys)),
        )

    def check(
        self, requirements: Requirements, tolerations: tuple[Toleration, ...], *, tolerate_prefer_no_schedule: bool
    ) -> Masks:
        """The masks of requirements and tolerations, without host ports and volumes."""
        key = (signature(requirements), tolerations_key(tolerations), tolerate_prefer_no_schedule)
        masks = self._checked.get(key)
        if masks is None:
            masks = self._checked[key] = self._check(requirements, tolerations, tolerate_prefer_no_schedule)
        return masks

    def _check(
        self,
        requirements: Requirements,
        tolerations: tuple[Toleration, ...],
        tolerate_prefer_no_schedule: bool,  # noqa: FBT001 (private)
    ) -> Masks:
        launch_options = self.launch_options
        templates, nodes = self.tolerated(tolerations, tolerate_prefer_no_schedule=tolerate_prefer_no_schedule)
        options = np.zeros(len(launch_options.template_of), np.bool_)
        custom = np.zeros(len(launch_options.template_of), np.int64)
        offerings = np.ones(len(launch_options.offerings), np.bool_)
        for key, allowed in requirements.items():
            if key in launch_options.columns:
                offerings &= launch_options.offerings_allowed(key, allowed)
        for i, template in enumerate(launch_options.templates):
            compatible = self._compatible(template, requirements) if templates[i] else None
            if compatible is None:
                continue
            types, custom_labels = compatible
            offered = np.isfinite(launch_options.price[template.options][:, offerings]).any(1)
            options[template.options] = types & offered
            custom[template.options] = self._custom_labels.setdefault(custom_labels, len(self._custom_labels))
        return options, custom, offerings, nodes & self.state_nodes.allowed(requirements)

    def _compatible(
        self, template: NodeClaimTemplate, requirements: Requirements
    ) -> tuple[Bools, tuple[tuple[str, ValueSet], ...]] | None:
        """The template's instance types that labels allow, and the custom labels that its NodeClaim has to narrow.

        None where the template conflicts with the requirements.
        """
        types = np.ones(len(template.types), np.bool_)
        custom_labels: list[tuple[str, ValueSet]] = []
        for key, required in sorted(requirements.items()):
            if key in self.launch_options.columns:
                continue
            if template.instance_types.knows(key):
                types &= template.instance_types.types_allowed(key, required)[template.types]
                continue
            allowed = template.allowed_values(key)
            narrowed = allowed & required
            if narrowed.empty:
                return None
            if narrowed != allowed:
                custom_labels.append((key, narrowed))
        return types, tuple(custom_labels)

    def tolerated(
        self, tolerations: tuple[Toleration, ...], *, tolerate_prefer_no_schedule: bool
    ) -> tuple[Bools, Bools]:
        """The NodeClaim templates, and the nodes, whose taints are tolerated."""
        key = (tolerations_key(tolerations), tolerate_prefer_no_schedule)
        masks = self._tolerated.get(key)
        if masks is None:
            effects = REPELLING if tolerate_prefer_no_schedule else EFFECTS
            templates, nodes = self.launch_options.templates, self.state_nodes.nodes
            distinct_taints = {*(t.taints for t in templates), *(n.taints for n in nodes)}
            tolerated = {
                taints: not taints or untolerated(tolerations, taints, effects=effects) is None
                for taints in distinct_taints
            }
            masks = self._tolerated[key] = (
                np.fromiter((tolerated[t.taints] for t in templates), np.bool_, len(templates)),
                np.fromiter((tolerated[n.taints] for n in nodes), np.bool_, len(nodes)),
            )
        return masks

    def _options_with_daemons_on(self, ports: frozenset[HostPort]) -> Bools:
        """The launch options on which a DaemonSet's pod takes one of these host ports."""
        taken = np.zeros(len(self.launch_options.template_of), np.bool_)
        for template in self.launch_options.templates:
            for daemon_ports, runs in template.daemon_ports:
                if ports_conflict(ports, daemon_ports):
                    taken[template.options] |= runs
        return taken

    def cost(self, feasibility: Feasibility, requests: Ints) -> float:
        """The least that a pod of this size costs by its share of a new node, USD per hour; inf if none fits."""
        cost = self._costs.get((feasibility.mask_key, requests.tobytes()))
        return self.costs(feasibility, [requests])[0] if cost is None else cost

    def costs(self, feasibility: Feasibility, sizes: Sequence[Ints]) -> list[float]:
        """The :meth:`cost` of a pod of each size."""
        keys = [(feasibility.mask_key, requests.tobytes()) for requests in sizes]
        missing = {key: requests for key, requests in zip(keys, sizes, strict=True) if key not in self._costs}
        if missing:
            costs = self._least_shares(feasibility, np.stack(list(missing.values())))
            self._costs.update(zip(missing, costs.tolist(), strict=True))
        return [self._costs[key] for key in keys]

    def _least_shares(self, feasibility: Feasibility, requests: Ints) -> Floats:
        """The least share of a launch option's price that a pod of each size takes: sizes x resources."""
        if not feasibility.launchable:
            return np.full(len(requests), np.inf)
        free, price = self._undominated_options(feasibility)
        share = np.zeros((len(requests), len(price)))
        for r in np.flatnonzero(requests.any(0)).tolist():
            np.maximum(share, requests[:, r, None] / free[None, :, r], out=share)
        least: Floats = np.where(share > 1, np.inf, share * price).min(1)
        return least

    def _undominated_options(self, feasibility: Feasibility) -> tuple[Floats, Floats]:
        """What the undominated launch options have of each resource, and their prices."""
        undominated_options = self._undominated.get(feasibility.mask_key)
        if undominated_options is None:
            free = self.launch_options.free[feasibility.options]
            price = self.launch_options.price[feasibility.options][:, feasibility.offerings].min(1)
            kept = undominated(free, price)
            undominated_options = np.maximum(free[kept], 1).astype(np.float64), price[kept]
            self._undominated[feasibility.mask_key] = undominated_options
        return undominated_options

    def label_values(self, key: str, options: Bools, offerings: Bools, nodes: Bools) -> tuple[str, ...]:
        """The values of a label on these launch options, offerings and nodes, in order."""
        known = (key, options.tobytes(), offerings.tobytes(), nodes.tobytes())
        values = self._label_values.get(known)
        if values is None:
            values = self._label_values[known] = self._find_label_values(key, options, offerings, nodes)
        return values

    def _find_label_values(self, key: str, options: Bools, offerings: Bools, nodes: Bools) -> tuple[str, ...]:
        launch_options, state_nodes = self.launch_options, self.state_nodes
        values: set[str] = set()
        if len(state_nodes.nodes) and nodes.any():
            values |= state_nodes.column(key).values_at(nodes)
        if key in launch_options.columns:
            offered = np.isfinite(launch_options.price[options][:, offerings]).any(0)
            values |= launch_options.columns[key].values_at(np.flatnonzero(offerings)[offered])
            return tuple(sorted(values))
        for template in launch_options.templates:
            of_template = options[template.options]
            if not of_template.any():
                continue
            if key in template.instance_types.type_columns:
                values |= template.instance_types.type_columns[key].values_at(template.types[of_template])
            elif template.instance_types.knows(key):
                values |= set(template.instance_types.values_of(key))
            elif key != HOSTNAME and not template.allowed_values(key).complement:
                values |= template.allowed_values(key).values
        return tuple(sorted(values))


def tolerations_key(tolerations: tuple[Toleration, ...]) -> TolerationsKey:
    """A hashable form of tolerations, the same in whatever order."""
    return tuple(sorted((t.key, t.operator, t.value, t.effect) for t in tolerations))


def _pinned(pin: tuple[str, str]) -> tuple[str, ValueSet]:
    key, domain = pin
    return key, ABSENT if domain == NO_DOMAIN else only(domain)

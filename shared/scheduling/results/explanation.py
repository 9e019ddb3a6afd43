"""Why a pod is unschedulable, NodePool by NodePool, in words that an operator can act on.

Every NodePool is checked in the same order: whether it can launch, taints, labels that it defines, then what is left
of its instance types after labels, requests, limits and minValues. The first criterion that leaves nothing is the
reason, with what was requested and the nearest miss. Where instance types are left, a rule about other pods failed.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from shared.api.devices import KNOWN_DEVICES
from shared.api.dynamic_resources import device_class_of
from shared.api.labels import HOSTNAME, INSTANCE_TYPE, SPOT_DIVERSITY, WELL_KNOWN
from shared.api.nodepool import node_group_of, pool_title
from shared.api.quantity import NODES, format_quantity
from shared.api.taints import EFFECTS, REPELLING, format_taint, untolerated
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.scheduling.decision import UnschedulableReason
from shared.scheduling.rules.host_ports import format_ports
from shared.scheduling.rules.requirements import node_selector_requirements
from shared.scheduling.state.instance_type_arrays import allowed_in
from shared.scheduling.state.min_values import distinct_values

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from shared.scheduling.rules.pod_affinity import SpreadConstraint, TopologyTerm
    from shared.scheduling.rules.requirements import Requirements, ValueSet
    from shared.scheduling.solver.pending_groups import PendingGroup
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate
    from shared.scheduling.topology.feasibility import FeasibilityChecker
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_TYPO_SIMILARITY = 0.85
"""The least similarity (0 to 1, as difflib has it) of a label to the one that it may be a typo of."""
_MAX_LISTED = 8
"""Reasons, and values of a label, that a message lists."""


class FinalState(Struct, eq=False):
    """The state at the end of a run.

    ``limits_left`` is what NodePool limits leave (NodePools x resources, then nodes), ``cluster_left`` what those over
    all NodePools leave. ``present_host_terms`` says which terms over hosts have a pod on some host.
    """

    limits_left: Ints
    cluster_left: Ints
    topology: Topology
    present_host_terms: Mapping[int, bool]


def explain(group: PendingGroup, requests: Ints, checker: FeasibilityChecker, state: FinalState) -> UnschedulableReason:
    """Why pods of this group and size are unschedulable: one sentence, and the failed criterion by NodePool."""
    launch_options = checker.launch_options
    criteria = dict(sorted(launch_options.unusable_pools.items()))
    suitable: list[str] = []
    for template, limits_left in zip(launch_options.templates, state.limits_left, strict=True):
        check = _NodePoolCheck(launch_options, template, (limits_left, state.cluster_left), group, requests)
        results = [check.failed_criterion(requirements) for requirements in group.pod_group.alternatives]
        failed = [criterion for criterion in results if criterion is not None]
        if len(failed) == len(results):
            criteria[template.node_pool] = failed[0]
        else:
            suitable.append(template.node_pool)
    if suitable:
        criteria.update(dict.fromkeys(suitable, _failed_pod_rule(group, state)))
    return UnschedulableReason(message=_message(criteria), criteria=criteria)


def _message(criteria: Mapping[str, str]) -> str:
    if not criteria:
        return "unschedulable: no NodePool exists, and no node has enough capacity"
    reasons = _by_reason(criteria)
    if len(reasons) == 1:
        return f"unschedulable: {reasons[0]}"
    kinds = "NodePools and node groups" if any(node_group_of(name) for name in criteria) else "NodePools"
    return f"unschedulable on all {len(criteria)} {kinds}: {'; '.join(reasons)}"


def _similar_label(key: str, known: Collection[str]) -> str:
    """What the label may be a typo of; empty if no known label is similar, or has the same name after the slash.

    >>> _similar_label("topology.kubernetes.io/zones", WELL_KNOWN)
    '; a typo of topology.kubernetes.io/zone?'
    >>> _similar_label("capacity-type", WELL_KNOWN), _similar_label("team", WELL_KNOWN)
    ('; a typo of karpenter.sh/capacity-type?', '')
    """
    ordered = sorted(known)
    name = key.rpartition("/")[2].lower()
    same_name = [label for label in ordered if label.rpartition("/")[2] == name]
    similar = same_name or get_close_matches(key.lower(), ordered, n=1, cutoff=_TYPO_SIMILARITY)
    return f"; a typo of {similar[0]}?" if similar else ""


def _by_reason(criteria: Mapping[str, str]) -> list[str]:
    """One clause for each distinct reason with the NodePools it is about; at most as many as can be read."""
    pools_by_reason: dict[str, list[str]] = {}
    for name, reason in criteria.items():
        pools_by_reason.setdefault(reason, []).append(name)
    clauses = [f"{pool_title(*names)}: {reason}" for reason, names in pools_by_reason.items()]
    if len(clauses) <= _MAX_LISTED:
        return clauses
    return [*clauses[:_MAX_LISTED], f"and {plural(len(clauses) - _MAX_LISTED, 'more reason')}"]


class _NodePoolCheck:
    """Checks one NodePool against pods of one group and size."""

    def __init__(
        self,
        launch_options: LaunchOptions,
        template: NodeClaimTemplate,
        limits_left: tuple[Ints, Ints],
        group: PendingGroup,
        requests: Ints,
    ) -> None:
        self._launch_options = launch_options
        self._template = template
        self._limits_left, self._cluster_left = limits_left
        self._pod_group = group.pod_group
        self._effects = REPELLING if group.preferences.tolerate_prefer_no_schedule else EFFECTS
        self._requests = requests

    def failed_criterion(self, requirements: Requirements) -> str | None:
        """The first criterion that the NodePool fails; None if one of its instance types suits the pods."""
        taint = untolerated(self._pod_group.tolerations, self._template.taints, effects=self._effects)
        if taint is not None:
            return f"did not tolerate taint {format_taint(taint)}"
        return self._incompatible_label(requirements) or self._no_instance_type(requirements)

    def _incompatible_label(self, requirements: Requirements) -> str | None:
        """The label that no node of the NodePool has as the pods require it; instance types' labels come later."""
        template = self._template
        for key, required in sorted(requirements.items()):
            if key in self._launch_options.columns or template.instance_types.knows(key):
                continue
            if not (template.allowed_values(key) & required).empty:
                continue
            if key == HOSTNAME:
                owner = "its volumes exist" if key in self._pod_group.volume_labels else "it must run"
                return f"{owner} on a node with {key} {_format(required)}, which is no new node"
            if key in template.requirements:
                allowed = _format(template.requirements[key])
                return f"incompatible requirements: {key} {_format(required)} is not in {allowed}"
            hint = _similar_label(key, {*WELL_KNOWN, *template.requirements})
            return f"incompatible requirements: label {key} has no known values (required: {_format(required)}){hint}"
        return None

    def _no_instance_type(self, requirements: Requirements) -> str | None:
        launch_options, template = self._launch_options, self._template
        options = np.arange(template.options.start, template.options.stop)
        if not len(options):
            return self._no_launch_options()
        summary, compatible, offerings = self._filter_by_labels(requirements, options)
        if not len(compatible):
            return f"{summary}; none left"
        fitting = compatible[(launch_options.free[compatible] >= self._requests).all(1)]
        if not len(fitting):
            prefix = f"{summary}; of the remaining {len(compatible)}" if len(compatible) < len(options) else summary
            return f"{prefix}, {self._insufficient(compatible)}"
        return self._exceeded_limit(fitting) or self._unmet_min_values(fitting, offerings)

    def _no_launch_options(self) -> str:
        """Why the NodePool has nothing to launch for any pod."""
        template = self._template
        types, offerings = allowed_in(template.instance_types, template.requirements)
        allowed = types & template.instance_types.offered[:, offerings].any(1)
        if not allowed.any():
            return "the NodePool's requirements exclude all instance types"
        if np.isfinite(template.instance_types.price[allowed][:, offerings]).any():
            return "DaemonSets leave no capacity on any instance type"
        return f"none of {plural(int(allowed.sum()), 'instance type')} has an available offering"

    def _filter_by_labels(self, requirements: Requirements, options: Ints) -> tuple[str, Ints, Bools]:
        """What each label excludes, as a sentence; the launch options left; and the offerings that labels allow."""
        launch_options, catalog = self._launch_options, self._template.instance_types
        steps: list[str] = []
        total = len(options)
        offerings = np.ones(len(launch_options.offerings), np.bool_)
        offered = np.ones(len(catalog.offerings), np.bool_)
        for key, required in sorted(requirements.items()):
            unavailable = 0
            if key in launch_options.columns:
                offerings &= launch_options.offerings_allowed(key, required)
                if key in catalog.offering_columns:
                    offered &= catalog.offering_columns[key].allowed(required)
                kept = np.isfinite(launch_options.price[options][:, offerings]).any(1)
                excluded_types = launch_options.type_of[options[~kept]]
                unavailable = int(catalog.offered[excluded_types][:, offered].any(1).sum())
            elif catalog.knows(key):
                kept = catalog.types_allowed(key, required)[launch_options.type_of[options]]
            else:
                continue
            label = f"{key} {_format(required)}{' (of its volumes)' if key in self._pod_group.volume_labels else ''}"
            excluded = int((~kept).sum()) - unavailable
            if excluded > 0:
                steps.append(f"{label} excludes {excluded}")
            if unavailable:
                steps.append(f"{label} leaves {unavailable} without an available offering")
            options = options[kept]
        return ", ".join([f"of {plural(total, 'instance type')}", *steps]), options, offerings

    def _insufficient(self, options: Ints) -> str:
        """The resource that no instance type has enough of, with what is requested and the nearest miss."""
        launch_options, requests = self._launch_options, self._requests
        free = launch_options.free[options]
        requested = np.flatnonzero(requests).tolist()
        for r in requested:
            if not (free[:, r] >= requests[r]).any():
                return self._insufficient_resource(options, r)
        missing = (free < requests).sum(1)
        nearest = int(missing.argmin())
        short = ", ".join(launch_options.resources[r] for r in np.flatnonzero(free[nearest] < requests).tolist())
        total = ", ".join(
            f"{launch_options.resources[r]} {format_quantity(launch_options.resources[r], int(requests[r]))}"
            for r in requested
        )
        instance_type = launch_options.instance_type_of(int(options[nearest]))
        return f"none has enough of all requests ({total}); nearest is {instance_type}, insufficient {short}"

    def _insufficient_resource(self, options: Ints, resource: int) -> str:
        launch_options = self._launch_options
        free = launch_options.free[options, resource]
        name = launch_options.resources[resource]
        requested = format_quantity(name, int(self._requests[resource]))
        if not free.any():
            return f"none has {name} (requested {requested}){_unknown_device(name)}"
        largest = int(options[free.argmax()])
        daemons = int(launch_options.daemon_requests[largest][resource])
        overhead = f" plus {format_quantity(name, daemons)} for DaemonSets" if daemons else ""
        return (
            f"none has enough {name}: requested {requested}{overhead}, "
            f"largest is {launch_options.instance_type_of(largest)} with {format_quantity(name, int(free.max()))}"
        )

    def _exceeded_limit(self, fitting: Ints) -> str | None:
        """The limit that every instance type with enough capacity exceeds; None if one of them stays within limits."""
        own = self._exceeded(fitting, self._limits_left, "its limits")
        if own is not None or node_group_of(self._template.node_pool):
            return own
        left = np.minimum(self._limits_left, self._cluster_left)
        return self._exceeded(fitting, left, "the limits of all NodePools together")

    def _exceeded(self, fitting: Ints, limits_left: Ints, limits: str) -> str | None:
        launch_options = self._launch_options
        size = np.hstack([launch_options.capacity[fitting], np.ones((len(fitting), 1), np.int64)])
        exceeded = size > limits_left
        if not exceeded.any(1).all():
            return None
        tightest = int(exceeded.sum(0).argmax())
        left = max(0, int(limits_left[tightest]))
        if tightest == len(launch_options.resources):
            return f"exceeds {limits}: {NODES} {left} left"
        name = launch_options.resources[tightest]
        smallest = format_quantity(name, int(size[:, tightest].min()))
        return (
            f"exceeds {limits}: {name} {format_quantity(name, left)} left, "
            f"smallest instance type for the pod has {smallest}"
        )

    def _unmet_min_values(self, fitting: Ints, offerings: Bools) -> str | None:
        """The minValues that the instance types with enough capacity don't reach; all of them if only together."""
        template = self._template
        if not template.min_values:
            return None
        counts = {
            key: len(distinct_values(self._launch_options, template, fitting, offerings, key))
            for key in template.min_values
        }
        unmet = [key for key, least in sorted(template.min_values.items()) if counts[key] < least]
        details = "; ".join(
            f"{key} requires {plural(template.min_values[key], 'value')}, instance types for the pod have {counts[key]}"
            for key in unmet or sorted(template.min_values)
        )
        subject = "minValues"
        if INSTANCE_TYPE in unmet and counts[INSTANCE_TYPE] >= template.stated_min_values.get(INSTANCE_TYPE, 0):
            subject = f"annotation {SPOT_DIVERSITY}"
        return f"{subject} not met: {details}"


def _format(values: ValueSet) -> str:
    """A set of values as operators and values of a node selector."""
    parts = [
        f"{e.operator} {', '.join(e.values[:_MAX_LISTED])}{', …' if len(e.values) > _MAX_LISTED else ''}".strip()
        for e in node_selector_requirements({"": values}, {})
    ]
    return " and ".join(parts) or "any value"


def _failed_pod_rule(group: PendingGroup, state: FinalState) -> str:
    """The rule about other pods that no placement satisfies, where instance types suit the pods."""
    pod_group = group.pod_group
    for term in pod_group.affinity:
        reason = _unsatisfied_affinity(term, group, state)
        if reason is not None:
            return reason
    if pod_group.spread_constraints:
        return _violated_spread(pod_group.spread_constraints[0], group, state.topology)
    if pod_group.anti_affinity:
        term = pod_group.anti_affinity[0]
        return f"blocked by its pod anti-affinity: every {term.topology_key} has pods that match {_selector(term)}"
    if pod_group.affinity:
        term = pod_group.affinity[0]
        return f"pod affinity not satisfied: no capacity where pods that match {_selector(term)} run"
    if pod_group.ports:
        return f"its host ports are in use: {format_ports(pod_group.ports)}"
    return "blocked by other pods' anti-affinity or by the NodePool's limits"


def _unsatisfied_affinity(term: TopologyTerm, group: PendingGroup, state: FinalState) -> str | None:
    """Why a required pod affinity fails for sure: no pod matches it, or its host has no capacity."""
    topology = state.topology
    domain_term = topology.domain_terms.numbers.get((term, b""))
    host_term = topology.host_terms.numbers.get((term, b""))
    no_match_in_domains = domain_term is not None and not any(
        topology.domain_counts.counts.get(domain_term, {}).values()
    )
    no_match_on_hosts = (
        host_term is not None and host_term not in group.host.match and not state.present_host_terms.get(host_term)
    )
    if no_match_in_domains or no_match_on_hosts:
        return f"pod affinity not satisfied: no pod matches {_selector(term)} in any {term.topology_key}"
    if term.topology_key == HOSTNAME:
        return (
            f"pod affinity not satisfied: no capacity on the same {term.topology_key} as pods that match "
            f"{_selector(term)}"
        )
    return None


def _violated_spread(spread: SpreadConstraint, group: PendingGroup, topology: Topology) -> str:
    pod_group = group.pod_group
    number = topology.spread_term(spread, pod_group.counted_alternatives, pod_group.tolerations)
    counts = sorted(topology.domain_counts.counts.get(number, {}).items())
    listed = ", ".join(f"{value} {count}" for value, count in counts) or "none"
    min_domains = f", minDomains {spread.min_domains}" if spread.min_domains else ""
    return (
        f"would violate maxSkew {spread.max_skew}{min_domains} in every {spread.term.topology_key} with capacity "
        f"(pods that match {_selector(spread.term)}: {listed})"
    )


def _selector(term: TopologyTerm) -> str:
    labels = [f"{key}={value}" for key, value in term.labels]
    conditions = [f"{key} {operator} {list(values)}" for key, operator, values in term.expressions]
    return ", ".join([*labels, *conditions]) or "no pods"


def _unknown_device(resource: str) -> str:
    """Who may provide an extended resource that EC2 doesn't tell of instance types; "" for others."""
    if "/" not in resource or resource in KNOWN_DEVICES:
        return ""
    implicit = device_class_of(resource)
    provider = f"DeviceClass {implicit}" if implicit else "a DeviceClass (spec.extendedResourceName) or device plugin"
    return f": if {provider} provides it, let spec.capacity of a NodeOverlay name the instance types that have it"

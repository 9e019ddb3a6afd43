"""The NodeClaims of packed nodes.

A NodeClaim lists all instance types of its NodePool that hold its pods and DaemonSets, cheapest first, so that the
launch has a choice; and it states every requirement of its pods, so that whichever node is launched suits them.
"""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING

import numpy as np

from shared.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODECLASS, NODEPOOL, ZONE
from shared.base.struct import Struct, with_fields
from shared.scheduling.decision import MAX_INSTANCE_TYPES, CheapestOffering, PlannedNodeClaim
from shared.scheduling.rules.attached_volumes import ATTACHED_VOLUMES
from shared.scheduling.rules.requirements import Requirements, intersect, node_selector_requirements, only
from shared.scheduling.solver.bins import fitting_options
from shared.scheduling.solver.fit import holds_each
from shared.scheduling.state.min_values import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.api.kubernetes import NodeSelectorRequirement
    from shared.scheduling.solver.bins import Bin, Bins
    from shared.scheduling.state.launch_options import LaunchOptions, NodeClaimTemplate

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
_BINS_COMPARED = 1024
"""How many bins are compared with all launch options at once; bounds memory."""


def planned_node_claims(bins: Bins, pod_keys: Callable[[Iterable[str]], list[str]]) -> list[PlannedNodeClaim]:
    """The NodeClaim of each bin, in their order; one with a reserved size lists no larger instance types.

    ``pod_keys`` replaces keys that stand for several pods by the pods' own.
    """
    launch_options, opened = bins.launch_options, bins.opened
    claims: dict[int, PlannedNodeClaim] = {}
    shared_fields: dict[object, _SharedFields] = {}
    for number, template in enumerate(launch_options.templates):
        of_template = [i for i, b in enumerate(opened) if launch_options.template_of[b.option] == number]
        for alike, members in _group_alike(of_template, opened).items():
            options = _options_by_price(launch_options, template, opened[members[0]])
            fits = holds_each(launch_options.free[options], np.stack([opened[i].used for i in members]))
            for i, fitting in zip(members, fits, strict=True):
                bin_ = opened[i]
                fitting_options = options[fitting]
                if bin_.reserved is not None:
                    fitting_options = fitting_options[bins.limits.within_size(fitting_options, bin_.reserved)]
                listed, satisfied = truncate(
                    launch_options, template, fitting_options, bin_.offerings, MAX_INSTANCE_TYPES
                )
                requirements = frozenset([item.feasibility.requirements_key for item, _ in bin_.content])
                key = (number, alike, listed.tobytes(), requirements)
                if key not in shared_fields:
                    shared_fields[key] = _shared_fields(launch_options, template, bin_, listed)
                pods = sorted(pod_keys(pod for _, pods in bin_.content for pod in pods))
                planned = _planned(launch_options, template, bin_, pods, shared_fields[key], satisfied=satisfied)
                saved = _saved_resources(launch_options, template, options[fitting], listed)
                claims[i] = with_fields(planned, saved_resources=saved) if saved else planned
    return [claims[i] for i in range(len(opened))]


def _saved_resources(
    launch_options: LaunchOptions, template: NodeClaimTemplate, fitting: Ints, listed: Ints
) -> tuple[str, ...]:
    """The limited resources of which the cheapest type that fits takes more than the first listed one."""
    if launch_options.offered_price is None or fitting[0] == listed[0]:
        return ()
    capacity = launch_options.capacity
    limits = {*template.limits, *launch_options.cluster_limits}
    return tuple(
        name
        for column, name in enumerate(launch_options.resources)
        if name in limits and capacity[fitting[0], column] > capacity[listed[0], column]
    )


class _SharedFields(Struct, eq=False):
    """What NodeClaims have in common that list the same launch options for pods with equal requirements."""

    instance_types: tuple[str, ...]
    requirements: tuple[NodeSelectorRequirement, ...]
    labels: Mapping[str, str]
    cheapest: CheapestOffering
    daemon_requests: Ints


def _planned(
    launch_options: LaunchOptions,
    template: NodeClaimTemplate,
    bin_: Bin,
    pods: list[str],
    shared: _SharedFields,
    *,
    satisfied: bool,
) -> PlannedNodeClaim:
    total = (bin_.used + shared.daemon_requests).tolist()
    return PlannedNodeClaim(
        node_pool=template.node_pool,
        pods=tuple(pods),
        instance_types=shared.instance_types,
        requirements=shared.requirements,
        requests={
            name: int(amount)
            for name, amount in zip(launch_options.resources, total, strict=True)
            if amount and name != ATTACHED_VOLUMES
        },
        labels=shared.labels,
        taints=template.taints,
        cheapest=shared.cheapest,
        min_values_relaxed=not satisfied,
        min_types=template.min_types if satisfied else 0,
    )


def _shared_fields(
    launch_options: LaunchOptions, template: NodeClaimTemplate, bin_: Bin, listed: Ints
) -> _SharedFields:
    instance_types = template.instance_types
    requirements: Requirements = dict(template.requirements)
    for feasibility in bin_.feasibilities:
        # a label that no node of the NodePool has needn't be required to be absent
        stated = {
            key: allowed
            for key, allowed in feasibility.requirements.items()
            if key in requirements or not allowed.absent or instance_types.knows(key)
        }
        requirements = intersect(requirements, stated)
    requirements.pop(HOSTNAME, None)
    names = tuple(instance_types.names[t] for t in launch_options.type_of[listed].tolist())
    requirements = intersect(requirements, {INSTANCE_TYPE: only(*names)})
    prices = np.where(bin_.offerings, launch_options.paid_price[int(listed[0])], np.inf)
    key = launch_options.offerings[int(prices.argmin())]
    offering = dict(key)
    position = int(launch_options.type_of[int(listed[0])]), instance_types.offerings.index(key)
    charged, volume_price = float(instance_types.charged[position]), float(instance_types.volume_price[position])
    effective_price = float(prices.min() / launch_options.penalty[int(listed[0])])
    adjusted_price = max(0.0, effective_price - volume_price)
    return _SharedFields(
        instance_types=names,
        requirements=tuple(node_selector_requirements(requirements, template.stated_min_values)),
        labels=_labels(template, requirements),
        cheapest=CheapestOffering(
            instance_type=names[0],
            zone=offering[ZONE],
            capacity_type=offering.get(CAPACITY_TYPE, ""),
            price=charged,
            adjusted_price=None if isclose(adjusted_price, charged, rel_tol=1e-9) else adjusted_price,
            volume_price=volume_price,
        ),
        daemon_requests=launch_options.daemon_requests[listed].max(0),
    )


def _labels(template: NodeClaimTemplate, requirements: Requirements) -> dict[str, str]:
    """The node's labels besides those of its instance type and offering; one value of each that the NodePool allows."""
    labels = dict(template.labels)
    for key in sorted(template.requirements):
        if key == HOSTNAME or template.instance_types.knows(key) or key not in requirements:
            continue
        value = requirements[key].any_value()
        if value is not None:
            labels[key] = value
    labels[NODEPOOL] = template.node_pool
    if NODECLASS in template.requirements:
        labels[NODECLASS] = next(iter(template.requirements[NODECLASS].values))
    return labels


def _group_alike(members: Iterable[int], bins: Sequence[Bin]) -> dict[object, list[int]]:
    """The bins, by number, that may be launched from the same options in the same offerings."""
    groups: dict[object, list[int]] = {}
    for i in members:
        bin_ = bins[i]
        groups.setdefault((bin_.masks, bin_.offerings.tobytes(), bin_.custom), []).append(i)
    return {(key, n): chunk for key, group in groups.items() for n, chunk in enumerate(_chunks(group))}


def _chunks(members: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(members), _BINS_COMPARED):
        yield members[start : start + _BINS_COMPARED]


def _options_by_price(launch_options: LaunchOptions, template: NodeClaimTemplate, bin_: Bin) -> Ints:
    """The template's launch options that the bin's pods may use, whatever their size, cheapest first."""
    nothing = np.zeros_like(bin_.used)
    options = fitting_options(launch_options, template, bin_.feasibilities, nothing, bin_.offerings, bin_.custom)
    price = launch_options.paid_price[options][:, bin_.offerings].min(1, initial=np.inf)
    return options[np.argsort(price, kind="stable")]

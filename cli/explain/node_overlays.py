"""Which prices and resources a NodeOverlay sets, by NodePool, or why it isn't applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.errors import UsageError
from cli.explain.explanation import Check, Explanation, Section, explain_invalid
from shared.api.labels import INSTANCE_TYPE
from shared.api.node_overlay import KIND
from shared.api.nodepool import NODE_GROUP_KIND
from shared.base.plurals import plural
from shared.instance_types.overlays import labels_of, pricing_overlay, types_with_resource
from shared.launch.fleet.overrides import offering_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType, Offering

_MAX_OFFERINGS = 5
"""Offerings shown of a NodePool: those whose price changes most."""


def explain(observed: ObservedCluster, name: str) -> Explanation:
    """What the NodeOverlay changes now.

    Raises:
        UsageError: the NodeOverlay doesn't exist.
    """
    snapshot = observed.snapshot
    overlay = next((o for o in snapshot.node_overlays if o.name == name), None)
    if overlay is not None:
        return _explain_valid(observed, overlay).with_history(observed.history.events(overlay.ref))
    invalid = next((i for i in snapshot.invalid if (i.ref.kind, i.ref.name) == (KIND, name)), None)
    if invalid is not None:
        return explain_invalid(invalid, observed.history.events(invalid.ref))
    existing = ", ".join(sorted(o.name for o in snapshot.node_overlays)) or "none"
    raise UsageError(f'there is no NodeOverlay "{name}" (there: {existing})')


def _explain_valid(observed: ObservedCluster, overlay: NodeOverlay) -> Explanation:
    resolved = observed.offerings.resolve_pools(observed.snapshot)
    subject = str(overlay.ref)
    if conflict := resolved.overlay_conflicts.get(overlay.name):
        return Explanation(subject=subject, state="isn't applied", reason=conflict, criterion="conflict")
    sections = tuple(
        Section(title=f"NodePool {pool.name}", checks=checks)
        for pool in observed.snapshot.node_pools
        if pool.kind != NODE_GROUP_KIND and (checks := tuple(_pool_checks(overlay, pool, resolved)))
    )
    if not sections:
        reason = "it selects no offering of a NodePool that can launch, or overlays of a higher weight set the same"
        return Explanation(subject=subject, state="changes nothing", reason=reason, criterion="unused")
    title = plural(len(sections), "NodePool")
    fields = [f"price {overlay.price_change}"] if overlay.price_change is not None else []
    fields += [f"{resource} {amount}" for resource, amount in overlay.spec.capacity.items()]
    reason = f"{', '.join(fields)}, for instance types of {title}"
    return Explanation(subject=subject, state="is applied", reason=reason, criterion="applied", sections=sections)


def _pool_checks(overlay: NodeOverlay, pool: NodePool, resolved: ResolvedNodePools) -> Iterator[Check]:
    types = resolved.instance_types.get(pool.name, ())
    priced = [(t, o) for t in types for o in t.offerings if _decides(overlay, pool, t, o, resolved)]
    if priced:
        detail = f"{plural(len({t.name for t, _ in priced}), 'instance type')}, {plural(len(priced), 'offering')}"
        yield Check(name="price", ok=None, detail=detail)
        changes = sorted(priced, key=lambda pair: (-_change(pair[1]), pair[0].name, pair[1].zone))
        for instance_type, offering in changes[:_MAX_OFFERINGS]:
            where = f"{offering.capacity_type}, {offering.zone}"
            price = f"{terminal.usd(offering.list_price or 0.0)} → {terminal.usd(offering.price)}/h"
            yield Check(name=instance_type.name, ok=None, detail=f"{where}: {price}")
    for resource, amount in overlay.spec.capacity.items():
        if names := types_with_resource(overlay, resource, types, labels_of(pool), resolved.overlays):
            yield Check(name=resource, ok=None, detail=f"{amount} on {plural(len(names), 'instance type')}")


def _decides(
    overlay: NodeOverlay, pool: NodePool, instance_type: InstanceType, offering: Offering, resolved: ResolvedNodePools
) -> bool:
    """Whether the overlay decides the price of the offering in the NodePool."""
    if not offering.has_overlaid_price:
        return False
    offered = {**offering_labels(instance_type, offering), INSTANCE_TYPE: instance_type.name}
    deciding = pricing_overlay({**labels_of(pool), **offered}, resolved.overlays)
    return deciding is not None and deciding.name == overlay.name


def _change(offering: Offering) -> float:
    return abs(offering.price - (offering.list_price or 0.0))

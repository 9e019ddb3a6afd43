"""Metrics of nodes: Karpenter's by node and resource, Tenon's by NodePool, offering and state. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from cli.nodes import rows as node_rows
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.api.pods import is_daemon, is_terminal, requests
from shared.api.quantity import CPU, MEMORY, PODS, QuantityError, Resources, add, parse_resources, subtract
from shared.disruption.disruption_queue import is_queued
from shared.instance_types.overlays import node_price, ready_overlays

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cli.export.families import Family
    from cli.nodes.rows import NodeRows, Row
    from shared.api.kubernetes import Node, Pod
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot

_ALWAYS = (CPU, MEMORY, PODS)
"""Resources that an empty node has a sample of too."""
_PERCENT = 100
_ELIGIBLE = {
    "empty": nodeclaim.EMPTY,
    "drifted": nodeclaim.DRIFTED,
    "underutilized": nodeclaim.CONSOLIDATABLE,
}


def table(snapshot: Snapshot, catalog: InstanceTypeCatalog | None) -> NodeRows:
    """The rows of `tenon nodes`; without a catalog no price is known."""
    overlays = ready_overlays(snapshot.node_overlays)

    def price(labels: Mapping[str, str]) -> float | None:
        return None if catalog is None else node_price(catalog, labels, overlays)

    return node_rows.build(snapshot.nodes, snapshot.node_claims, snapshot.pods, price=price, now=snapshot.taken_at)


def _price(catalog: InstanceTypeCatalog, instance_type: str, zone: str, capacity_type: str) -> float | None:
    """USD per hour; None if it isn't known."""
    return catalog.price({names.INSTANCE_TYPE: instance_type, names.ZONE: zone, names.CAPACITY_TYPE: capacity_type})


def samples(snapshot: Snapshot, table_: NodeRows) -> Iterator[Sample]:
    """All metrics of nodes that need no price."""
    requested = {row.name: row.requested for row in table_.rows}
    daemons = _daemon_requests(snapshot.pods)
    claims = {c.status.provider_id for c in snapshot.node_claims if c.status.provider_id}
    for node in snapshot.nodes:
        labels = _labels(node, is_managed=node.spec.provider_id in claims)
        name = node.metadata.name
        allocatable = _parsed(node.status.allocatable)
        overhead = subtract(_parsed(node.status.capacity), allocatable)
        yield from _resources(families.NODES_ALLOCATABLE, allocatable, labels)
        yield from _resources(families.NODES_POD_REQUESTS, requested.get(name, {}), labels, always=True)
        yield from _resources(families.NODES_DAEMON_REQUESTS, daemons.get(name, {}), labels, always=True)
        yield from _resources(families.NODES_OVERHEAD, {r: max(0, overhead[r]) for r in allocatable}, labels)
        created = node.metadata.creation_timestamp
        if created is not None:
            age = max(0.0, (snapshot.taken_at - created).total_seconds())
            yield Sample(families.NODES_LIFETIME, age, labels)
    yield sample(families.NODE_COUNT, len(snapshot.nodes))
    yield from _utilization(snapshot, requested)
    yield from _eligible(snapshot)
    counts = Counter(_state_labels(row) for row in table_.rows)
    for labels_of_state, count in sorted(counts.items()):
        yield sample(families.NODES, count, **dict(labels_of_state))


def _labels(node: Node, *, is_managed: bool) -> Mapping[str, str]:
    """The labels of Karpenter's metrics of nodes, without those that the node doesn't have."""
    present = {
        families.label_name(key): value for key in families.NODE_LABEL_KEYS if (value := node.metadata.labels.get(key))
    }
    return {**present, "node_name": node.metadata.name, "managed": "true" if is_managed else "false"}


def _resources(
    family: Family, amounts: Resources, labels: Mapping[str, str], *, always: bool = False
) -> Iterator[Sample]:
    """A sample for each resource with an amount: CPU in cores, memory and storage in bytes."""
    amounts = {**dict.fromkeys(_ALWAYS if always else (), 0), **amounts}
    for name, amount in amounts.items():
        if amount or name in _ALWAYS:
            yield Sample(family, value(name, amount), {**labels, "resource_type": families.resource_type(name)})


def value(resource: str, amount: int) -> float:
    """An exact amount as Prometheus has it: milli-cores become cores."""
    return amount / 1000 if resource == CPU else float(amount)


def _parsed(raw: Mapping[str, str | int | float]) -> Resources:
    try:
        return parse_resources(raw)
    except QuantityError:
        return {}  # a kubelet wrote it; the others are still shown


def _daemon_requests(pods: Iterable[Pod]) -> dict[str, Resources]:
    """By node: what the pods of DaemonSets request."""
    total: dict[str, Resources] = {}
    for pod in pods:
        if not pod.spec.node_name or is_terminal(pod) or not is_daemon(pod):
            continue
        try:
            amounts = requests(pod)
        except QuantityError:
            amounts = {PODS: 1}
        total[pod.spec.node_name] = add(total.get(pod.spec.node_name, {}), amounts)
    return total


def _utilization(snapshot: Snapshot, requested: Mapping[str, Resources]) -> Iterator[Sample]:
    allocatable = add(*(_parsed(node.status.allocatable) for node in snapshot.nodes))
    used = add(*(requested.get(node.metadata.name, {}) for node in snapshot.nodes))
    for name, amount in allocatable.items():
        if amount:
            share = _PERCENT * used.get(name, 0) / amount
            yield sample(families.UTILIZATION, share, resource_type=families.resource_type(name))


def _eligible(snapshot: Snapshot) -> Iterator[Sample]:
    candidates = [c for c in snapshot.node_claims if c.metadata.deletion_timestamp is None and not is_queued(c)]
    for reason, condition in _ELIGIBLE.items():
        count = sum(is_true(c.status.conditions, condition) for c in candidates)
        yield sample(families.ELIGIBLE, count, reason=reason)


def _offering_labels(row: Row) -> tuple[tuple[str, str], ...]:
    return (
        ("nodepool", row.pool),
        ("instance_type", row.instance_type),
        ("zone", row.zone),
        ("capacity_type", row.capacity_type),
    )


def _state_labels(row: Row) -> tuple[tuple[str, str], ...]:
    return (*_offering_labels(row), ("state", row.state))


def price_samples(table_: NodeRows, catalog: InstanceTypeCatalog, *, all_offerings: bool) -> Iterator[Sample]:
    """What nodes cost, and the prices and sizes of the instance types that they use, or of all."""
    costs: dict[tuple[tuple[str, str], ...], float] = {}
    for row in table_.rows:
        if row.price is not None:
            costs[_offering_labels(row)] = costs.get(_offering_labels(row), 0.0) + row.price
    for labels, cost in sorted(costs.items()):
        yield sample(families.COST, cost, **dict(labels))
    yield sample(families.UNPRICED, sum(row.price is None for row in table_.rows))
    used = {row.instance_type for row in table_.rows}
    for hardware in catalog.hardware:
        if not all_offerings and hardware.name not in used:
            continue
        instance_type = hardware.name
        yield sample(families.TYPE_CPU, hardware.vcpus, instance_type=instance_type)
        yield sample(families.TYPE_MEMORY, hardware.memory_mib * 2**20, instance_type=instance_type)
        for zone in catalog.offered.get(instance_type, ()):
            for capacity_type in hardware.capacity_types:
                price = _price(catalog, instance_type, zone, capacity_type)
                if price is not None:
                    yield sample(
                        families.OFFERING_PRICE,
                        price,
                        instance_type=instance_type,
                        zone=zone,
                        capacity_type=capacity_type,
                    )

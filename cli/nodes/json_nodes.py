"""The output of ``tenon nodes --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.price_origin import OriginName
from cli.json_output import Output, Time, moment
from shared.api.quantity import CPU, MEMORY, format_resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.nodes.rows import NodeRows, Row


class PodCounts(Output, frozen=True, kw_only=True):
    """The cluster's pods by phase."""

    running: int
    pending: int


class NodeEntry(Output, frozen=True, kw_only=True):
    """A node, or a NodeClaim without one. ``cpu`` and ``memory`` are requested shares, ``price`` USD per hour.

    ``labels`` are those of ``--label-columns``; a label that the node lacks is left out.
    """

    name: str
    node_pool: str
    node_group: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    created: Time | None
    pods: int
    chunks: int
    cpu: float | None
    memory: float | None
    requested: dict[str, str]
    allocatable: dict[str, str]
    state: str
    why: str
    labels: dict[str, str]


class Nodes(Output, frozen=True, kw_only=True):
    """The selected nodes; cost and pods are those of the whole cluster. ``prices`` is where prices come from."""

    cluster: str
    at: Time
    pauses: list[str]
    prices: OriginName
    cost_per_hour: float
    pods: PodCounts
    nodes: list[NodeEntry]


def output(
    observed: ObservedCluster, rows: NodeRows, selected: Sequence[Row], *, label_columns: Sequence[str]
) -> Nodes:
    """The selected rows, with these labels."""
    return Nodes(
        cluster=observed.name,
        at=moment(rows.now),
        pauses=list(observed.pauses),
        prices=observed.prices.name,
        cost_per_hour=round(rows.cost, 6),
        pods=PodCounts(running=rows.running, pending=rows.pending),
        nodes=[_entry(row, label_columns) for row in selected],
    )


def _entry(row: Row, label_columns: Sequence[str]) -> NodeEntry:
    return NodeEntry(
        name=row.name,
        node_pool=row.pool,
        node_group=row.group,
        instance_type=row.instance_type,
        zone=row.zone,
        capacity_type=row.capacity_type,
        price=row.price,
        created=moment(row.created) if row.created else None,
        pods=row.pods,
        chunks=row.chunks,
        cpu=row.requested_share(CPU),
        memory=row.requested_share(MEMORY),
        requested=format_resources(row.requested),
        allocatable=format_resources(row.allocatable),
        state=row.state,
        why=row.why,
        labels={key: row.labels[key] for key in label_columns if key in row.labels},
    )

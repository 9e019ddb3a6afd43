"""Runs ``tenon node-groups``: the groups that ``-c nodeGroups=on`` scales, and the nodes that they would add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.cluster.node_groups import GroupOfferings
from cli.cluster.offerings import CatalogOfferings
from cli.node_groups import entries
from cli.printable import echo
from shared.api.quantity import CPU, MEMORY, format_quantity
from shared.base import runtime
from shared.base.plurals import plural
from shared.node_groups.discovery import discover
from shared.node_groups.template_node import group_instance_types, template_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cli.cluster.cluster_reference import ClusterReference
    from cli.cluster.observed_cluster import ObservedCluster
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.template_node import TemplateNode

    Described = tuple[NodeGroup, TemplateNode | None]


def read(reference: ClusterReference) -> tuple[str, list[Described]]:
    """The cluster's name and node groups."""
    reference = kubeconfig_context.resolve(reference)
    with live_reader.read_only_aws(reference):
        observed = live_reader.read(live_reader.connect(reference), reference, now=runtime.now())
        return observed.name, _describe(observed, reference.cluster)


def show(cluster: str, described: Sequence[Described], *, as_json: bool) -> None:
    """Print the node groups of the cluster."""
    if as_json:
        echo(json_output.text("node-groups", [entries.entry(group, node) for group, node in described]))
    else:
        _show(terminal.console(), cluster, described)


def _describe(observed: ObservedCluster, cluster: str) -> list[Described]:
    create: Any = boto3.client
    groups = discover(cluster, autoscaling=create("autoscaling"), ec2=create("ec2"), eks=create("eks"))
    offerings = observed.offerings.own if isinstance(observed.offerings, GroupOfferings) else observed.offerings
    assert isinstance(offerings, CatalogOfferings)  # a live cluster's are
    types = group_instance_types(offerings.raw, {name for group in groups for name in group.instance_types})
    return [(group, template_node(group, types, observed.snapshot.nodes)) for group in groups]


def _show(console: Console, name: str, described: Sequence[Described]) -> None:
    nodes = sum(group.desired for group, _ in described)
    groups = plural(len(described), "node group")
    console.print(terminal.title(name, groups, plural(nodes, "node") if described else ""))
    if not described:
        console.print(
            "  none: no Auto Scaling group has Cluster Autoscaler's tags for this cluster", style=terminal.QUIET
        )
        return
    columns = ("group", "nodes", "min", "max", "coming", "type", "zones", "capacity", "cpu", "memory", "$/h")
    table = terminal.table(
        *columns,
        right=("nodes", "min", "max", "coming", "cpu", "memory", "$/h"),
        optional=("coming", "memory", "cpu", "zones", "capacity"),
    )
    for group, node in described:
        table.add_row("", *_cells(group, node))
    console.print(table)
    for group, node in described:
        unknown = () if node is not None or group.problems else ("its instance types aren't in the catalog",)
        for problem in (*group.problems, *unknown):
            console.print(f"  {group.managed or group.name}: {problem}", style=terminal.WARNING)


def _cells(group: NodeGroup, node: TemplateNode | None) -> list[Any]:
    amounts = node.allocatable if node is not None else {}
    more = len(group.instance_types) - 1
    first = node.instance_type if node is not None else next(iter(group.instance_types), "?")
    return [
        group.managed or group.name,
        str(group.desired),
        str(group.minimum),
        str(group.maximum),
        str(group.coming or ""),
        first + (f" and {more} more" if more > 0 else ""),
        ", ".join(zone.rpartition("-")[2] for zone in group.zones),
        terminal.capacity(group.capacity_type),
        *(format_quantity(name, amounts[name]) if name in amounts else "?" for name in (CPU, MEMORY)),
        f"{node.price:.4f}" if node is not None and node.price is not None else "?",
    ]

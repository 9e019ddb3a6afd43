"""``tenon node-groups``: the node groups that ``-c nodeGroups=on`` scales, and the nodes that they would add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.errors import errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.template_node import TemplateNode

    Described = tuple[NodeGroup, TemplateNode | None]


def node_groups(
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    as_json: source.Json = False,
) -> None:
    """Show the cluster's node groups: their sizes, the node that each would add, and what can't be used.

    These are the Auto Scaling groups with Cluster Autoscaler's tags, and managed node groups. It only reads; a
    deployment with -c nodeGroups=on scales them.

    For example:

      tenon node-groups
      tenon node-groups --cluster prod --json
    """
    with errors_as_one_line("node-groups"):
        with progress("Reading the cluster and its node groups"):
            from cli import terminal  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster import live_reader  # noqa: PLC0415 (the same)
            from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)
            from shared.base import runtime  # noqa: PLC0415 (slow to import)

            reference = resolve(ClusterReference(context=context, cluster=cluster, region=region))
            with live_reader.read_only_aws(reference):
                observed = live_reader.read(live_reader.connect(reference), reference, now=runtime.current().now())
                described = _describe(observed, reference.cluster)
        if as_json:
            from cli import json_output, node_group_entries  # noqa: PLC0415 (slow to import)

            entries = [node_group_entries.entry(group, node) for group, node in described]
            typer.echo(json_output.text("node-groups", entries))
        else:
            _show(terminal.console(), observed.name, described)


def _describe(observed: ObservedCluster, cluster: str) -> list[Described]:
    import boto3  # noqa: PLC0415 (slow to import)

    from cli.cluster.node_groups import GroupOfferings  # noqa: PLC0415 (the same)
    from cli.cluster.offerings import CatalogOfferings  # noqa: PLC0415 (the same)
    from shared.node_groups.discovery import discover  # noqa: PLC0415 (the same)
    from shared.node_groups.template_node import group_instance_types, template_node  # noqa: PLC0415 (the same)

    create: Any = boto3.client
    groups = discover(cluster, autoscaling=create("autoscaling"), ec2=create("ec2"), eks=create("eks"))
    offerings = observed.offerings.own if isinstance(observed.offerings, GroupOfferings) else observed.offerings
    assert isinstance(offerings, CatalogOfferings)  # a live cluster's are
    types = group_instance_types(offerings.raw, {name for group in groups for name in group.instance_types})
    return [(group, template_node(group, types, observed.snapshot.nodes)) for group in groups]


def _show(console: Console, name: str, described: Sequence[Described]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import)
    from shared.base.plurals import plural  # noqa: PLC0415 (the same)

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
    from cli import terminal  # noqa: PLC0415 (slow to import)
    from shared.api.quantity import CPU, MEMORY, format_quantity  # noqa: PLC0415 (the same)

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

"""The output of ``tenon node-groups --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output
from shared.api.quantity import format_resources

if TYPE_CHECKING:
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.template_node import TemplateNode


class GroupTaint(Output, frozen=True, kw_only=True):
    """A taint of a group's nodes."""

    key: str
    value: str
    effect: str


class NodeGroupEntry(Output, frozen=True, kw_only=True):
    """A node group, and the node that it would add. ``managed`` is the managed node group's name.

    ``price`` is USD per hour, null if it is unknown. ``problems`` say what can't be used.
    """

    name: str
    managed: str
    minimum: int
    desired: int
    maximum: int
    coming: int
    zones: list[str]
    instance_types: list[str]
    capacity_type: str
    labels: dict[str, str]
    taints: list[GroupTaint]
    allocatable: dict[str, str]
    price: float | None
    problems: list[str]


def entry(group: NodeGroup, node: TemplateNode | None) -> NodeGroupEntry:
    """The entry of a group and the node that it would add."""
    return NodeGroupEntry(
        name=group.name,
        managed=group.managed,
        minimum=group.minimum,
        desired=group.desired,
        maximum=group.maximum,
        coming=group.coming,
        zones=list(group.zones),
        instance_types=list(group.instance_types),
        capacity_type=group.capacity_type,
        labels=dict(node.labels if node is not None else group.labels),
        taints=[GroupTaint(key=t.key, value=t.value, effect=t.effect) for t in group.taints],
        allocatable=format_resources(node.allocatable) if node is not None else {},
        price=node.price if node is not None else None,
        problems=list(group.problems),
    )

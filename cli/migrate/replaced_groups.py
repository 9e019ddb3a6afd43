"""Which Auto Scaling groups Cluster Autoscaler scales, and by which options Tenon scales the same ones.

Tenon finds groups by Cluster Autoscaler's two standard tags. Groups that it wouldn't find are an obstacle: nobody would
scale them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.migrate import flag_notes
from shared.base.struct import Struct
from shared.node_groups.descriptions import AutoScalingGroup
from shared.node_groups.discovery import discover
from shared.node_groups.node_group import ENABLED_TAG, TAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cli.migrate.flags import NamedGroup, Translation
    from shared.node_groups.node_group import NodeGroup

Client = Any
"""A boto3 client."""


class GroupChoice(Struct, kw_only=True):
    """How the flags that choose groups are replaced.

    ``names`` are all that Cluster Autoscaler scales. ``options`` is what the ConfigMap gets for them: nothing if Tenon
    may scale all groups that it finds. ``notes`` are by flag.
    """

    names: tuple[str, ...]
    options: Mapping[str, str]
    notes: tuple[tuple[str, str], ...]
    obstacles: tuple[str, ...]


def choose(cluster: str, translation: Translation, *, autoscaling: Client, ec2: Client, eks: Client) -> GroupChoice:
    """The choice of groups by the flags, and by what AWS says about the groups.

    Raises:
        ClientError, BotoCoreError: AWS refuses a call.
    """
    discovered = {g.name: g for g in discover(cluster, autoscaling=autoscaling, ec2=ec2, eks=eks)}
    standard = {ENABLED_TAG, f"{TAG}{cluster}"}
    tagged = [
        (tags, tags.keys() == standard and not any(tags.values()), _names_with(tags, autoscaling))
        for tags in translation.discoveries
    ]
    named = {group.name for group in translation.named}
    scaled = named.union(*(names for _, _, names in tagged))
    takes_all = any(is_standard for _, is_standard, _ in tagged)
    notes: list[tuple[str, str]] = []
    for tags, is_standard, names in tagged:
        flag = f"--{flag_notes.AUTO_DISCOVERY}=asg:tag={_text(tags)}"
        if is_standard:
            notes.append((flag, f"Tenon finds groups by the same tags: {_listed(names)}"))
        elif takes_all:
            notes.append((flag, f"these tags aren't looked at: Tenon scales all groups with {_listed(standard)}"))
        else:
            why = f"Tenon finds groups by {_listed(standard)}; option groups names those of now: {_listed(names)}"
            notes.append((flag, f"{why}; add later ones there, or delete that option to scale all with the two tags"))
    notes.extend(
        (f"--{flag_notes.NODES}={g.minimum}:{g.maximum}:{g.name}", _size_note(g, discovered)) for g in translation.named
    )
    return GroupChoice(
        names=tuple(sorted(scaled)),
        options={} if takes_all or not scaled else {flag_notes.GROUPS: ",".join(sorted(scaled))},
        notes=tuple(notes),
        obstacles=tuple(_obstacles(cluster, scaled, discovered)),
    )


def _size_note(named: NamedGroup, discovered: Mapping[str, NodeGroup]) -> str:
    group = discovered.get(named.name)
    if group is None:
        return "Tenon doesn't find this group"
    if (group.minimum, group.maximum) == (named.minimum, named.maximum):
        return f"the group's own sizes are the same: {group.minimum} to {group.maximum}"
    return (
        f"Tenon keeps to the group's own sizes, which are {group.minimum} to {group.maximum}: change those if "
        f"{named.minimum} to {named.maximum} shall hold"
    )


def _obstacles(cluster: str, scaled: Iterable[str], discovered: Mapping[str, NodeGroup]) -> Iterator[str]:
    missing = sorted(set(scaled) - discovered.keys())
    if missing:
        tag = "aws autoscaling create-or-update-tags --tags"
        values = " ".join(
            f"ResourceId={missing[0]},ResourceType=auto-scaling-group,Key={key},Value=true,PropagateAtLaunch=false"
            for key in (ENABLED_TAG, f"{TAG}{cluster}")
        )
        yield (
            f"Tenon doesn't find {_listed(missing)}: give each the tags {ENABLED_TAG} and {TAG}{cluster} "
            f"(`{tag} {values}`)"
        )
    if not scaled:
        yield "it scales no group: neither --nodes nor --node-group-auto-discovery names one that exists"


def _names_with(tags: Mapping[str, str | None], autoscaling: Client) -> set[str]:
    """The groups with all the tags, as Cluster Autoscaler finds them."""
    filters = [{"Name": "tag-key", "Values": [next(iter(tags))]}]
    pages = autoscaling.get_paginator("describe_auto_scaling_groups").paginate(Filters=filters)
    groups = (msgspec.convert(raw, AutoScalingGroup) for page in pages for raw in page["AutoScalingGroups"])
    return {group.auto_scaling_group_name for group in groups if _has(group, tags)}


def _has(group: AutoScalingGroup, tags: Mapping[str, str | None]) -> bool:
    own = {tag.key: tag.value for tag in group.tags}
    return all(key in own and value in {None, own[key]} for key, value in tags.items())


def _text(tags: Mapping[str, str | None]) -> str:
    return ",".join(key if value is None else f"{key}={value}" for key, value in tags.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"

"""A node group as scheduling needs it: its sizes, and the node that it would add. Pure.

The rules are those of Cluster Autoscaler on AWS: tags ``k8s.io/cluster-autoscaler/node-template/…`` describe the nodes
of a group, and EKS's own description of a managed node group comes before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.duration import DurationError, parse_duration
from shared.api.kubernetes import EFFECTS, Taint
from shared.api.quantity import QuantityError, parse_resources
from shared.base.struct import Struct
from shared.cloud_provider import provider_id
from shared.node_groups.options import parse_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from shared.api.quantity import Resources
    from shared.node_groups.descriptions import AutoScalingGroup, ManagedNodeGroup

TAG = "k8s.io/cluster-autoscaler/"
ENABLED_TAG = f"{TAG}enabled"
_TEMPLATE = f"{TAG}node-template/"
_LABEL, _TAINT, _RESOURCE = f"{_TEMPLATE}label/", f"{_TEMPLATE}taint/", f"{_TEMPLATE}resources/"
_OPTION = f"{_TEMPLATE}autoscaling-options/"
_THRESHOLD, _UNNEEDED, _UNREADY = (
    f"{_OPTION}scaledown{option}" for option in ("utilizationthreshold", "unneededtime", "unreadytime")
)
MANAGED_LABEL = "eks.amazonaws.com/nodegroup"
_WARMED = "Warmed:"
"""The states of instances in a warm pool begin with it: they are neither asked for nor nodes."""
_EKS_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


class GroupInstance(Struct, kw_only=True):
    """An instance of a group, and its lifecycle state as Auto Scaling names it."""

    id: str
    zone: str
    instance_type: str
    state: str

    @property
    def provider_id(self) -> str:
        """As nodes have it."""
        return provider_id(self.zone, self.id)

    @property
    def in_service(self) -> bool:
        """Whether the group counts it as running."""
        return self.state == "InService"

    @property
    def is_expected(self) -> bool:
        """Whether it counts towards the desired capacity and is, or becomes, a node."""
        return is_expected(self.state)


def is_expected(state: str) -> bool:
    """Whether an instance in this lifecycle state counts towards the desired capacity and is, or becomes, a node."""
    return state == "InService" or state.startswith("Pending")


class ScaleDownOptions(Struct, kw_only=True):
    """What a group's tags say about scaling down; None is the deployment's value. The threshold is in thousandths."""

    utilization_threshold: int | None = None
    unneeded_time: timedelta | None = None
    unready_time: timedelta | None = None


class NodeGroup(Struct, kw_only=True):
    """An Auto Scaling group. ``managed`` is the name of its managed node group, "" if it has none.

    ``instance_types`` are all that it may launch; ``resources`` are those that tags state, in addition to the types'
    own. ``problems`` are sentences about what can't be used: such a group isn't scaled.
    """

    name: str
    managed: str = ""
    minimum: int
    maximum: int
    desired: int
    zones: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    capacity_type: str = names.ON_DEMAND
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: Resources = {}
    scale_down: ScaleDownOptions = ScaleDownOptions()
    instances: tuple[GroupInstance, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def coming(self) -> int:
        """Instances that the group was asked for and that aren't in service."""
        return max(0, self.desired - sum(instance.in_service for instance in self.instances))

    @property
    def room(self) -> int:
        """How many more it may be asked for."""
        return max(0, self.maximum - self.desired)


def node_group(
    described: AutoScalingGroup, managed: ManagedNodeGroup | None, template_types: Mapping[str, tuple[str, bool]]
) -> NodeGroup:
    """The node group of these descriptions.

    ``template_types`` has the instance type of each launch template (id or name), and whether it asks for spot.
    """
    tags = {tag.key: tag.value for tag in described.tags}
    template_type, is_spot = template_types.get(described.template_key, ("", False))
    types = described.override_types or ((template_type,) if template_type else ())
    taints, taint_problems = _taints(tags, managed)
    resources, resource_problems = _resources(tags)
    scale_down, option_problems = _scale_down(tags)
    return NodeGroup(
        name=described.auto_scaling_group_name,
        managed=managed.nodegroup_name if managed is not None else "",
        minimum=described.min_size,
        maximum=described.max_size,
        desired=described.desired_capacity,
        zones=tuple(sorted(described.availability_zones)),
        instance_types=types or (tuple(managed.instance_types) if managed is not None else ()),
        capacity_type=names.SPOT if _is_spot(described, managed, of_template=is_spot) else names.ON_DEMAND,
        labels=_labels(tags, managed),
        taints=taints,
        resources=resources,
        scale_down=scale_down,
        instances=tuple(
            GroupInstance(
                id=i.instance_id, zone=i.availability_zone, instance_type=i.instance_type, state=i.lifecycle_state
            )
            for i in described.instances
            if not i.lifecycle_state.startswith(_WARMED)
        ),
        problems=(
            *taint_problems,
            *resource_problems,
            *option_problems,
            *_type_problems(described, types, managed),
        ),
    )


def _is_spot(described: AutoScalingGroup, managed: ManagedNodeGroup | None, *, of_template: bool) -> bool:
    """Whether all instances above the base are spot; a mixture counts, and is priced, as on-demand."""
    if managed is not None:
        return managed.capacity_type == "SPOT"
    distribution = described.distribution
    if distribution is None:
        return of_template
    return not distribution.on_demand_base_capacity and not distribution.on_demand_percentage_above_base_capacity


def _labels(tags: Mapping[str, str], managed: ManagedNodeGroup | None) -> dict[str, str]:
    labels = {key.removeprefix(_LABEL): value for key, value in tags.items() if key.startswith(_LABEL)}
    if managed is None:
        return labels
    own = {MANAGED_LABEL: managed.nodegroup_name, names.EKS_CAPACITY_TYPE: managed.capacity_type}
    return {**labels, **managed.labels, **own}


def _taints(tags: Mapping[str, str], managed: ManagedNodeGroup | None) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """The taints, EKS's own first, and what is wrong with tags."""
    taints = {
        (taint.key, effect): Taint(key=taint.key, value=taint.value, effect=effect)
        for taint in (managed.taints if managed is not None else ())
        if (effect := _EKS_EFFECTS.get(taint.effect, taint.effect))
    }
    problems = []
    for tag, text in sorted(tags.items()):
        if not tag.startswith(_TAINT):
            continue
        value, _, effect = text.rpartition(":")
        key = tag.removeprefix(_TAINT)
        if effect not in EFFECTS:
            problems.append(f'tag {tag}: "{text}" has no effect; allowed is VALUE:EFFECT with {", ".join(EFFECTS)}')
        else:
            taints.setdefault((key, effect), Taint(key=key, value=value, effect=effect))
    return tuple(taints.values()), tuple(problems)


def _resources(tags: Mapping[str, str]) -> tuple[Resources, tuple[str, ...]]:
    stated: dict[str, int] = {}
    problems = []
    for tag, text in sorted(tags.items()):
        if tag.startswith(_RESOURCE):
            try:
                stated |= parse_resources({tag.removeprefix(_RESOURCE): text})
            except QuantityError as error:
                problems.append(f"tag {tag}: {error}")
    return stated, tuple(problems)


def _scale_down(tags: Mapping[str, str]) -> tuple[ScaleDownOptions, tuple[str, ...]]:
    problems: list[str] = []

    def duration(tag: str) -> timedelta | None:
        if tag not in tags:
            return None
        try:
            return parse_duration(tags[tag])
        except DurationError as error:
            problems.append(f"tag {tag}: {error}")
            return None

    threshold = None
    if _THRESHOLD in tags:
        try:
            threshold = parse_share(tags[_THRESHOLD])
        except ValueError as error:
            problems.append(f"tag {_THRESHOLD}: {error}")
    options = ScaleDownOptions(
        utilization_threshold=threshold,
        unneeded_time=duration(_UNNEEDED),
        unready_time=duration(_UNREADY),
    )
    return options, tuple(problems)


def _type_problems(
    described: AutoScalingGroup, types: tuple[str, ...], managed: ManagedNodeGroup | None
) -> Iterator[str]:
    if described.has_requirements:
        yield "its instance types are given by requirements (InstanceRequirements), so their size isn't known"
    elif not types and (managed is None or not managed.instance_types):
        yield "neither its launch template nor its overrides name an instance type"

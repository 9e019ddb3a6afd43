"""Auto Scaling's and EKS's descriptions of groups: the fields that are used."""

from __future__ import annotations

from shared.base.struct import WireStruct


class _Description(WireStruct, rename="pascal"):
    """As Auto Scaling answers."""


class Tag(_Description):
    """A tag of a group."""

    key: str
    value: str = ""


class Instance(_Description):
    """An instance of a group."""

    instance_id: str
    availability_zone: str = ""
    instance_type: str = ""
    lifecycle_state: str = ""


class LaunchTemplate(_Description):
    """A reference to a launch template."""

    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = "$Default"


class Override(_Description):
    """One of the instance types of a mixed group, or requirements that stand for many."""

    instance_type: str = ""
    instance_requirements: dict[str, object] | None = None


class MixedTemplate(_Description):
    """The launch template of a mixed group with its overrides."""

    launch_template_specification: LaunchTemplate = LaunchTemplate()
    overrides: tuple[Override, ...] = ()


class Distribution(_Description):
    """How many instances of a mixed group are on-demand."""

    on_demand_base_capacity: int = 0
    on_demand_percentage_above_base_capacity: int = 100


class MixedPolicy(_Description):
    """The policy of a group with several instance types."""

    launch_template: MixedTemplate = MixedTemplate()
    instances_distribution: Distribution = Distribution()


class AutoScalingGroup(_Description):
    """An Auto Scaling group."""

    auto_scaling_group_name: str
    min_size: int = 0
    max_size: int = 0
    desired_capacity: int = 0
    availability_zones: tuple[str, ...] = ()
    instances: tuple[Instance, ...] = ()
    tags: tuple[Tag, ...] = ()
    launch_template: LaunchTemplate | None = None
    mixed_instances_policy: MixedPolicy | None = None

    @property
    def template(self) -> LaunchTemplate | None:
        """The launch template that its instances are launched from."""
        if self.mixed_instances_policy is not None:
            return self.mixed_instances_policy.launch_template.launch_template_specification
        return self.launch_template

    @property
    def template_key(self) -> str:
        """The id of that launch template, or its name, and its version."""
        template = self.template
        if template is None:
            return ""
        return f"{template.launch_template_id or template.launch_template_name}:{template.version}"

    @property
    def override_types(self) -> tuple[str, ...]:
        """The instance types that override that of the launch template."""
        return tuple(override.instance_type for override in self._overrides if override.instance_type)

    @property
    def has_requirements(self) -> bool:
        """Whether its instance types follow from requirements instead of names."""
        return any(override.instance_requirements for override in self._overrides)

    @property
    def distribution(self) -> Distribution | None:
        """How many are on-demand; None unless the group is mixed."""
        return self.mixed_instances_policy.instances_distribution if self.mixed_instances_policy is not None else None

    @property
    def _overrides(self) -> tuple[Override, ...]:
        return self.mixed_instances_policy.launch_template.overrides if self.mixed_instances_policy is not None else ()


class ManagedTaint(WireStruct):
    """A taint as EKS writes it: effects are NO_SCHEDULE, NO_EXECUTE and PREFER_NO_SCHEDULE."""

    key: str
    value: str = ""
    effect: str = ""


class _GroupName(WireStruct):
    name: str


class _Resources(WireStruct, rename="camel"):
    auto_scaling_groups: tuple[_GroupName, ...] = ()


class ManagedNodeGroup(WireStruct, rename="camel"):
    """A managed node group, as EKS answers."""

    nodegroup_name: str
    status: str = ""
    capacity_type: str = "ON_DEMAND"
    instance_types: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    taints: tuple[ManagedTaint, ...] = ()
    resources: _Resources = _Resources()

    @property
    def auto_scaling_groups(self) -> tuple[str, ...]:
        """The names of its Auto Scaling groups."""
        return tuple(group.name for group in self.resources.auto_scaling_groups)

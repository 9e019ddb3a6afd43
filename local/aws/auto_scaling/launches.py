"""One launch of an Auto Scaling group in one zone, out of the local capacity pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.exceptions import ServiceException

from local.aws.fleet import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Fleet = Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """Launches as CreateFleet with these parameters; its answer."""

GROUP_TAG = "aws:autoscaling:groupName"
_ALL = 100


class LaunchFailedError(Exception):
    """EC2 launched nothing; the text is the activity's status message."""


def launch(group: Any, zone: str, fleet: Fleet) -> Any:
    """Launch one instance of the group in the zone, with the group's tags; moto's instance.

    Raises:
        LaunchFailedError: EC2 has no capacity there, or refuses the launch template.
    """
    capacity_type = _capacity_type(group)
    try:
        answer = fleet(_parameters(group, zone, capacity_type))
    except ServiceException as error:
        raise LaunchFailedError(f"{error.message}. Launching EC2 instance failed.") from error
    ids = [instance_id for launched in answer["Instances"] for instance_id in launched["InstanceIds"]]
    if not ids:
        raise LaunchFailedError(_failure(answer["Errors"][0], capacity_type))
    instance = group.ec2_backend.get_instance_by_id(ids[0])
    instance.autoscaling_group = group
    instance.add_tags({**group.get_propagated_tags(), GROUP_TAG: group.name})
    return instance


def launch_details(instance: Any) -> dict[str, str]:
    """Where the instance is, as activities and events say."""
    return {"Subnet ID": str(instance.subnet_id), "Availability Zone": str(instance.availability_zone)}


def template_of(group: Any) -> tuple[str, int]:
    """The id and the number of the launch template version that the group launches now."""
    template = group.ec2_launch_template
    return str(template.id), int(template.get_version(group.launch_template_version).number)


def _failure(error: Mapping[str, Any], capacity_type: str) -> str:
    if capacity_type == SPOT:
        text = f"Could not launch Spot Instances. {error['ErrorCode']} - {error['ErrorMessage']}"
    else:
        text = str(error["ErrorMessage"])
    return f"{text} Launching EC2 instance failed."


def _capacity_type(group: Any) -> str:
    """The capacity type of the next instance: of a mixed group, by the distribution over those that it has."""
    if not group.mixed_instances_policy:
        data = group.ec2_launch_template.get_version(group.launch_template_version).data
        return SPOT if (data.get("InstanceMarketOptions") or {}).get("MarketType") == SPOT else ON_DEMAND
    distribution = group.mixed_instances_policy.get("InstancesDistribution") or {}
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    percent = distribution.get("OnDemandPercentageAboveBaseCapacity")
    percentage = _ALL if percent is None else int(percent)
    present = [member.instance.lifecycle == SPOT for member in group.instance_states if member.counts]
    on_demand, total = present.count(False), len(present) + 1
    # Rounded up to on-demand, as Auto Scaling does.
    wanted = min(total, base) + -(-max(0, total - base) * percentage // _ALL)
    return ON_DEMAND if on_demand < wanted else SPOT


def _parameters(group: Any, zone: str, capacity_type: str) -> dict[str, Any]:
    template_id, version = template_of(group)
    policy = group.mixed_instances_policy or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or [{}]
    distribution = policy.get("InstancesDistribution") or {}
    options, strategy = (
        ("SpotOptions", distribution.get("SpotAllocationStrategy"))
        if capacity_type == SPOT
        else ("OnDemandOptions", distribution.get("OnDemandAllocationStrategy"))
    )
    subnet = _subnet(group, zone)
    types = [override["InstanceType"] for override in overrides if override.get("InstanceType")]
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template_id, "Version": str(version)},
                "Overrides": [
                    {"InstanceType": instance_type, "SubnetId": subnet, "Priority": priority}
                    for priority, instance_type in enumerate(types)
                ]
                or [{"SubnetId": subnet}],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": capacity_type},
        options: {"AllocationStrategy": strategy or "prioritized"},
    }


def _subnet(group: Any, zone: str) -> str:
    """The group's first subnet in the zone."""
    subnets = (group.ec2_backend.get_subnet(id_) for id_ in group.vpc_zone_identifier.split(","))
    return next(str(subnet.id) for subnet in subnets if subnet.availability_zone == zone)

"""Auto Scaling's answers about warm pools; moto's have no instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult, EmptyResult

from local.aws.auto_scaling import warm_pools
from local.aws.auto_scaling.requested import VALIDATION, group_named, refused
from local.aws.fleet import SPOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.auto_scaling.groups import AutoScalingGroups
    from local.aws.auto_scaling.members import Group


def replacements(
    backend_class: Any,
    response_class: Any,
    groups: AutoScalingGroups,
) -> Sequence[tuple[object, str, object]]:
    """The replacements of moto's backend and responses."""
    put = backend_class.put_warm_pool

    def put_warm_pool(backend: Any, group_name: str, **params: Any) -> None:
        group = group_named(backend, group_name)
        _check(group, params)
        put(backend, group_name=group_name, **params)
        groups.capacity_changed(group)

    def describe_warm_pool(response: Any) -> ActionResult:
        group = _group(response)
        instances = [member for member in group.instance_states if member.is_warm]
        return ActionResult({"WarmPoolConfiguration": group.warm_pool, "Instances": instances})

    def delete_warm_pool(response: Any) -> EmptyResult:
        group = _group(response)
        members = warm_pools.members(group)
        if members and not response._get_bool_param("ForceDelete", False):  # noqa: FBT003, SLF001 - how moto's own read them
            raise refused("ResourceInUse", "You cannot delete a warm pool while it has instances.")
        group.warm_pool = None
        for member in members:
            groups.terminate(group, member, "an instance was taken out of the deleted warm pool.", waits=False)
        return EmptyResult()

    return [
        (backend_class, "put_warm_pool", put_warm_pool),
        (response_class, "describe_warm_pool", describe_warm_pool),
        (response_class, "delete_warm_pool", delete_warm_pool),
    ]


def _check(group: Group, params: dict[str, Any]) -> None:
    template = group.ec2_launch_template.get_version(group.launch_template_version).data
    launches_spot = (template.get("InstanceMarketOptions") or {}).get("MarketType") == SPOT
    if group.mixed_instances_policy or launches_spot:
        text = "You can't add a warm pool to an Auto Scaling group that has a mixed instances policy or that launches "
        raise refused(VALIDATION, f"{text}Spot Instances.")
    if (params.get("instance_reuse_policy") or {}).get("ReuseOnScaleIn"):
        raise NotImplementedError("here, instances don't return to a warm pool")
    if params.get("pool_state") not in (None, warm_pools.STOPPED, warm_pools.RUNNING):
        raise NotImplementedError(f"here, instances of a warm pool aren't {params['pool_state']}")


def _group(response: Any) -> Group:
    return group_named(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))  # noqa: SLF001 - how moto's own read them

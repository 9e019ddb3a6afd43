"""Auto Scaling's answers, where moto's differ: sizes and instances are checked, and groups scale over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult, EmptyResult

from local.aws.auto_scaling import lifecycle_answers, warm_pool_answers
from local.aws.auto_scaling.requested import VALIDATION, group_named, member_of, refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.aws.auto_scaling.activities import Activity
    from local.aws.auto_scaling.groups import AutoScalingGroups
    from local.aws.auto_scaling.members import Group, Member

Replacement = tuple[object, str, object]
"""A class, the name of its attribute, and the value."""


def replacements(groups: AutoScalingGroups) -> Sequence[Replacement]:
    """The replacements of moto's models and responses."""
    from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
    from moto.autoscaling.responses import AutoScalingResponse

    update = FakeAutoScalingGroup.update

    def update_group(group: Group, **params: Any) -> None:
        _check_updated(group, params["min_size"], params["max_size"], params["desired_capacity"])
        policy = group.mixed_instances_policy
        update(group, **params)
        if not params.get("mixed_instances_policy") and not params["launch_template"]:
            group.mixed_instances_policy = policy  # moto drops it

    def set_desired_capacity_of(group: Group, new_capacity: int | None) -> None:
        group.desired_capacity = group.min_size if new_capacity is None else new_capacity
        groups.capacity_changed(group)

    return [
        (FakeAutoScalingGroup, "set_desired_capacity", set_desired_capacity_of),
        (FakeAutoScalingGroup, "update", update_group),
        *_backend(AutoScalingBackend, groups),
        *_responses(AutoScalingResponse, groups),
        *lifecycle_answers.replacements(AutoScalingResponse, groups),
        *warm_pool_answers.replacements(AutoScalingBackend, AutoScalingResponse, groups),
    ]


def _backend(backend_class: Any, groups: AutoScalingGroups) -> list[Replacement]:
    create = backend_class.create_auto_scaling_group

    def create_auto_scaling_group(backend: Any, name: str, **params: Any) -> Group:
        _check_new(backend, name, params)
        return create(backend, name, **params)

    def set_desired_capacity(backend: Any, group_name: str, desired_capacity: int) -> None:
        group = group_named(backend, group_name)
        _check_bounds(group, desired_capacity)
        group.set_desired_capacity(desired_capacity)

    def terminate_instance(backend: Any, instance_id: str, should_decrement: bool) -> Activity:  # noqa: FBT001 - the same
        group, member = member_of(backend, instance_id)
        return _terminate(groups, group, member, shrinks=should_decrement)

    return [
        (backend_class, "create_auto_scaling_group", create_auto_scaling_group),
        (backend_class, "set_desired_capacity", set_desired_capacity),
        (backend_class, "terminate_instance", terminate_instance),
        # moto replaces an instance at once when EC2 terminates it.
        (backend_class, "notify_terminate_instances", lambda _backend, _instance_ids: None),
    ]


def _responses(response_class: Any, groups: AutoScalingGroups) -> list[Replacement]:
    describe = response_class.describe_auto_scaling_groups

    def describe_auto_scaling_groups(response: Any) -> ActionResult:
        answer = describe(response).result
        shown = [groups.shown(group) for group in answer["AutoScalingGroups"]]
        return ActionResult({**answer, "AutoScalingGroups": shown})

    def describe_scaling_activities(response: Any) -> ActionResult:
        param = response._get_param  # noqa: SLF001 - how moto's own read them
        return ActionResult(
            groups.activities.page(
                group=str(param("AutoScalingGroupName") or ""),
                ids=param("ActivityIds") or (),
                token=str(param("NextToken") or ""),
                limit=int(param("MaxRecords") or 0),
            )
        )

    def delete_auto_scaling_group(response: Any) -> EmptyResult:
        backend = response.autoscaling_backend
        group = group_named(backend, response._get_param("AutoScalingGroupName"))  # noqa: SLF001 - how moto's own read them
        if group.instance_states and not response._get_bool_param("ForceDelete", False):  # noqa: FBT003, SLF001 - the same
            text = (
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
            )
            raise refused("ResourceInUse", f"{text}still in the group.")
        delete_group(backend, group, groups)
        return EmptyResult()

    return [
        (response_class, "describe_auto_scaling_groups", describe_auto_scaling_groups),
        (response_class, "describe_scaling_activities", describe_scaling_activities),
        (response_class, "delete_auto_scaling_group", delete_auto_scaling_group),
    ]


def delete_group(backend: Any, group: Group, groups: AutoScalingGroups) -> None:
    """Terminate the group's instances, and delete it."""
    for member in group.instance_states:
        if not member.is_terminating or member.waits:
            cause = "an instance was taken out of service as its group is deleted."
            groups.terminate(group, member, cause, waits=False)
    del backend.autoscaling_groups[group.name]
    groups.forget(group)


def _check_new(backend: Any, name: str, params: Mapping[str, Any]) -> None:
    if name in backend.autoscaling_groups:
        text = "AutoScalingGroup by this name already exists - A group with the name already exists"
        raise refused("AlreadyExists", f"{text}: {name}")
    if params["launch_config_name"] or params.get("instance_id") or not params["vpc_zone_identifier"]:
        raise NotImplementedError("here, Auto Scaling groups need a launch template and subnets")
    minimum, maximum = int(params["min_size"]), int(params["max_size"])
    desired = minimum if params["desired_capacity"] is None else int(params["desired_capacity"])
    _check_sizes(minimum, maximum, desired)


def _check_updated(group: Group, minimum: int | None, maximum: int | None, desired: int | None) -> None:
    """Check the sizes of an update. Without a desired capacity, the group's own moves into the new bounds."""
    minimum, maximum = (
        group.min_size if minimum is None else minimum,
        group.max_size if maximum is None else maximum,
    )
    _check_sizes(minimum, maximum, minimum if desired is None else desired)


def _check_sizes(minimum: int, maximum: int, desired: int) -> None:
    if not minimum <= desired <= maximum:
        text = f"Desired capacity:{desired} must be between the specified min size:{minimum} and max size:{maximum}"
        raise refused(VALIDATION, text)


def _check_bounds(group: Group, desired: int) -> None:
    if group.min_size <= desired <= group.max_size:
        return
    bound = f"below min value {group.min_size}" if desired < group.min_size else f"above max value {group.max_size}"
    raise refused(VALIDATION, f"New SetDesiredCapacity value {desired} is {bound} for the AutoScalingGroup.")


def _terminate(groups: AutoScalingGroups, group: Group, member: Member, *, shrinks: bool) -> Activity:
    if member.is_terminating:
        text = f"Activities are in progress and affect the instance {member.instance_id}, which is being terminated."
        raise refused("ScalingActivityInProgress", text)
    before = group.desired_capacity
    cause = f"instance {member.instance_id} was taken out of service in response to a user request"
    if not shrinks or member.is_warm:
        return groups.terminate(group, member, f"{cause}.")
    if before <= group.min_size:
        text = f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement "
        text += "will violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false "
        raise refused(VALIDATION, f"{text}or lower group's min size.")
    group.desired_capacity = before - 1
    return groups.terminate(group, member, f"{cause}, shrinking the capacity from {before} to {before - 1}.")

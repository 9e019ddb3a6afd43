"""Auto Scaling's answers about lifecycle hooks and their actions; moto only keeps the hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult, EmptyResult

from local.aws.auto_scaling.lifecycle_hooks import updated
from local.aws.auto_scaling.requested import VALIDATION, group_named, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local.aws.auto_scaling.groups import AutoScalingGroups
    from local.aws.auto_scaling.lifecycle_hooks import Action, LifecycleHooks

    Answer = Callable[[Any], object]


def replacements(response_class: Any, groups: AutoScalingGroups) -> Sequence[tuple[object, str, object]]:
    """The replacements of moto's responses."""
    answers = (*_answers_about_hooks(groups.hooks), *_answers_about_actions(groups))
    return [(response_class, answer.__name__, answer) for answer in answers]


def _answers_about_hooks(hooks: LifecycleHooks) -> Sequence[Answer]:
    def put_lifecycle_hook(response: Any) -> EmptyResult:
        param = response._get_param  # noqa: SLF001 - how moto's own read them
        group = group_named(response.autoscaling_backend, param("AutoScalingGroupName"))
        name = param("LifecycleHookName")
        before = hooks.find(group.name, name)
        if before is None and not param("LifecycleTransition"):
            raise refused(VALIDATION, "LifecycleTransition is required when creating a lifecycle hook")
        hooks.put(
            updated(
                before,
                group=str(group.name),
                name=name,
                transition=param("LifecycleTransition"),
                heartbeat_timeout=response._get_int_param("HeartbeatTimeout"),  # noqa: SLF001 - the same
                default_result=param("DefaultResult"),
                metadata=param("NotificationMetadata"),
                target=param("NotificationTargetARN"),
                role=param("RoleARN"),
            )
        )
        return EmptyResult()

    def describe_lifecycle_hooks(response: Any) -> ActionResult:
        param = response._get_param  # noqa: SLF001 - how moto's own read them
        group = group_named(response.autoscaling_backend, param("AutoScalingGroupName"))
        described = hooks.of_group(group.name, param("LifecycleHookNames") or ())
        return ActionResult({"LifecycleHooks": [hook.answer() for hook in described]})

    def delete_lifecycle_hook(response: Any) -> EmptyResult:
        param = response._get_param  # noqa: SLF001 - how moto's own read them
        group = group_named(response.autoscaling_backend, param("AutoScalingGroupName"))
        name = param("LifecycleHookName")
        if hooks.find(group.name, name) is None:
            raise refused(VALIDATION, "No Lifecycle Hook found")
        hooks.remove(group.name, name)
        return EmptyResult()

    return (put_lifecycle_hook, describe_lifecycle_hooks, delete_lifecycle_hook)


def _answers_about_actions(groups: AutoScalingGroups) -> Sequence[Answer]:
    def complete_lifecycle_action(response: Any) -> EmptyResult:
        _action(response, groups).result = response._get_param("LifecycleActionResult")  # noqa: SLF001 - how moto's own read them
        return EmptyResult()

    def record_lifecycle_action_heartbeat(response: Any) -> EmptyResult:
        _action(response, groups).heartbeat(groups.hooks.now())
        return EmptyResult()

    return (complete_lifecycle_action, record_lifecycle_action_heartbeat)


def _action(response: Any, groups: AutoScalingGroups) -> Action:
    """The action that a request names by its token or instance."""
    param = response._get_param  # noqa: SLF001 - how moto's own read them
    group = group_named(response.autoscaling_backend, param("AutoScalingGroupName"))
    name, token = param("LifecycleHookName"), str(param("LifecycleActionToken") or "")
    instance_id = str(param("InstanceId") or "")
    action = groups.hooks.active(group.name, name, token=token, instance_id=instance_id)
    if action is None:
        named = f"token {token}" if token else f"instance ID {instance_id}"
        raise refused(VALIDATION, f"No active Lifecycle Action found with {named}")
    return action

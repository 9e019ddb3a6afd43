"""Warm pools: instances next to a group that are taken first when it grows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.local.aws.worker_groups import GROUP, KIND, SOON, error_of

if TYPE_CHECKING:
    from tests.local.aws.environment import Environment
    from tests.local.aws.worker_groups import Groups

WARMED = timedelta(seconds=30)


def warm(groups: Groups) -> list[tuple[str, str]]:
    answer = groups.api.describe_warm_pool(AutoScalingGroupName=GROUP)
    return sorted((instance["InstanceId"], instance["LifecycleState"]) for instance in answer["Instances"])


def test_a_pool_holds_what_the_group_may_still_grow_by(groups: Groups, env: Environment) -> None:
    groups.create(desired=1, maximum=3)
    groups.api.put_warm_pool(AutoScalingGroupName=GROUP)
    env.run_for(WARMED)
    assert [state for _, state in warm(groups)] == ["Warmed:Stopped"] * 2
    assert groups.states() == ["InService"]
    group = groups.described()
    assert (group["WarmPoolConfiguration"]["PoolState"], group["WarmPoolSize"]) == ("Stopped", 2)
    assert groups.running() == 1
    listed = groups.api.describe_auto_scaling_instances()["AutoScalingInstances"]
    assert sorted(i["LifecycleState"] for i in listed) == ["InService", "Warmed:Stopped", "Warmed:Stopped"]


@pytest.mark.parametrize(("state", "prepared", "count"), [("Running", 2, 1), ("Stopped", 3, 2)])
def test_a_growing_group_takes_from_its_pool(
    groups: Groups, env: Environment, state: str, prepared: int, count: int
) -> None:
    groups.create(desired=1)
    groups.api.put_warm_pool(AutoScalingGroupName=GROUP, PoolState=state, MaxGroupPreparedCapacity=prepared)
    env.run_for(WARMED)
    before = warm(groups)
    assert [s for _, s in before] == [f"Warmed:{state}"] * count
    groups.scale(2)
    env.run_for(timedelta(seconds=15))
    assert groups.states() == ["InService"] * 2
    taken = {id_ for id_, _ in before} & set(groups.ids())
    assert len(taken) == 1
    assert len(warm(groups)) == count - 1
    assert "from warm pool" in groups.activities()[0]["Description"]


def test_launch_hooks_hold_an_instance_before_the_pool_and_before_the_group(groups: Groups, env: Environment) -> None:
    groups.create()
    groups.api.put_lifecycle_hook(
        AutoScalingGroupName=GROUP,
        LifecycleHookName="prepare",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
    )
    groups.api.put_warm_pool(AutoScalingGroupName=GROUP, MaxGroupPreparedCapacity=1)
    env.run_for(WARMED)
    ((first, state),) = warm(groups)
    assert state == "Warmed:Pending:Wait"

    def complete() -> None:
        groups.api.complete_lifecycle_action(
            AutoScalingGroupName=GROUP, LifecycleHookName="prepare", LifecycleActionResult="CONTINUE", InstanceId=first
        )

    complete()
    env.run_for(SOON)
    assert warm(groups) == [(first, "Warmed:Stopped")]
    groups.scale(1)
    env.run_for(timedelta(seconds=15))
    assert groups.states() == ["Pending:Wait"]
    complete()
    env.run_for(timedelta(seconds=1))
    assert (groups.ids(), groups.states()) == ([first], ["InService"])


def test_without_capacity_to_start_one_the_group_launches_another(groups: Groups, env: Environment) -> None:
    groups.create(zones=2)
    groups.api.put_warm_pool(AutoScalingGroupName=GROUP, MaxGroupPreparedCapacity=1)
    env.run_for(WARMED)
    ((first, _),) = warm(groups)
    env.cloud.capacity.set("on-demand", KIND, "us-east-1a", 0)
    groups.scale(1)
    env.run_for(timedelta(seconds=15))
    (instance,) = groups.described()["Instances"]
    assert (instance["AvailabilityZone"], instance["LifecycleState"]) == ("us-east-1b", "InService")
    assert instance["InstanceId"] != first


def test_a_pool_with_instances_is_deleted_only_by_force(groups: Groups, env: Environment) -> None:
    groups.create(desired=1, maximum=2)
    groups.api.put_warm_pool(AutoScalingGroupName=GROUP)
    env.run_for(WARMED)
    assert error_of(groups.api.delete_warm_pool, AutoScalingGroupName=GROUP)[0] == "ResourceInUse"
    groups.api.delete_warm_pool(AutoScalingGroupName=GROUP, ForceDelete=True)
    env.run_for(WARMED)
    assert warm(groups) == []
    assert "WarmPoolConfiguration" not in groups.described()
    assert groups.states() == ["InService"]

"""A function that crashes at any call about node groups: nothing is launched twice, nothing is left behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from local.world import World, sample_objects
from tests.e2e.node_groups import LARGE, SMALL, all_run, managed_node_group, options, scaling, sizes

LIMIT = timedelta(minutes=30)


@pytest.mark.parametrize(
    ("function", "required_calls"),
    [
        ("provisioner", {"auto-scaling SetDesiredCapacity"}),
        ("nodegroups", {"auto-scaling TerminateInstanceInAutoScalingGroup", "kubernetes PATCH nodes/NAME"}),
    ],
)
def test_a_crash_between_any_two_calls(function: str, required_calls: set[str]) -> None:
    with World(cluster="demo", options=scaling()) as world:
        crashes = world.faults.crash_around_each_write(function)
        group = managed_node_group(world)
        world.apply(options({"scale-down-unneeded-time": "1m", "scale-down-delay-after-add": "1m"}))
        for round_ in range(3):
            for name, requests in (("large", LARGE), ("small", SMALL), ("second", LARGE)):
                world.apply(sample_objects.deployment(name, 1, requests))
            world.run_until(lambda: all_run(world, 3), limit=LIMIT)
            assert sizes(group)[1] == 2
            assert len(world.aws.instances.all) == 2 * (round_ + 1)
            for name in ("large", "second", "small"):
                world.scale("default", name, 0)
            world.run_until(lambda: not world.nodes(), limit=LIMIT)
            assert sizes(group)[1] == 0
            world.run_until(lambda: not world.instances(), limit=LIMIT)
        assert {(call, when) for call in required_calls for when in ("before", "after")} <= crashes.tried

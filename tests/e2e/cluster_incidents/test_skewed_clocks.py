"""The clock of the functions, or of the API server, is five minutes off."""

from __future__ import annotations

from datetime import timedelta

import pytest

from local.world import Options, World
from tests.e2e.cluster_incidents.small_pool import pool, web
from tests.e2e.world_state import running

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("minutes", [5, -5])
@pytest.mark.parametrize("whose", ["functions", "API server"])
def test_pods_get_nodes_which_expire_once_and_go_when_they_are_empty(whose: str, minutes: int) -> None:
    with World(cluster="demo", options=Options(context={"relay": "pod"})) as world:
        skew = timedelta(minutes=minutes)
        if whose == "functions":
            world.aws.functions.skew = skew
        else:
            world.store.now = lambda: world.clock.now() + skew
        pool(world, budgets="1", expireAfter="30m")
        world.apply(web(3))
        world.run_until(lambda: len(running(world, "web")) == 3, limit=3 * MINUTE)
        world.run_for(15 * MINUTE)
        assert len(world.aws.instances.all) == 3
        world.scale("default", "web", 1)
        world.run_until(lambda: len(world.instances()) == len(world.claims()) == 1, limit=12 * MINUTE)
        assert len(running(world, "web")) == 1
        world.run_for(20 * MINUTE)
        assert len(running(world, "web")) == 1
        assert len(world.aws.instances.all) == 4
        assert world.failures() == []
        assert world.dead_letters() == []

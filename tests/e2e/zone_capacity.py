"""How many instances EC2 has left in each zone, for what has to be launched whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local.world import World

ZONES = [f"us-east-1{letter}" for letter in "abcdf"]


def leave(world: World, **instances: int) -> None:
    """Leave so many on-demand instances in each zone, by its letter; none in the others."""
    for zone in ZONES:
        world.aws.capacity.set("on-demand", "*", zone, instances.get(zone[-1], 0))

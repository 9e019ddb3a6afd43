"""A whole cluster with Tenon in it, in one process, on a clock that skips waiting."""

from local.world.event_loop import StuckError
from local.world.options import Options
from local.world.timeline import Timeline, TimelineEvent
from local.world.world import World

__all__ = ["Options", "StuckError", "Timeline", "TimelineEvent", "World"]

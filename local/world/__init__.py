"""A whole cluster with Tenon in it, in one process, on a clock that can be turned."""

from local.world.timeline import Timeline, TimelineEvent
from local.world.world import Options, StuckError, World

__all__ = ["Options", "StuckError", "Timeline", "TimelineEvent", "World"]

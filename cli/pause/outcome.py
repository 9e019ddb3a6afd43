"""The output of ``tenon pause --json`` and ``tenon resume --json``."""

from __future__ import annotations

from cli.json_output import Output


class PauseOutcome(Output, frozen=True, kw_only=True):
    """Whether the cluster is paused now; ``message`` says since when, until when, by whom and why."""

    cluster: str
    paused: bool
    message: str


class ResumeOutcome(Output, frozen=True, kw_only=True):
    """The cluster isn't paused any more. ``breakers`` are the circuit breakers that were closed."""

    cluster: str
    paused: bool
    message: str
    breakers: list[str]

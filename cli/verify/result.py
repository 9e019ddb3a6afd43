"""The result of a step: a verdict in one sentence, and the durations that were measured for it."""

from __future__ import annotations

from typing import Literal

from cli.json_output import Output

Status = Literal["passed", "failed", "skipped"]


class StepFailedError(Exception):
    """A step's proof failed; the text says in one sentence what is wrong."""


class Measurement(Output, frozen=True, kw_only=True):
    """How long something took."""

    name: str
    seconds: float


class StepResult(Output, frozen=True, kw_only=True):
    """A step's verdict. ``seconds``: how long the step took, its own clean-up included."""

    step: str
    status: Status
    sentence: str
    seconds: float
    measured: list[Measurement]


class Proof(Output, frozen=True, kw_only=True):
    """What a step that passed has seen."""

    sentence: str
    measured: dict[str, float] = {}

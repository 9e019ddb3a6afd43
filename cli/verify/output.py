"""The report of ``tenon verify``, and its plan (``--dry-run``), as JSON, without what an issue must not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli import json_output
from cli.json_output import Output, Time
from cli.verify.call_times import Latency
from cli.verify.redaction import redacted_values
from cli.verify.result import StepResult
from infra import installation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.verify.clean_up import LeftOver
    from cli.verify.costs import Cost
    from cli.verify.steps import Step
    from cli.verify.verification import Verification


class PlannedStep(Output, frozen=True, kw_only=True):
    """A step, and the rights that it needs of the user."""

    step: str
    proves: str
    aws: list[str]
    kubernetes: list[str]
    minutes: float


class VerificationPlan(Output, frozen=True, kw_only=True):
    """What a run would do. ``leftOver``: what earlier runs have left, which it would remove first."""

    run: str
    usd: float
    minutes: float
    steps: list[PlannedStep]
    left_over: list[str]


class CallOutput(Output, frozen=True, kw_only=True):
    """A call to AWS; ``error`` is its code, "" on success."""

    step: str
    operation: str
    seconds: float
    error: str


class VerificationReport(Output, frozen=True, kw_only=True):
    """What a run has proved. ``leftOver``: what it couldn't remove. Account ids, ARNs and addresses are left out."""

    run: str
    tenon: str
    kubernetes: str
    region: str
    begun_at: Time
    seconds: float
    usd: float
    passed: bool
    steps: list[StepResult]
    latencies: dict[str, Latency]
    calls: list[CallOutput]
    left_over: list[str]


def plan_of(
    run: Verification, steps: Sequence[Step], cost: Cost, left: LeftOver, fis: Sequence[str]
) -> VerificationPlan:
    """The plan of these steps; ``fis`` are the rights for an interruption by FIS."""
    return VerificationPlan(
        run=run.id,
        usd=cost.usd,
        minutes=cost.minutes,
        steps=[
            PlannedStep(
                step=step.name,
                proves=step.proves,
                aws=[*step.aws, *(fis if step.name == "interruption" else ())],
                kubernetes=list(step.kubernetes),
                minutes=step.minutes,
            )
            for step in steps
        ],
        left_over=left.names,
    )


def report_of(run: Verification, results: Sequence[StepResult], *, usd: float, left: LeftOver) -> VerificationReport:
    """The report of a run that has ended, redacted."""
    report = VerificationReport(
        run=run.id,
        tenon=installation.version(),
        kubernetes=run.version,
        region=run.region,
        begun_at=json_output.moment(run.begun_at),
        seconds=run.seconds_since(run.begun_at),
        usd=usd,
        passed=not left.identities and all(result.status != "failed" for result in results),
        steps=list(results),
        latencies=run.calls.latencies(),
        calls=[
            CallOutput(step=c.step, operation=c.operation, seconds=round(c.seconds, 4), error=c.error)
            for c in run.calls.all
        ],
        left_over=left.names,
    )
    values: Any = redacted_values(msgspec.to_builtins(report))
    return msgspec.convert(values, VerificationReport)

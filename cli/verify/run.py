"""Runs ``tenon verify``: the steps in their order, and the clean-up after them, whatever happens."""

from __future__ import annotations

import contextlib
import secrets
import signal
from typing import TYPE_CHECKING, Any

import boto3
import yaml
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.error_messages import message_of
from cli.errors import CommandError, UsageError
from cli.printable import echo
from cli.progress import progress
from cli.verify import clean_up, costs, functions, objects, output
from cli.verify.result import Measurement, Proof, StepFailedError, StepResult
from cli.verify.steps import CLEAN_UP_RIGHTS, FIS_RIGHTS
from cli.verify.verification import Verification
from shared.base import runtime
from shared.base.aws import error_code
from shared.base.plurals import plural
from shared.cluster import resources
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from cli.cluster.cluster_reference import ClusterReference
    from cli.verify.output import VerificationPlan, VerificationReport
    from cli.verify.result import Status
    from cli.verify.steps import Step
    from cli.verify.verification import Settings

_OTHER_RUN_SECONDS = 5.0
_WIDTH = 200
"""Columns of the file of latencies."""
_MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}
_STYLES = {"passed": terminal.GOOD, "failed": terminal.BAD, "skipped": terminal.QUIET}
_CALLS = Config(retries={"mode": "standard", "total_max_attempts": 4}, user_agent_extra="tenon-verify")


def begin(reference: ClusterReference, settings: Settings) -> Verification:
    """A run that has made nothing yet.

    Raises:
        UsageError: there is no such cluster.
        ApiError, ClientError, CommandError: the cluster or the account can't be read.
    """
    reference = kubeconfig_context.resolve_named(reference)
    create: Callable[..., Any] = boto3.client
    eks = create("eks", region_name=reference.region or None)
    try:
        description: Mapping[str, Any] = eks.describe_cluster(name=reference.cluster)["cluster"]
    except ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            raise UsageError(f'no EKS cluster is named "{reference.cluster}" in this account and Region') from error
        raise
    region = eks.meta.region_name
    return Verification(
        id_=secrets.token_hex(4),
        client=live_reader.connect(reference),
        description=description,
        create_client=lambda service: create(service, region_name=region, config=_CALLS),
        settings=settings,
        now=runtime.now,
        sleep=runtime.sleep,
    )


def planned(run: Verification, steps: Sequence[Step]) -> VerificationPlan:
    """What the run would do, what it needs and costs. Nothing is made."""
    cost = costs.estimate(run, steps, functions.deployed(run))
    fis = FIS_RIGHTS if run.settings.fis_role else ()
    return output.plan_of(run, steps, cost, clean_up.find(run), fis)


def verify(run: Verification, steps: Sequence[Step], *, show: Callable[[StepResult], None]) -> VerificationReport:
    """Run the steps, showing each result, and remove everything, whatever happens.

    Raises:
        CommandError: another run is alive, or its namespace can't be made.
    """
    _wait_for_other_run(run)
    usd = costs.estimate(run, steps, functions.deployed(run)).usd
    if clean_up.find(run).identities:
        clean_up.remove(run)
    results: list[StepResult] = []
    with _interrupted_by_sigterm():
        try:
            run.create(resources.NAMESPACES, objects.namespace(run.id, renewed=run.now().isoformat()))
            for step in steps:
                with progress(f"{step.name}: {step.proves}"):
                    results.append(_result(run, step, results))
                show(results[-1])
        finally:
            left = _clean_up(run)
    return output.report_of(run, results, usd=usd, left=left)


def remove_left_over(run: Verification) -> list[str]:
    """Remove what runs have left, living ones too; what couldn't be removed."""
    return clean_up.remove(run).names


def show_plan(plan: VerificationPlan, *, as_json: bool) -> None:
    """Print the plan."""
    if as_json:
        echo(json_output.text("verify", plan))
        return
    console = terminal.console()
    console.print(f"about {plan.minutes:.0f} minutes, and at most ${plan.usd:.2f}", style="bold")
    table = terminal.table("step", "proves", "AWS", "Kubernetes", text=("proves", "AWS", "Kubernetes"))
    for step in plan.steps:
        table.add_row("", step.step, step.proves, ", ".join(step.aws), "; ".join(step.kubernetes))
    console.print(table)
    console.print(f"  the clean-up also needs {', '.join(CLEAN_UP_RIGHTS)}")
    for name in plan.left_over:
        console.print(f"  left by an earlier run, and removed first: {name}", style=terminal.WARNING)


def show_step(result: StepResult) -> None:
    """Print a step's verdict."""
    mark, style = _MARKS[result.status], _STYLES[result.status]
    line = f"  {mark} {result.step}: {result.sentence} ({result.seconds:.0f} s)"
    terminal.console().print(line, style=style)


def show(name: str, report: VerificationReport, *, page: Path, as_json: bool) -> None:
    """Print the verdict, or the report as JSON."""
    if as_json:
        echo(json_output.text("verify", report))
        return
    console = terminal.console()
    for left in report.left_over:
        console.print(f"  not removed: {left}", style=terminal.BAD)
    style = terminal.GOOD if report.passed else terminal.BAD
    verdict = "verified" if report.passed else "not verified"
    console.print(
        terminal.title(name, f"{verdict} in {report.seconds / 60:.0f} minutes; {page}", style=f"bold {style}")
    )


def save_latencies(report: VerificationReport, file: Path) -> None:
    """Write what was measured as rows of the local AWS's table of latencies.

    Raises:
        UsageError: the file can't be written.
    """
    rows = []
    for name, latency in report.latencies.items():
        service, operation = name.split(".")
        source = f"measured by tenon verify: {plural(latency.count, 'call')} in {report.region}"
        times = {"median": latency.median, "p99": latency.p99}
        rows.append({"service": service, "operation": operation, **times, "source": source})
    try:
        file.write_text(yaml.safe_dump(rows, sort_keys=False, width=_WIDTH), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error


def _result(run: Verification, step: Step, before: Sequence[StepResult]) -> StepResult:
    """Run a step; every error but a bug is a verdict."""
    begun = run.now()
    run.calls.step = step.name
    failed = next((r.step for r in before if r.step in step.needs and r.status != "passed"), "")
    status, proof = _skipped(failed) if failed else _proved(run, step)
    return StepResult(
        step=step.name,
        status=status,
        sentence=proof.sentence,
        seconds=run.seconds_since(begun),
        measured=[Measurement(name=name, seconds=seconds) for name, seconds in proof.measured.items()],
    )


def _skipped(failed: str) -> tuple[Status, Proof]:
    return "skipped", Proof(sentence=f'It needs the step "{failed}", which didn\'t pass.')


def _proved(run: Verification, step: Step) -> tuple[Status, Proof]:
    try:
        return "passed", step.prove(run)
    except StepFailedError as error:
        return "failed", Proof(sentence=str(error))
    except (ApiError, BotoCoreError, ClientError) as error:
        return "failed", Proof(sentence=f"It couldn't be tried: {message_of(error) or error}.")


def _wait_for_other_run(run: Verification) -> None:
    """Wait until a run that may be alive counts as dead.

    Raises:
        CommandError: it is alive.
    """
    first = clean_up.living_run(run)
    while living := clean_up.living_run(run):
        if living != first:
            raise CommandError(
                f"another run is in progress (namespace {living[0]}); wait for its end, or end it with --clean-up"
            )
        run.pause(_OTHER_RUN_SECONDS)


def _clean_up(run: Verification) -> clean_up.LeftOver:
    run.calls.step = "clean-up"
    try:
        with progress("Removing what the run has made"):
            return clean_up.remove(run)
    except KeyboardInterrupt:
        echo(f"the clean-up was interrupted; `tenon verify {run.cluster} --clean-up` continues it", err=True)
        raise


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """While entered, SIGTERM ends the run as Ctrl-C does: with its clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

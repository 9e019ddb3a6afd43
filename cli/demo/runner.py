"""Runs the demo: applies manifests to a local cluster, scales deployments step by step, and shows what happens."""

from __future__ import annotations

import contextlib
import signal
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.markup import escape

from cli import json_output, program, terminal
from cli.demo import kept_world, real_cluster, results, screen, unmet
from cli.demo.event_lines import EventLines
from cli.demo.interruptions import drain_then_provision
from cli.demo.results import StepSpan
from cli.errors import FAILED, INTERRUPTED, CommandError, UsageError
from cli.report import recording as recordings
from cli.report.demo_recording import Recorder
from cli.report.page import save
from local.kubernetes.errors import ApiError
from local.world import Options, StuckError, World
from local.world.event_loop import DEFAULT_LIMIT
from local.world.hostility import Hostility
from shared.base.plurals import plural
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console, RenderableType

    from cli.demo.interruptions import Rescheduling
    from cli.demo.request import DemoRequest, Step
    from cli.demo.results import DemoResult
    from cli.report.recording import Recording

_FRAMES_PER_SECOND = 8
_FIRST_WATCH = timedelta(minutes=3)
_RELAYS = {
    "function": "whose relay is a function",
    "pod": "whose relay is a pod",
    "webhook": "with a webhook instead of the relay",
}
_PROGRESS_SECONDS = 10.0
"""Seconds of real time between lines of progress on stderr."""


class Demo:
    """One run of the demo in a local cluster."""

    def __init__(self, request: DemoRequest, console: Console) -> None:
        self._request = request
        self._console = console
        self._printed_events = 0
        self._last_frame = time.monotonic()

    def run(self) -> DemoResult:
        """Run all steps and print them. With ``keep``, the cluster then stays up until Ctrl-C.

        Raises:
            UsageError: a manifest or a deployment doesn't exist, the API server rejects an object, or a file for the
                run can't be written.
            StuckError: the cluster didn't become idle.
        """
        began = time.monotonic()
        request = self._request
        request.check_outputs()
        objects = request.objects()
        steps = request.steps(objects)
        drain_first = self._drain_first(objects, steps)
        with contextlib.ExitStack() as stack:
            starting = self._console.status("Starting a cluster, AWS and Tenon on this machine …")
            with starting, real_cluster.errors_of_kubeconfigs():
                world = stack.enter_context(self._world())
            self._introduce(world, time.monotonic() - began)
            recorder, spans = self._run_steps(world, objects, steps)
            wall_seconds = time.monotonic() - began
            result = results.compute_result(world, spans, price=_price_lookup(world), wall_seconds=wall_seconds)
            if result.interruptions is not None:
                result = with_fields(result, interruptions=result.interruptions.compared_to(drain_first))
            if recorder is not None:
                self._save(recorder.recording())
            if not request.quiet:
                self._print_result(result)
            if request.keep:
                self._stay(world)
        return result

    def _world(self) -> World:
        request = self._request
        if request.kubeconfig is not None:
            options = real_cluster.options(request.kubeconfig, allow_nodes=request.allow_nodes)
            return World(cluster=request.cluster, region=request.region, seed=request.seed, options=options)
        start = kept_world.start() if request.keep else None
        options = Options(elapsed=request.elapsed, context={"relay": "function", **request.settings}, start=start)
        if request.hostile:
            options = with_fields(options, hostility=Hostility(boot_failures=1))
        return World(cluster=request.cluster, region=request.region, seed=request.seed, options=options)

    def _run_steps(
        self, world: World, objects: Sequence[dict[str, Any]], steps: Iterable[Step]
    ) -> tuple[Recorder | None, list[StepSpan]]:
        """Arm faults, apply the objects and run each step; the recorder if the run is recorded, and all spans."""
        request = self._request
        for fault in request.faults:
            fault.arm(world)
            self._print(f"[dim]fault:[/dim] {fault.description}")
        # The relay function's first invocation is up to a minute after a deployment, once.
        world.run_until(lambda: world.is_watched, limit=_FIRST_WATCH)
        start = world.clock.now()
        self._printed_events = len(world.timeline.all)
        title = f"{request.cluster} in {request.region}, {', '.join(request.manifests)}"
        recorder = Recorder(world, _price_lookup(world), title) if request.record or request.report else None
        self._apply(world, objects)
        spans: list[StepSpan] = []
        interrupted = False
        for step in steps:
            if recorder is not None:
                recorder.mark(step.label)
            began = world.clock.now() if spans else start
            for deployment, replicas in step.replicas.items():
                world.scale("default", deployment, replicas)
            spans.append(self._run_until_idle(world, start, step.label, began=began))
            if not interrupted and (span := self._interrupt(world, start)) is not None:
                spans.append(span)
                interrupted = True
        return recorder, spans

    def _introduce(self, world: World, seconds: float) -> None:
        if self._request.kubeconfig is not None:
            self._print(
                f"Cluster [bold]{world.cluster}[/bold] in {world.region}, started in {seconds:.1f} s: the control "
                f"plane of {self._request.kubeconfig},\nwith kubelets, the relay and moto as AWS in this process. "
                "Time is real; machines boot in 10 to 15 s.\n"
            )
            return
        settings = escape("".join(f" -c {key}={value}" for key, value in self._request.settings.items()))
        relay = _RELAYS[self._request.settings.get("relay", "function")]
        self._print(
            f"Cluster [bold]{world.cluster}[/bold] in {world.region}, started in {seconds:.1f} s: an embedded "
            f"Kubernetes API, and moto as AWS with\nthe stack of `cdk deploy{settings}`, {relay}. Work takes "
            "its time on the cluster's clock,\nwaiting is skipped. Times are minutes and seconds of that clock. "
            "Prices are made up.\n"
        )

    def _apply(self, world: World, objects: Sequence[dict[str, Any]]) -> None:
        for obj in objects:
            name = obj.get("metadata", {}).get("name", "?")
            if not _is_served(world, obj):
                unknown = escape(f"{obj['kind']} {name}")
                self._print(f"[dim]left out[/dim] {unknown}: the cluster has no such kind")
                continue
            try:
                world.apply(obj)
            except ApiError as error:
                raise UsageError(
                    f"the API server rejects {obj.get('kind', 'an object')} {name}: {error.message}"
                ) from error
            self._print(f"[dim]applied[/dim] {obj['kind']} {escape(obj['metadata']['name'])}")

    def _run_until_idle(self, world: World, start: datetime, label: str, *, began: datetime) -> StepSpan:
        """Run until the cluster is idle, or until ``--rest`` ends; the span of the step, which ``began`` then."""
        self._print(f"\n[bold reverse] {label} [/bold reverse]")
        event_lines = EventLines(start=start, price=_price_lookup(world))
        is_live = not self._request.only_json and self._console.is_terminal
        view = Live(console=self._console, auto_refresh=False, transient=True) if is_live else contextlib.nullcontext()
        is_idle = True
        with view as live:

            def update() -> bool:
                self._print_events(world, event_lines)
                self._print_progress(world, start, label)
                if isinstance(live, Live) and time.monotonic() - self._last_frame > 1 / _FRAMES_PER_SECOND:
                    self._last_frame = time.monotonic()
                    live.update(self._screen(world, start, label), refresh=True)
                return world.is_idle()

            try:
                world.run_until(update, limit=self._request.rest or DEFAULT_LIMIT)
            except StuckError:
                if self._request.rest is None:
                    raise
                is_idle = False
        if not self._request.only_json:
            self._console.print(self._screen(world, start, f"{label}: {'idle' if is_idle else 'not idle yet'}"))
        rested = max(world.last_activity, began) if is_idle else None
        return StepSpan(
            label=label, began=began, rested=rested, ended=world.clock.now(), pending=unmet.pending_pods(world)
        )

    def _print_progress(self, world: World, start: datetime, label: str) -> None:
        """A line on stderr now and then, where nothing else is printed until the result."""
        if not self._request.only_json or time.monotonic() - self._last_frame < _PROGRESS_SECONDS:
            return
        self._last_frame = time.monotonic()
        nodes = plural(len(world.nodes()), "node")
        running, all_pods = len(world.pods(phase="Running")), len(world.pods())
        minutes, seconds = divmod(round((world.clock.now() - start).total_seconds()), 60)
        text = f"{minutes}:{seconds:02d} {label}: {running} of {plural(all_pods, 'pod')} running, {nodes}"
        self._console.print(text, style="dim", highlight=False, markup=False)

    def _screen(self, world: World, start: datetime, step: str) -> RenderableType:
        rows = screen.node_rows(world, _price_lookup(world))
        return screen.render(rows, start=start, step=step, width=self._console.width)

    def _interrupt(self, world: World, start: datetime) -> StepSpan | None:
        """Interrupt spot instances if the request says so; the span until idle, or None if there were none."""
        instance_ids = self._request.interrupt.choose(world) if self._request.interrupt is not None else []
        if not instance_ids:
            return None
        began = world.clock.now()
        world.interrupt_spot(instance_ids)
        return self._run_until_idle(
            world, start, f"EC2 interrupts {plural(len(instance_ids), 'spot instance')}", began=began
        )

    def _drain_first(self, objects: Sequence[dict[str, Any]], steps: Sequence[Step]) -> Rescheduling | None:
        """The same interruption in another local cluster that drains first and provisions then, for comparison."""
        request = self._request
        if request.interrupt is None:
            return None
        with self._console.status("Running the interruption with drain first, for comparison …"):
            return drain_then_provision(
                objects,
                steps[0].replicas,
                request.interrupt,
                cluster=request.cluster,
                region=request.region,
                seed=request.seed,
                elapsed=request.elapsed,
            )

    def _print_events(self, world: World, event_lines: EventLines) -> None:
        if self._request.only_json:
            return
        new_events = world.timeline.all[self._printed_events :]
        self._printed_events += len(new_events)
        for event in new_events:
            line = event_lines.line(event)
            if line is not None:
                self._console.print(line, soft_wrap=True)

    def _print_result(self, result: DemoResult) -> None:
        if self._request.only_json:
            print(json_output.text("demo", result))  # noqa: T201 (for programs; never wrapped or coloured)
            return
        self._console.print()
        self._console.print(results.table(result))
        lines = list(result.unmet())
        if lines:
            self._print("\n[bold]Not as requested[/bold]")
        for line in lines:
            self._console.print(line, style=terminal.BAD, highlight=False, markup=False, soft_wrap=True)

    def _save(self, recording: Recording) -> None:
        if self._request.record is not None:
            recordings.write(recording, self._request.record)
            self._print(f"\nrecording: {self._request.record}")
        if self._request.report is not None:
            self._print(f"\nreport: {save(recording, self._request.report)}")

    def _stay(self, world: World) -> None:
        if self._request.kubeconfig is not None:
            path = self._request.kubeconfig
            self._print(f"\n[bold]Nodes and Tenon stay up. Ctrl-C stops them.[/bold]\n\n  export KUBECONFIG={path}\n")
            with contextlib.suppress(KeyboardInterrupt):
                world.run_in_real_time()
            return
        with self._console.status("Letting the cluster's clock catch up with this machine's …"):
            ahead = kept_world.catch_up(world)
        with kept_world.kubeconfig(world) as kubeconfig:
            self._print("\n[bold]The cluster stays up, now in real time. Ctrl-C stops it.[/bold]")
            if ahead:
                self._print(f"Its clock is {terminal.age(ahead)} ahead of this machine's.")
            self._print("\nIn another terminal:\n")
            for command in kept_world.commands(world, kubeconfig):
                self._console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)
            with contextlib.suppress(KeyboardInterrupt):
                world.run_in_real_time()

    def _print(self, text: str) -> None:
        if not self._request.only_json:
            self._console.print(text, highlight=False, soft_wrap=True)


def _is_served(world: World, obj: dict[str, Any]) -> bool:
    """Whether the API server has the object's kind; it may have its CustomResourceDefinition from another manifest."""
    try:
        world.store.kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    except ApiError:
        return False
    return True


def run(request: DemoRequest) -> int:
    """Run a demo; the exit code."""
    console = terminal.console(stderr=request.only_json, markup=True)
    errors = terminal.SafeConsole(stderr=True)
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        # SIGINT too: a shell that starts the demo in the background makes it ignore SIGINT.
        signal.signal(signal_number, signal.default_int_handler)
    try:
        result = Demo(request, console).run()
    except CommandError as error:
        message = " ".join(str(error).split())
        errors.print(f"{program.name()} demo: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
        return error.code
    except StuckError as error:
        errors.print(
            f"{program.name()} demo: the cluster did not become idle: {error}",
            style="red",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        return FAILED
    except KeyboardInterrupt:
        errors.print("Interrupted; everything is stopped.", highlight=False)
        return INTERRUPTED
    return FAILED if result.has_pending and not request.allow_pending else 0


def _price_lookup(world: World) -> Callable[[str, str, str], float]:
    def price(instance_type: str, zone: str, capacity_type: str) -> float:
        prices = world.aws.prices
        return prices.spot(instance_type, zone) if capacity_type == "spot" else prices.on_demand(instance_type)

    return price

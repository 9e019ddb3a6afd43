"""``tenon demo``: applies manifests to a world, scales deployments step by step, and shows what happens meanwhile."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cli.demo import screen
from cli.demo.event_lines import Story
from cli.demo.interruptions import drain_then_provision
from cli.demo.results import Figures, compute
from cli.errors import UsageError
from cli.report import recording as recordings
from cli.report.command import save
from cli.report.demo_recording import Recorder
from local.kubernetes import kinds
from local.kubernetes.errors import ApiError
from local.world import Options, StuckError, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from cli.demo.faults import Fault
    from cli.demo.interruptions import Interrupt, Moved
    from cli.report.recording import Recording
    from local.world.timeline import TimelineEvent

MANIFESTS = Path(__file__).parent / "manifests"
KUBECONFIG = Path(__file__).resolve().parent.parent.parent / "build" / "demo" / "kubeconfig"
DEFAULT_MANIFEST = "spot-default.yaml"
DEFAULT_STEPS = (5, 0)
PLACEHOLDER = "CLUSTER"
"""Stands for the cluster's name in manifests, as in AWS's and Karpenter's guides."""
_FRAMES_A_SECOND = 8
_PLAIN_WIDTH = 140
"""Columns of text that goes to a file or a pipe."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A deployment and the replicas it goes through."""

    deployment: str
    steps: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Scale:
        """``inflate=12,5,1``.

        Raises:
            UsageError: not of that form.
        """
        name, _, steps = text.partition("=")
        try:
            counts = tuple(int(step) for step in steps.split(","))
        except ValueError:
            counts = ()
        if not name or not counts or min(counts) < 0:
            raise UsageError(f'--scale "{text}" is not of the form NAME=REPLICAS,REPLICAS, such as inflate=12,5,1')
        return cls(deployment=name, steps=counts)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asks for. ``elapsed`` is what work takes in the world (:class:`local.clock.Clock`)."""

    manifests: tuple[str, ...] = (DEFAULT_MANIFEST,)
    scales: tuple[Scale, ...] = ()
    interrupt: Interrupt | None = None
    keep: bool = False
    only_json: bool = False
    quiet: bool = False
    cluster: str = "demo"
    region: str = "us-east-1"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    elapsed: Callable[[], float] = time.monotonic
    record: Path | None = None
    report: Path | None = None


def documents(manifest: str, *, cluster: str) -> list[dict[str, Any]]:
    """The objects of a manifest: a path, or the name of one that comes with Tenon.

    Raises:
        UsageError: there is no such file, or it isn't YAML.
    """
    path = next((p for p in (Path(manifest), MANIFESTS / manifest) if p.is_file()), None)
    if path is None:
        known = ", ".join(sorted(p.name for p in MANIFESTS.glob("*.yaml")))
        raise UsageError(f'there is no file "{manifest}", and none of that name comes with Tenon ({known})')
    try:
        docs = [d for d in yaml.safe_load_all(path.read_text().replace(PLACEHOLDER, cluster)) if d]
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    return docs


def _latest(docs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects, each once: of several manifests that have the same one the last wins, whole."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for doc in docs:
        metadata = doc.get("metadata", {})
        found[doc.get("kind", ""), metadata.get("namespace", ""), metadata.get("name", "")] = doc
    return list(found.values())


class Demo:
    """One run: a world, and how it is shown."""

    def __init__(self, request: Request, console: Console) -> None:
        self._request = request
        self._console = console
        self._shown = 0
        self._drawn = 0.0

    def run(self) -> Figures:
        """Go through every step and show it; with ``keep``, stay until interrupted.

        Raises:
            UsageError: a manifest or a deployment isn't there, or the cluster refuses one.
            StuckError: the cluster didn't come to rest.
        """
        began = time.monotonic()
        request = self._request
        docs = _latest(d for m in request.manifests for d in documents(m, cluster=request.cluster))
        compared = self._compare(docs)
        with self._console.status("Starting a cluster, AWS and Tenon on this machine …"):
            world = World(
                cluster=request.cluster,
                region=request.region,
                seed=request.seed,
                options=Options(elapsed=request.elapsed),
            )
            stack = contextlib.ExitStack()
            stack.enter_context(world)
        with stack:
            self._introduce(world, time.monotonic() - began)
            for fault in request.faults:
                fault.arm(world)
                self._say(f"[dim]wrong:[/dim] {fault.told}")
            start = world.clock.now()
            self._shown = len(world.timeline.all)
            title = f"{request.cluster} in {request.region}, {', '.join(request.manifests)}"
            recorder = Recorder(world, _price_of(world), title) if request.record or request.report else None
            self._apply(world, docs)
            interrupted = False
            for label, deployment, replicas in self._steps(world):
                if recorder is not None:
                    recorder.mark(label)
                self._go(world, start, label, deployment, replicas)
                interrupted = interrupted or self._interrupt(world, start)
            figures = self._figures(world, time.monotonic() - began)
            if figures.interruptions is not None:
                figures = replace(figures, interruptions=figures.interruptions.compared(compared))
            if recorder is not None:
                self._keep(recorder.recording())
            if not request.quiet:
                self._conclude(figures)
            if request.keep:
                self._stay(world)
        return figures

    def _introduce(self, world: World, seconds: float) -> None:
        self._say(
            f"Cluster [bold]{world.cluster}[/bold] in {world.region}, up in {seconds:.1f} s: an embedded Kubernetes "
            "API, moto for AWS with\nthe stack of `cdk deploy` in it, and the relay. The clock turns: work takes its "
            "time, waiting is skipped.\nTimes are the cluster's, in minutes and seconds.\n"
        )

    def _apply(self, world: World, docs: Sequence[dict[str, Any]]) -> None:
        for doc in docs:
            try:
                world.apply(doc)
            except ApiError as error:
                name = doc.get("metadata", {}).get("name", "?")
                raise UsageError(
                    f"the cluster refuses {doc.get('kind', 'an object')} {name}: {error.message}"
                ) from error
            self._say(f"[dim]applied[/dim] {doc['kind']} {doc['metadata']['name']}")

    def _steps(self, world: World) -> Iterator[tuple[str, str, int]]:
        known = {d["metadata"]["name"]: d for d in world.store.list(kinds.DEPLOYMENTS, namespace="default")}
        scales = self._request.scales
        if not scales and "inflate" in known:
            steps = (*DEFAULT_STEPS, DEFAULT_STEPS[0]) if self._request.keep else DEFAULT_STEPS
            scales = (Scale(deployment="inflate", steps=steps),)
        for scale in scales:
            if scale.deployment not in known:
                there = ", ".join(sorted(known)) or "none"
                raise UsageError(f'there is no deployment "{scale.deployment}" to scale (there: {there})')
            before = known[scale.deployment]["spec"].get("replicas", 1)
            for replicas in scale.steps:
                yield f"{scale.deployment} {before} → {replicas}", scale.deployment, replicas
                before = replicas
        if not scales:
            yield "as applied", "", 0

    def _go(self, world: World, start: datetime, label: str, deployment: str, replicas: int) -> None:
        self._say(f"\n[bold reverse] {label} [/bold reverse]")
        if deployment:
            world.scale("default", deployment, replicas)
        story = Story(start=start, price=_price_of(world))
        live = not self._request.only_json and self._console.is_terminal
        view = Live(console=self._console, auto_refresh=False, transient=True) if live else contextlib.nullcontext()
        with view as shown:

            def look() -> bool:
                self._tell(world, story)
                if isinstance(shown, Live) and time.monotonic() - self._drawn > 1 / _FRAMES_A_SECOND:
                    self._drawn = time.monotonic()
                    shown.update(self._picture(world, start, label), refresh=True)
                return world.is_idle()

            world.run_until(look)
        if not self._request.only_json:
            self._console.print(self._picture(world, start, f"{label}: at rest"))

    def _picture(self, world: World, start: datetime, step: str) -> RenderableType:
        taken = screen.take(world, _price_of(world))
        return screen.render(taken, start=start, step=step, width=self._console.width)

    def _interrupt(self, world: World, start: Any) -> bool:  # noqa: ANN401
        """Have EC2 take machines back, if that is asked for and there are any."""
        if self._request.interrupt is None:
            return False
        taken = self._request.interrupt.choose(world)
        if taken:
            world.interrupt_spot(taken)
            self._go(world, start, f"EC2 takes {len(taken)} spot instances back", "", 0)
        return bool(taken)

    def _compare(self, docs: Sequence[dict[str, Any]]) -> Moved | None:
        """What the interruption would come to without replacements at once: in a world of its own, before ours."""
        request = self._request
        if request.interrupt is None:
            return None
        first = request.scales[0] if request.scales else Scale(deployment="inflate", steps=DEFAULT_STEPS)
        with self._console.status("Playing the interruption without replacements at once, to compare …"):
            return drain_then_provision(
                docs,
                (first.deployment, first.steps[0]),
                request.interrupt,
                cluster=request.cluster,
                region=request.region,
                seed=request.seed,
                elapsed=request.elapsed,
            )

    def _tell(self, world: World, story: Story) -> None:
        if self._request.only_json:
            return
        new = world.timeline.all[self._shown :]
        self._shown += len(new)
        for happening in new:
            line = story.line(happening)
            if line is not None:
                self._console.print(line, soft_wrap=True)

    def _figures(self, world: World, wall_seconds: float) -> Figures:
        on: dict[str, list[str]] = {n["metadata"]["name"]: [] for n in world.nodes()}
        for pod in world.pods():
            node = pod["spec"].get("nodeName", "")
            if node in on and pod["metadata"]["namespace"] == "default":
                on[node].append(pod["metadata"]["name"])
        happenings: list[TimelineEvent] = world.timeline.all
        return compute(
            happenings,
            price=_price_of(world),
            nodes_at_end={node: tuple(sorted(pods)) for node, pods in sorted(on.items())},
            instances=[i.id for i in world.aws.instances.all],
            instances_left=len(world.instances()),
            wall_seconds=wall_seconds,
        )

    def _conclude(self, figures: Figures) -> None:
        if not self._request.only_json:
            self._console.print()
            self._console.print(_table(figures))
        print(json.dumps(figures.as_json()))  # noqa: T201 (the result, for programs; never wrapped or coloured)

    def _keep(self, recording: Recording) -> None:
        if self._request.record is not None:
            recordings.write(recording, self._request.record)
            self._say(f"\nrecorded in {self._request.record}")
        if self._request.report is not None:
            self._say(f"\nreport in {save(recording, self._request.report)}")

    def _stay(self, world: World) -> None:
        KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
        config = world.kubectl_config()
        KUBECONFIG.touch(mode=0o600)
        KUBECONFIG.write_text(config)
        self._say(
            f"\n[bold]The world stays up, in real time now. Ctrl-C ends it.[/bold] Its kubeconfig, in {KUBECONFIG}:\n"
        )
        self._console.print(config, markup=False, highlight=False, soft_wrap=True)
        self._say(f"  export KUBECONFIG={KUBECONFIG}\n  kubectl get pods,nodes,nodeclaims,nodepools,provisioners\n")
        with contextlib.suppress(KeyboardInterrupt):
            world.run_in_real_time()
        KUBECONFIG.unlink(missing_ok=True)

    def _say(self, text: str) -> None:
        if not self._request.only_json:
            self._console.print(text, highlight=False, soft_wrap=True)


def run(request: Request) -> int:
    """Run a demo; the exit code: 0 done, 1 it didn't come to rest, 2 asked for what isn't there, 130 interrupted."""
    console = Console(stderr=request.only_json)
    if not console.is_terminal:
        console = Console(stderr=request.only_json, width=_PLAIN_WIDTH)
    errors = Console(stderr=True)
    for ending in (signal.SIGINT, signal.SIGTERM):
        # SIGINT too: a shell that starts it in the background has it ignored.
        signal.signal(ending, signal.default_int_handler)
    try:
        Demo(request, console).run()
    except UsageError as error:
        errors.print(f"tenon demo: {error}", style="red", highlight=False, markup=False)
        return 2
    except StuckError as error:
        errors.print(
            f"tenon demo: the cluster did not come to rest: {error}", style="red", highlight=False, markup=False
        )
        return 1
    except KeyboardInterrupt:
        errors.print("Interrupted; everything is stopped.", highlight=False)
        return 130
    return 0


def _price_of(world: World) -> Callable[[str, str, str], float]:
    def price(instance_type: str, zone: str, capacity_type: str) -> float:
        prices = world.aws.prices
        return prices.spot(instance_type, zone) if capacity_type == "spot" else prices.on_demand(instance_type)

    return price


def _table(figures: Figures) -> Table:
    table = Table(title="What came of it", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    kinds_launched: dict[str, int] = {}
    for node in figures.nodes_launched:
        key = f"{node.instance_type} {node.capacity_type} {node.zone} at ${node.price:.4f}/h"
        kinds_launched[key] = kinds_launched.get(key, 0) + 1
    rows = [
        ("pods scheduled", str(figures.pods_scheduled)),
        ("nodes launched", ", ".join(f"{n} x {k}" for k, n in kinds_launched.items()) or "none"),
        ("CreateFleet calls", str(figures.create_fleet_calls)),
        ("pending → claim", _seconds(figures.seconds_pending_to_claim)),
        ("pending → running", _seconds(figures.seconds_pending_to_running)),
        ("empty → terminated", _seconds(figures.seconds_empty_to_terminated)),
        ("peak cost", f"${figures.peak_cost_per_hour:.4f}/h"),
        ("instances left", str(figures.instances_left)),
        ("dead letters", str(figures.dead_letters)),
        ("duplicate launches", str(figures.duplicate_launches)),
        ("took", f"{figures.wall_seconds:.1f} s of real time"),
    ]
    if figures.interruptions is not None:
        of = figures.interruptions
        rows[-1:-1] = [
            ("warned nodes", f"{of.warned}, {of.drained_in_time} drained in time"),
            ("warning → replacement", _seconds(of.seconds_warning_to_replacement)),
            ("warning → drained", _seconds(of.seconds_warning_to_drained)),
            ("warning → pods run elsewhere", _seconds(of.seconds_warning_to_running)),
            ("… by drain, then provision", _seconds(of.seconds_drain_then_provision)),
            ("a pod did not run for", _seconds(of.seconds_pod_away)),
            ("… by drain, then provision", _seconds(of.seconds_pod_away_drain_then_provision)),
        ]
    for name, value in rows:
        table.add_row(f"[dim]{name}[/dim]", value)
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s (the longest)"

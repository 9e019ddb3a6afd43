"""Karpenter's own suites: built from the Go module that tests/karpenter/suite pins, and run against a world.

They run unmodified. They know the cluster by a kubeconfig only, and expect nodes, NodeClaims and pods to become what
they would under Karpenter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from local.kubelets.behavior import Timing
from local.real.cluster import RealControlPlane
from local.real.go_build import Binary, environment, go
from local.world import Options, World
from tests.karpenter import report
from tests.karpenter.stand_in import StandIn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.aws.invocation import Invocation
    from local.world import TimelineEvent

FOLDER = Path(__file__).parent
MODULE = FOLDER / "suite"
KARPENTER = "sigs.k8s.io/karpenter"
SUITES = ("regression", "disruption", "performance")
MEASURING = "performance"
"""The suite that reads the metrics of Karpenter's process, so that one cluster at a time can run it."""
REPORT = "report.json"
"""Ginkgo's report in the folder of a run."""
BOOT = Timing(boot=(4.0, 6.0), ready=(1.0, 2.0), pull=(0.5, 1.0))
"""Machines register about 5 s after their launch."""
_CONCURRENCY = 8
_REPAIR_CONDITION = "AcceleratedHardwareReady=False/NvidiaXID64Error"
_REBOOT_CONDITION = "AcceleratedHardwareReady=False/NvidiaXID63Error"
"""Conditions by which a node is replaced and rebooted. They are tolerated for 10 minutes of the node's life, whatever
time they have, others for 30: as by Karpenter's provider of AWS, and longer than specs wait."""
_ANNOTATIONS = {"Reboot": {"tenon.sh/repair": "reboot"}, "TerminateFirst": {"tenon.sh/terminate-first": "true"}}
"""What the default NodePool has for the specs of a container: where Karpenter has a feature gate for all NodePools."""
_CONTEXTS = {"Reboot": {"reboot": "on"}}
"""The deployment's options for the specs of a container."""
_TWO_CPUS = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]}
_COUNTS_NODES = "CapacityBuffer"
"""The container of specs that count nodes of two CPUs. Only for its own provider, the suite asks for them itself."""
_PHASES = {
    "basic": ("scaleOut", "consolidation"),
    "doNotDisrupt": ("scaleOut", "consolidation"),
    "drift": ("initial", "drift"),
    "hostNameSpreading": ("scaleOut", "consolidation"),
    "hostNameSpreadingXL": ("scaleOut", "consolidation"),
    "interference": ("scaleOut", "interference", "consolidation"),
    "wideDeployments": ("scaleOut", "consolidation"),
}
_NO_LIMIT = {"heap_mb": 1_000_000.0, "cpu_cores": 1_000.0}
THRESHOLDS = {f"{spec}/{phase}": _NO_LIMIT for spec, phases in _PHASES.items() for phase in phases}
"""The suite's own override of thresholds. Those of memory and processor time are for Karpenter's process; the one that
is measured here has the kubelets and the local AWS in it. Those of time and of the nodes' utilization stay."""
_LIMIT = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run. ``report`` is Ginkgo's in JSON.

    ``failures`` are the failed invocations of Tenon's functions, ``denied`` their requests that IAM or RBAC denied.
    """

    report: Path
    invocations: int
    failures: tuple[str, ...]
    denied: tuple[str, ...]


def version() -> str:
    """The version of Karpenter that the module pins, such as "v1.15.0"."""
    module = json.loads(_go("list", "-m", "-json", KARPENTER))
    return str(module["Version"])


def binary(suite: str) -> Path:
    """The suite's binary; it is built first if that hasn't been done (four minutes on two cores).

    Raises:
        BuildError: Go is not installed, or the build failed.
    """
    return Binary(
        name=f"karpenter-{suite}",
        module=MODULE,
        sources=("go.mod", "go.sum"),
        command=("test", "-c", f"{KARPENTER}/test/suites/{suite}"),
    ).built()


def listed(suite: str, folder: Path, *, focus: str = "", skip: str = "") -> list[str]:
    """The specs of a suite whose full names match the regular expression ``focus`` and not ``skip``, in its order.

    Raises:
        BuildError: Go is not installed, or a build failed.
    """
    flags = [f"{name}={pattern}" for name, pattern in (("focus", focus), ("skip", skip)) if pattern]
    folder.mkdir(parents=True, exist_ok=True)
    command = _command(suite, folder, ["dry-run", *flags])
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return [spec.name for spec in report.read(folder / REPORT) if spec.passed]


def run(suite: str, folder: Path, specs: Sequence[str]) -> Outcome:
    """Run these specs, which have the same default NodePool.

    The folder gets the suite's output and report, and a log of the world.

    Raises:
        BuildError: Go is not installed, or a build failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plane = RealControlPlane()
    own = container(specs[0])
    options = Options(
        version=plane.kubernetes,
        concurrency=_CONCURRENCY,
        timing=BOOT,
        context=_CONTEXTS.get(own, {}),
        control_plane=lambda: plane,
    )
    with (folder / "world.log").open("w", buffering=1) as log_of_world, World(options=options) as world:
        _record(world, log_of_world)
        world.apply(_definitions(world))
        (folder / "kubeconfig").write_text(world.kubectl_config())
        (folder / "node_class.yaml").write_text(_manifest("node_class.yaml").replace("CLUSTER", world.cluster))
        (folder / "node_pool.yaml").write_text(yaml.safe_dump(node_pool(own)))
        with StandIn(world, port_forward=_port_forward() if suite == MEASURING else None):
            _run_specs(world, suite, folder, specs)
        world.expect_denials()
        return Outcome(
            report=folder / REPORT,
            invocations=len(world.aws.functions.invocations),
            failures=tuple(world.failures()),
            denied=tuple(world.denied_requests()),
        )


def _run_specs(world: World, suite: str, folder: Path, specs: Sequence[str]) -> None:
    command = _command(suite, folder, [f"focus={_pattern(name)}" for name in specs])
    own = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "OUTPUT_DIR": str(folder),
        "KARPENTER_PERF_THRESHOLDS": json.dumps(THRESHOLDS),
    }
    with (folder / "suite.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own}, cwd=folder)
        try:
            world.run_until(lambda: process.poll() is not None, limit=_LIMIT)
        finally:
            process.terminate()
            process.wait()


def _command(suite: str, folder: Path, flags: Sequence[str]) -> list[str]:
    """The suite's command line with these flags of Ginkgo's."""
    return [
        str(binary(suite)),
        "-test.timeout=12h",
        "-ginkgo.no-color",
        "-ginkgo.timeout=6h",
        "-ginkgo.grace-period=5m",
        f"-ginkgo.json-report={folder / REPORT}",
        *(f"-ginkgo.{flag}" for flag in flags),
        f"-default-nodeclass={folder / 'node_class.yaml'}",
        f"-default-nodepool={folder / 'node_pool.yaml'}",
        f"-repair-condition={_REPAIR_CONDITION}",
        f"-reboot-condition={_REBOOT_CONDITION}",
    ]


def container(name: str) -> str:
    """The outermost container of the spec, if its specs need a default NodePool of their own; else an empty text."""
    return next((own for own in (_COUNTS_NODES, *_ANNOTATIONS) if name.startswith(f"{own} ")), "")


def node_pool(own: str) -> dict[str, Any]:
    """The default NodePool of specs for whose names :func:`container` is that text."""
    pool: dict[str, Any] = yaml.safe_load(_manifest("node_pool.yaml"))
    pool["metadata"]["annotations"].update(_ANNOTATIONS.get(own, {}))
    if own == _COUNTS_NODES:
        pool["spec"]["template"]["spec"]["requirements"].append(_TWO_CPUS)
    return pool


def _port_forward() -> Path:
    """The binary by which the stand-in's pod can be reached through the API server."""
    return Binary(
        name="karpenter-port-forward",
        module=MODULE,
        sources=("go.mod", "go.sum", "port_forward/main.go"),
        command=("build", "./port_forward"),
    ).built()


def _manifest(name: str) -> str:
    return (FOLDER / name).read_text()


def _pattern(name: str) -> str:
    """The regular expression, in Go's syntax, of the spec with that name; the suite's description precedes it."""
    return f" {re.escape(name)}$".replace("\\ ", " ")


def _definitions(world: World) -> list[dict[str, object]]:
    """Karpenter's kinds that Tenon doesn't define: the suites list and delete objects of each after every spec."""
    module = Path(json.loads(_go("list", "-m", "-json", KARPENTER))["Dir"])
    kinds = [yaml.safe_load(path.read_text()) for path in sorted((module / "pkg" / "apis" / "crds").glob("*.yaml"))]
    definitions = world.store.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return [kind for kind in kinds if world.store.find(definitions, kind["metadata"]["name"]) is None]


def _go(*arguments: str) -> str:
    return subprocess.run(
        [go(), *arguments], cwd=MODULE, check=True, capture_output=True, text=True, env=environment()
    ).stdout


def _record(world: World, file: TextIO) -> None:
    """Write what happens in the world to the file from now on: what a failed spec is traced by."""

    def invoked(invocation: Invocation) -> None:
        file.write(_text_of_invocation(invocation))

    def happened(event: TimelineEvent) -> None:
        file.write(f"{event.at:%H:%M:%S} {event.type} {event.name} {dict(event.details)}\n")

    world.aws.functions.observe(invoked)
    world.timeline.subscribe(happened)


def _text_of_invocation(invocation: Invocation) -> str:
    """An invocation with its logs, without metrics."""
    head = f"{invocation.at:%H:%M:%S} {invocation.function} ({invocation.trigger}) {invocation.latency:.2f} s"
    lines = [f"    {json.dumps(line)}\n" for line in invocation.logs]
    return f"{head} {invocation.error}\n{''.join(lines)}{invocation.traceback}"

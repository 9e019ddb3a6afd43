"""What kubectl, kstatus, Argo CD and Flux say of an object; the programs are theirs, not ours.

kstatus and Argo CD's health checks run in a program that Go builds from the pins in tests/real/health. Argo CD's
checks are those of its own module, and the ones that docs/gitops.md adds; Flux' expressions are of that page.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.real.go_build import Binary
from shared.base.struct import Struct
from tests.unit.docs.gitops_page import EXPRESSIONS, is_true_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.world import World

Json = dict[str, Any]

PROGRAM = Binary(
    name="health-checker",
    module=Path(__file__).with_name("health"),
    sources=("go.mod", "go.sum", "main.go"),
    command=("build", "-trimpath", "-ldflags=-s -w", "."),
)
_WATCH_SECONDS = 20
_POLL_SECONDS = 0.05
_STATUSES = ("True", "False", "Unknown")


class Verdict(Struct, kw_only=True):
    """A checker's word, such as "Current" or "Healthy" ("" without one), and what it adds."""

    status: str
    message: str


class GoVerdicts(Struct, kw_only=True):
    """Those of kstatus and of Argo CD, whose status is "" if it has no health check for the kind."""

    kstatus: Verdict
    argo: Verdict


def go_verdicts(objects: Sequence[Json], scripts: Mapping[str, str]) -> list[GoVerdicts]:
    """What kstatus and Argo CD say of each object; ``scripts`` are added to Argo CD's checks, by "group_Kind"."""
    text = json.dumps({"objects": list(objects), "scripts": dict(scripts)})
    done = subprocess.run([str(PROGRAM.built())], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [GoVerdicts(**{key: Verdict(**v) for key, v in item.items()}) for item in json.loads(done.stdout)]


def flux(obj: Json, kstatus: str) -> str:
    """What Flux says with the page's expressions; of other kinds, it says what kstatus does."""
    kind = (obj["apiVersion"], obj["kind"])
    check = next((e for e in EXPRESSIONS if (e["apiVersion"], e["kind"]) == kind), None)
    if check is None:
        return kstatus
    if is_true_of(check["failed"], obj):
        return "Failed"
    return "Current" if is_true_of(check["current"], obj) else "InProgress"


class Kubectl:
    """kubectl on a world's API server."""

    def __init__(self, world: World, folder: Path) -> None:
        self._folder = folder
        config = folder / "kubeconfig"
        config.write_text(world.kubectl_config())
        self._environ = {"KUBECONFIG": str(config), "HOME": str(folder), "PATH": os.environ["PATH"]}

    def waits_for(self, resource: str, name: str, condition: str) -> bool:
        """Whether ``kubectl wait --for=condition=…`` ends at once, instead of timing out.

        Raises:
            RuntimeError: it ended with another error.
        """
        done = self._run("wait", "--timeout=0", f"--for=condition={condition}", resource, name)
        if done.returncode and "condition not met" not in done.stderr and "timed out" not in done.stderr:
            raise RuntimeError(done.stderr)
        return done.returncode == 0

    def event_reasons(self, kind: str, name: str) -> set[str]:
        """The reasons that ``kubectl events --for`` prints of an object."""
        done = self._run("events", "--for", f"{kind}/{name}", "--no-headers", "--output", "json")
        if done.returncode:
            raise RuntimeError(done.stderr)
        return {event["reason"] for event in json.loads(done.stdout)["items"]} if done.stdout.strip() else set()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", *arguments]
        return subprocess.run(command, env=self._environ, capture_output=True, text=True, timeout=60, check=False)

    @contextlib.contextmanager
    def watch(self, resource: str) -> Iterator[Watch]:
        """``kubectl get RESOURCE -w``, while the block runs."""
        output = self._folder / f"{resource}.txt"
        with output.open("w") as stream:
            command = ["kubectl", "get", resource, "--watch"]
            process = subprocess.Popen(command, env=self._environ, stdout=stream, stderr=subprocess.STDOUT)
            try:
                yield Watch(output)
            finally:
                process.kill()
                process.wait()


class Watch:
    """What ``kubectl get -w`` has printed so far."""

    def __init__(self, output: Path) -> None:
        self._output = output

    def ready(self, name: str, expected: str) -> str:
        """Column READY of the object's last line, once that is as expected, or after some seconds."""
        deadline = time.monotonic() + _WATCH_SECONDS
        while (last := self._last_ready(name)) != expected and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # for another process's output
        return last

    def _last_ready(self, name: str) -> str:
        head, *lines = [line.split() for line in self._output.read_text().splitlines() if line.strip()] or [[]]
        rows = [words for words in lines if words[0] == name]
        if not rows:
            return "no line"
        behind = len(head) - head.index("READY")
        return rows[-1][-behind] if rows[-1][-behind] in _STATUSES else ""

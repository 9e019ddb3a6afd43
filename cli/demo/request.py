"""What a run of the demo is asked to do: manifests, replica counts, interruptions and faults."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import UsageError
from cli.file_contents import read_bytes, yaml_documents
from cli.report import charts
from infra.options import context_keys, stack_options
from infra.options.rules import OptionError
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from cli.demo.faults import Fault
    from cli.demo.interruptions import Interrupt
    from shared.api.json_types import Json

MANIFESTS = Path(__file__).parent / "manifests"
DEFAULT_MANIFEST = "spot.yaml"
DEFAULT_STEPS = (5, 0)
_MAX_REPLICAS = 150_000
"""As many pods as Kubernetes supports in a cluster."""
PLACEHOLDER = "CLUSTER"
"""Stands for the cluster's name in manifests, as in AWS's and Karpenter's guides."""


class Scale(Struct, kw_only=True):
    """Deployments, by a name or a pattern as in a shell (``web-*``), and their replica counts, one after the other."""

    deployment: str
    steps: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Scale:
        """``inflate=12,5,1`` or ``web-*=50,15``.

        Raises:
            UsageError: the text has another form.
        """
        name, _, steps = text.partition("=")
        try:
            counts = tuple(int(step) for step in steps.split(","))
        except ValueError:
            counts = ()
        if not name or not counts or not 0 <= min(counts) <= max(counts) <= _MAX_REPLICAS:
            raise UsageError(f'--scale "{text}" is not of the form NAME=REPLICAS,REPLICAS, such as inflate=12,5,1')
        return cls(deployment=name, steps=counts)

    def matching(self, deployments: Iterable[str]) -> list[str]:
        """Those of the Deployments (names) that it scales, sorted.

        Raises:
            UsageError: none matches.
        """
        names = sorted(deployments)
        matching = [name for name in names if fnmatchcase(name, self.deployment)]
        if not matching:
            listed = ", ".join(names) or "none"
            raise UsageError(f'no Deployment of namespace default matches "{self.deployment}" (there: {listed})')
        return matching


class Step(Struct, kw_only=True):
    """One step of the demo: its label, and the replicas of the Deployments that it scales at once, by name."""

    label: str
    replicas: Mapping[str, int]


class DemoRequest(Struct, kw_only=True):
    """The options of a run. ``elapsed`` measures how long work takes (:class:`local.clock.Clock`).

    ``rest`` is how long each step may take at most, in cluster time; None: until the cluster is idle. ``kubeconfig`` is
    that of a throw-away cluster to run in, in real time; ``allow_nodes``: it may have nodes of its own.
    ``allow_pending``: pods that stay pending are no failure. ``settings`` are the deployment's, by key.
    """

    manifests: tuple[str, ...] = (DEFAULT_MANIFEST,)
    scales: tuple[Scale, ...] = ()
    interrupt: Interrupt | None = None
    hostile: bool = False
    rest: timedelta | None = None
    keep: bool = False
    only_json: bool = False
    quiet: bool = False
    cluster: str = "demo"
    region: str = "us-east-1"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    elapsed: Callable[[], float] = time.monotonic
    kubeconfig: Path | None = None
    allow_nodes: bool = False
    allow_pending: bool = False
    settings: Mapping[str, str] = {}
    record: Path | None = None
    report: Path | None = None

    def objects(self) -> list[dict[str, Any]]:
        """The objects of all manifests. Of objects with the same kind, namespace and name, the last is used.

        Raises:
            UsageError: a manifest doesn't exist, isn't YAML of objects, or is empty.
        """
        return _last_of_each(o for m in self.manifests for o in load_manifest(m, cluster=self.cluster))

    def check_outputs(self) -> None:
        """Check that the files of ``--record`` and ``--report`` can be written, before minutes are spent on the run.

        Raises:
            UsageError: one of them can't.
            CommandError: the report's charts can't be drawn.
        """
        if self.report is not None:
            charts.read(charts.SCRIPT)
        for path in (self.record, self.report):
            if path is not None:
                try:
                    path.open("a").close()
                except OSError as error:
                    raise UsageError(f"{path}: {error.strerror or error}") from error

    def steps(self, objects: Iterable[dict[str, Any]]) -> list[Step]:
        """The steps with these objects, in order; without Deployments to scale, one step with the objects as applied.

        Raises:
            UsageError: no Deployment matches a ``--scale``.
        """
        before = _replicas(objects)
        scales = self.scales
        if not scales and "inflate" in before:
            counts = (*DEFAULT_STEPS, DEFAULT_STEPS[0]) if self.keep else DEFAULT_STEPS
            scales = (Scale(deployment="inflate", steps=counts),)
        if not scales:
            return [Step(label="as applied", replicas={})]
        steps: list[Step] = []
        for scale in scales:
            matching = scale.matching(before)
            for count in scale.steps:
                earlier = " or ".join(map(str, sorted({before[name] for name in matching})))
                subject = scale.deployment
                if len(matching) > 1:
                    subject += f" ({len(matching)} Deployments)"
                steps.append(Step(label=f"{subject} {earlier} → {count}", replicas=dict.fromkeys(matching, count)))
                before |= steps[-1].replicas
        return steps


def _replicas(objects: Iterable[dict[str, Any]]) -> dict[str, int]:
    """By name: the replicas of the Deployments of namespace default."""
    return {
        obj["metadata"]["name"]: obj.get("spec", {}).get("replicas", 1)
        for obj in objects
        if obj.get("kind") == "Deployment"
        and obj.get("metadata", {}).get("name")
        and obj["metadata"].get("namespace", "default") == "default"
    }


_UNFIT = {
    "fleet": "the demo has one cluster; deploy a fleet with cdk (docs/fleets.md)",
    "mode": "shadow mode compares Tenon with the autoscaler that runs, and the demo's cluster has none. "
    "`tenon simulate MANIFEST` says what Tenon would launch for a file; to compare in a cluster, deploy there with "
    "-c mode=shadow, then `tenon shadow report` (docs/shadow-mode.md)",
}
"""The settings that the demo can't run with, and what to do instead."""


def context_of(settings: Sequence[str] | None) -> dict[str, str]:
    """The settings of ``-c KEY=VALUE`` options by key.

    Raises:
        UsageError: one isn't a setting, or has an invalid value.
    """
    try:
        context = context_keys.given(settings or ())
        stack_options.parse({"relay": "function", **context}, cluster="demo")
    except OptionError as error:
        raise UsageError(str(error)) from error
    unfit = next((key for key in _UNFIT if key in context and (key, context[key]) != ("mode", "active")), None)
    if unfit is not None:
        raise UsageError(f"-c {unfit}: {_UNFIT[unfit]}")
    return context


def load_manifest(manifest: str, *, cluster: str) -> list[dict[str, Any]]:
    """The objects of a manifest: a path, or the name of an included manifest.

    Raises:
        UsageError: the file doesn't exist, isn't YAML of objects, or is empty.
    """
    path = next((p for p in (Path(manifest), MANIFESTS / manifest) if p.is_file()), None)
    if path is None:
        included = ", ".join(sorted(p.name for p in MANIFESTS.glob("*.yaml")))
        raise UsageError(f'there is no file "{manifest}" and no included manifest of that name ({included})')
    documents = yaml_documents(read_bytes(path).decode().replace(PLACEHOLDER, cluster), str(path))
    objects = [obj for document in documents for obj in _items(document)]
    if not objects:
        raise UsageError(f"{path} is empty: it has no object")
    for number, obj in enumerate(objects, 1):
        if problem := _problem(obj):
            raise UsageError(f"{path}: object {number} {problem}")
    return objects


def _items(document: Json) -> list[Any]:
    """The objects of a list such as kubectl prints, or the document itself."""
    items = document.get("items") if isinstance(document, dict) else None
    return items if isinstance(items, list) else [document]


def _problem(obj: Json) -> str:
    """Why it is no Kubernetes object; empty if it is."""
    if not isinstance(obj, dict) or not obj.get("kind") or not obj.get("apiVersion"):
        return "is no Kubernetes object: it has no apiVersion and kind"
    if not isinstance(obj.get("metadata"), dict) or not obj["metadata"].get("name"):
        return f"({obj['kind']}) has no metadata.name"
    return ""


def _last_of_each(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key: dict[tuple[str, str, str], dict[str, Any]] = {}
    for obj in objects:
        metadata = obj.get("metadata", {})
        by_key[obj.get("kind", ""), metadata.get("namespace", ""), metadata.get("name", "")] = obj
    return list(by_key.values())

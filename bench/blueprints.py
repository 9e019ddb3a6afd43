"""Applies manifests of others to a local cluster: do all pods run, does every node that is bought run one?

Such manifests are aws-samples' karpenter-blueprints. ``python -m bench.blueprints FOLDER`` applies each directory
below the folder that has manifests by itself, with a NodePool and an EC2NodeClass called default, which blueprints
expect. Files and directories of EKS Auto Mode are left out. Placeholders (``<<CLUSTER_NAME>>``) and pinned AMI releases
are filled in. A directory fails if a pod is pending after fifteen minutes, or if a node was bought that ran no pod.
"""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.aws import amis
from local.kubernetes.errors import ApiError
from local.world import World, sample_objects
from shared.api import labels as names
from shared.api.yaml_documents import reader
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Json = dict[str, Any]
_AUTO_MODE = re.compile(r"auto-?mode", re.IGNORECASE)
_PINNED_ALIAS = re.compile(r"(alias:\s*\"?(?:al2023|al2|bottlerocket))@[\w.]+")
_PLACEHOLDER = re.compile(r"<<\w+>>|\$\{?(?:CLUSTER_NAME|KARPENTER_NODE_IAM_ROLE_NAME|AWS_REGION)\}?")
_NAMES = re.compile(r"^kind: (\w+)\s+metadata:\s+name: (\S+)", re.MULTILINE)
_FIRST = (
    "StorageClass",
    "PriorityClass",
    "EC2NodeClass",
    "NodePool",
    "NodeOverlay",
    "PersistentVolumeClaim",
    "DaemonSet",
)
"""Kinds that are applied before all others, in this order."""
_LIMIT = timedelta(minutes=15)
_REST = timedelta(minutes=3)
_STEP = timedelta(seconds=5)


class Result(MutableStruct):
    """What became of a directory. ``price`` is USD per hour of the nodes when all pods ran, by the local price list."""

    name: str
    pods: int = 0
    nodes: int = 0
    price: float = 0.0
    pending: list[str] = []
    unused: list[str] = []
    problems: list[str] = []
    mended: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether every pod runs, and every node that was bought ran one."""
        return not (self.pending or self.unused or self.problems)


class _Observer:
    """What is seen of a cluster while it runs: nodes that were ``bought``, and those that ran a pod of their own."""

    def __init__(self, world: World) -> None:
        self.bought: set[str] = set()
        self.used: set[str] = set()
        self._world = world

    def watch(self, duration: timedelta, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let the cluster run for that long, or until the condition holds."""
        end = self._world.clock.now() + duration
        while self._world.clock.now() < end and not until():
            self._world.run_for(_STEP)
            self.bought |= {
                n["metadata"]["name"] for n in self._world.nodes() if names.NODEPOOL in n["metadata"]["labels"]
            }
            self.used |= {
                p["spec"]["nodeName"] for p in self._world.pods() if p["spec"].get("nodeName") and not _is_daemon(p)
            }

    def all_run(self) -> bool:
        """Whether there are pods, and all of them run or have run."""
        phases = {p.get("status", {}).get("phase") for p in self._world.pods()}
        return bool(phases) and phases <= {"Running", "Succeeded"}

    def pending(self) -> list[str]:
        """The names of pending pods."""
        return [p["metadata"]["name"] for p in self._world.pods() if p.get("status", {}).get("phase") == "Pending"]


def directories(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """The directories below the folder that have manifests, by their relative names, without those of Auto Mode.

    Files that define the same object are variants, of which each is applied with the directory's other files.
    """
    for directory in sorted(path for path in [folder, *folder.rglob("*")] if path.is_dir()):
        files = [f for f in sorted(directory.glob("*.yaml")) if not _AUTO_MODE.search(str(f.relative_to(folder)))]
        yield from _variants(str(directory.relative_to(folder)), files)


def _variants(name: str, files: Sequence[Path]) -> Iterator[tuple[str, list[Path]]]:
    files_of: dict[tuple[str, str], set[Path]] = {}
    for file in files:
        for key in _NAMES.findall(file.read_text(encoding="utf-8")):
            files_of.setdefault(key, set()).add(file)
    variants = sorted({file for same in files_of.values() if len(same) > 1 for file in same})
    if files and not variants:
        yield name, list(files)
    for variant in variants:
        yield f"{name}/{variant.stem}", [*(file for file in files if file not in variants), variant]


def measure(name: str, files: Sequence[Path]) -> Result:
    """Apply the manifests of a directory in a cluster of its own."""
    result = Result(name)
    with World() as world:
        objects = sorted(_objects(files, world), key=_rank)
        pools = {o["metadata"]["name"] for o in objects if o["kind"] == "NodePool"}
        result.mended = [note for obj in objects if (note := _mend(obj))]
        _apply(world, [*_defaults(world, without=pools), *objects], result)
        observer = _Observer(world)
        observer.watch(_LIMIT, until=observer.all_run)
        result.pods, result.nodes, result.price = len(world.pods()), len(world.nodes()), _price(world)
        observer.watch(_REST)
        result.pending = observer.pending()
        static = {o["metadata"]["name"] for o in objects if o["kind"] == "NodePool" and "replicas" in o["spec"]}
        of_static = {n["metadata"]["name"] for pool in static for n in world.nodes(pool)}
        result.unused = sorted(observer.bought - observer.used - of_static)
        result.problems += [str(failure) for failure in world.failures()]
    return result


def _objects(files: Iterable[Path], world: World) -> Iterator[Json]:
    for file in files:
        text = _PLACEHOLDER.sub(lambda match: _filled_in(match[0], world), file.read_text(encoding="utf-8"))
        for document in reader.documents(_PINNED_ALIAS.sub(r"\1@latest", text)):
            yield from document.get("items", [document])


def _filled_in(placeholder: str, world: World) -> str:
    name = placeholder.strip("<>${}")
    if "ROLE" in name:
        return f"TenonNodeRole-{world.cluster}"
    if "AMI" in name:
        architecture = "arm64" if "ARM" in name else "x86_64"
        published = amis.published(world.options.version)
        return next(i.image_id for i in published if i.architecture == architecture and "al2023" in i.name)
    if name in {"AZ", "AVAILABILITY_ZONE"}:
        return f"{world.region}a"
    return world.region if name == "AWS_REGION" else world.cluster


def _mend(obj: Json) -> str:
    """Completes what Karpenter's own definitions refuse; says what, or "" for nothing."""
    spec = obj.get("spec") or {}
    terms = spec.get("amiSelectorTerms") or []
    if obj["kind"] != "EC2NodeClass" or "amiFamily" in spec or any("alias" in term for term in terms):
        return ""
    spec["amiFamily"] = "AL2023"
    name = obj["metadata"]["name"]
    return f"EC2NodeClass {name} has neither an alias nor an amiFamily, which Karpenter refuses: AL2023 is filled in"


def _rank(obj: Json) -> int:
    return _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST)


def _defaults(world: World, *, without: Iterable[str]) -> list[Json]:
    """The NodePool and EC2NodeClass that the blueprints' own cluster has: for pods with the label intent: apps."""
    requirements = {
        names.CAPACITY_TYPE: ["spot", "on-demand"],
        names.ARCH: ["amd64", "arm64"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"}
    pool = sample_objects.node_pool(requirements, disruption=disruption)
    pool["spec"]["template"]["metadata"] = {"labels": {"intent": "apps"}}
    return [sample_objects.node_class(world), *([] if "default" in without else [pool])]


def _apply(world: World, objects: Iterable[Json], result: Result) -> None:
    for obj in objects:
        try:
            world.apply(obj)
        except ApiError as error:
            result.problems.append(f"{obj['kind']} {obj['metadata'].get('name')}: {error}")


def _is_daemon(pod: Json) -> bool:
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))


def _price(world: World) -> float:
    prices = world.aws.prices
    total = 0.0
    for node in world.nodes():
        labels = node["metadata"]["labels"]
        instance_type, zone = labels.get(names.INSTANCE_TYPE, ""), labels.get(names.ZONE, "")
        is_spot = labels.get(names.CAPACITY_TYPE) == "spot"
        total += prices.spot(instance_type, zone) if is_spot else prices.on_demand(instance_type)
    return total


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 if all pods of all directories run and every node that was bought ran one."""
    if len(arguments) < 1:
        print("usage: python -m bench.blueprints FOLDER [NAME…]", file=sys.stderr)
        return 2
    folder, wanted = Path(arguments[0]), set(arguments[1:])
    failed = 0
    for name, files in directories(folder):
        if wanted and not wanted & {name, name.partition("/")[0]}:
            continue
        result = measure(name, files)
        failed += not result.ok
        mark = "ok  " if result.ok else "FAIL"
        print(f"{mark} {name}: {result.pods} pods on {result.nodes} nodes, ${result.price:.3f}/h", flush=True)
        for label, entries in (
            ("pending", result.pending),
            ("bought, but runs no pod:", result.unused),
            ("problem:", result.problems),
            ("mended:", result.mended),
        ):
            for entry in entries:
                print(f"     {label} {entry}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The input of `tenon simulate`: documents with options, objects and instance types, manifests, or kubectl lists.

An object that can't be read is reported by itself; the others are used.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cli.cluster import decoding
from shared.api.decode import node_claim, node_pool
from shared.api.kubernetes import DaemonSet, Namespace, Node
from shared.api.labels import ARCH, OS
from shared.api.pods import is_pending
from shared.api.quantity import parse_resources
from shared.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from shared.instance_types.instance_type import InstanceType, Offering
from shared.scheduling.decision import Problem, SchedulingPolicies, UnschedulableReason
from shared.snapshot import InvalidObject, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool

T = TypeVar("T")

_PREFERENCE_POLICIES = ("Respect", "Ignore")
_MIN_VALUES_POLICIES = ("Strict", "BestEffort")


class DocumentError(ValueError):
    """A document that can't be used; the message says what and where."""


@dataclass
class Document:
    """What the files hold, as raw values."""

    options: dict[str, Any] = field(default_factory=dict)
    objects: list[dict[str, Any]] = field(default_factory=list)
    instance_types: list[dict[str, Any]] = field(default_factory=list)
    types_for_pool: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A problem for the core, and what is known already: pods and other objects that can't be read."""

    problem: Problem
    refused: Mapping[str, UnschedulableReason]
    invalid: tuple[InvalidObject, ...]


def read(paths: Sequence[Path]) -> Document:
    """The documents in these files, joined; ``-`` is standard input, ``.gz`` is unpacked.

    Raises:
        DocumentError: a file can't be read, or isn't JSON or YAML of the expected shape.
    """
    found = Document()
    for path in paths:
        for value in values(path):
            _add(found, value, str(path))
    return found


def values(path: Path) -> Iterable[Any]:
    """The JSON values of a file."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DocumentError(f"{path}: {error}") from error
    try:
        return [json.loads(text)]
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{"):
            raise DocumentError(f"{path}: {error}") from error
    import yaml  # noqa: PLC0415 (slow to import, and JSON doesn't need it)

    try:
        return [v for v in yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if v is not None]
    except yaml.YAMLError as error:
        raise DocumentError(f"{path}: {error}") from error


def _add(document: Document, value: Any, path: str) -> None:  # noqa: ANN401, C901 (any JSON; a case for each shape)
    if isinstance(value, list):
        for one in value:
            _add(document, one, path)
        return
    if not isinstance(value, dict):
        raise DocumentError(f"{path}: expected an object, got {type(value).__name__}")
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for one in value["items"]:
            _add(document, one, path)
        return
    if "kind" in value:
        document.objects.append(value)
        return
    known = {"options": dict, "objects": list, "instanceTypes": list, "instanceTypesForNodePool": dict}
    for key, shape in known.items():
        if value.get(key) is not None and not isinstance(value[key], shape):
            raise DocumentError(f"{path}: {key} must be {'a list' if shape is list else 'a map'}")
    if not known.keys() & value.keys():
        raise DocumentError(f"{path}: neither a Kubernetes object nor one of {', '.join(known)}")
    document.options.update(value.get("options") or {})
    for one in value.get("objects") or []:
        _add(document, one, path)
    document.instance_types += value.get("instanceTypes") or []
    document.types_for_pool.update(value.get("instanceTypesForNodePool") or {})


def question(document: Document, *, now: datetime) -> Question:
    """The problem that the document states.

    Raises:
        DocumentError: the options or the instance types can't be read.
    """
    types = tuple(instance_type(raw, i) for i, raw in enumerate(document.instance_types))
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for raw in document.objects:
        by_kind.setdefault(str(raw.get("kind")), []).append(raw)
    invalid: list[InvalidObject] = []
    refused: dict[str, UnschedulableReason] = {}

    def every(kind: type[T]) -> tuple[T, ...]:
        return decoding.every(by_kind.get(kind.__name__, ()), kind, invalid)

    pods = decoding.pods(by_kind.get("Pod", ()), refused)
    pools: list[NodePool] = []
    for raw in (*by_kind.get("NodePool", ()), *by_kind.get("Provisioner", ())):
        outcome = node_pool(raw)
        if outcome.value is not None:
            pools.append(outcome.value)
        else:
            invalid.append(InvalidObject(ref=outcome.ref, problems=outcome.problems))
    claims: list[NodeClaim] = []
    for raw in by_kind.get("NodeClaim", ()):
        claim = node_claim(raw)
        if claim.value is not None:
            claims.append(claim.value)
        else:
            invalid.append(InvalidObject(ref=claim.ref, problems=claim.problems))
    snapshot = Snapshot(
        taken_at=now,
        pods=pods,
        nodes=every(Node),
        node_claims=tuple(claims),
        node_pools=tuple(pools),
        daemon_sets=every(DaemonSet),
        namespaces=every(Namespace),
        persistent_volumes=every(PersistentVolume),
        persistent_volume_claims=every(PersistentVolumeClaim),
        storage_classes=every(StorageClass),
        csi_nodes=every(CSINode),
        invalid=tuple(invalid),
    )
    problem = Problem(
        snapshot=snapshot,
        instance_types={p.name: types_for(p.name, types, document.types_for_pool) for p in pools},
        pods=frozenset(p.key for p in pods if is_pending(p)),
        policies=policies(document.options),
    )
    return Question(problem, refused, tuple(invalid))


def types_for(
    pool: str, types: tuple[InstanceType, ...], named: Mapping[str, Sequence[str]]
) -> tuple[InstanceType, ...]:
    """The types that a document gives to the pool; all of them if it names none."""
    if pool not in named:
        return types
    names = set(named[pool])
    return tuple(t for t in types if t.name in names)


def policies(raw: Mapping[str, Any]) -> SchedulingPolicies:
    """The scheduling policies of a document.

    Raises:
        DocumentError: one of them is unknown.
    """
    preference = raw.get("preferencePolicy") or "Respect"
    min_values = raw.get("minValuesPolicy") or "Strict"
    if preference not in _PREFERENCE_POLICIES:
        raise DocumentError(
            f'options.preferencePolicy is "{preference}"; allowed are {", ".join(_PREFERENCE_POLICIES)}'
        )
    if min_values not in _MIN_VALUES_POLICIES:
        raise DocumentError(f'options.minValuesPolicy is "{min_values}"; allowed are {", ".join(_MIN_VALUES_POLICIES)}')
    return SchedulingPolicies(preference_policy=preference, min_values_policy=min_values)


def instance_type(raw: Any, index: int) -> InstanceType:  # noqa: ANN401 (any JSON)
    """An instance type of a document.

    Raises:
        DocumentError: something is missing or of the wrong shape.
    """
    try:
        systems = raw.get("os") or []
        labels = dict(raw.get("labels") or {})
        if raw.get("arch"):
            labels[ARCH] = raw["arch"]
        if systems:
            labels[OS] = systems if isinstance(systems, str) else ",".join(systems)
        return InstanceType(
            name=raw["name"],
            labels=labels,
            capacity=parse_resources(raw["capacity"]),
            overhead=parse_resources(raw.get("overhead") or {}),
            offerings=tuple(
                Offering(
                    zone=o["zone"],
                    capacity_type=o["capacityType"],
                    price=float(o["price"]),
                    available=o.get("available", True),
                    labels=o.get("labels") or {},
                )
                for o in raw.get("offerings") or ()
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DocumentError(f"instanceTypes[{index}]: {wrong}") from error

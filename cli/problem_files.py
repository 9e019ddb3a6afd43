"""The input of `tenon simulate`: documents with options, objects and instance types, manifests, or kubectl lists.

An object that can't be read is reported by itself; the others are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cli import manifest_pods
from cli.errors import UsageError
from cli.file_contents import read_bytes, yaml_documents
from cli.object_snapshot import snapshot_of
from shared.api.decode import node_claim
from shared.api.labels import ARCH, OS
from shared.api.pods import is_pending
from shared.api.quantity import parse_resources
from shared.base.struct import MutableStruct, Struct
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types.instance_type import InstanceType, Offering
from shared.instance_types.overlays import apply_overlays, labels_of
from shared.scheduling.decision import Problem, SchedulingPolicies
from shared.snapshot import InvalidObject, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from cli.decoding import Raw
    from shared.api.json_types import Json
    from shared.api.nodeclaim import NodeClaim
    from shared.scheduling.decision import UnschedulableReason

T = TypeVar("T")

_PREFERENCE_POLICIES = ("Respect", "Ignore")
_MIN_VALUES_POLICIES = ("Strict", "BestEffort")
_NO_TYPES = "the files list no instance type, so nothing can be launched"
_FIELDS = {"options": dict, "objects": list, "instanceTypes": list, "instanceTypesForNodePool": dict}


Offered = Callable[["Snapshot"], tuple[ResolvedNodePools, list[str]]]
"""What the NodePools of a snapshot can launch, and notes on it."""
_NODE_CLASSES = frozenset({"EC2NodeClass", "AWSNodeTemplate"})


class DocumentError(UsageError):
    """An invalid document; the message says what is wrong and where."""


class Document(MutableStruct):
    """The contents of the files, as JSON values. ``lists_types``: one has a list of instance types, perhaps empty."""

    options: dict[str, Any] = {}
    objects: list[dict[str, Any]] = []
    instance_types: list[dict[str, Any]] = []
    lists_types: bool = False
    types_for_pool: dict[str, list[str]] = {}


class SimulationInput(Struct):
    """The scheduling problem, the pods and other objects that can't be read, and notes on what was left out.

    ``lists_types``: the instance types are those of a document.
    """

    problem: Problem
    refused: Mapping[str, UnschedulableReason]
    invalid: tuple[InvalidObject, ...]
    notes: tuple[str, ...]
    lists_types: bool = True


def read(paths: Sequence[Path]) -> Document:
    """The documents in these files, joined; ``-`` is standard input, gzip is unpacked.

    Raises:
        UsageError: a file can't be read, or isn't JSON or YAML of the expected shape.
    """
    document = Document()
    for path in paths:
        for value in _decode(path):
            add(document, value, str(path))
    return document


def _decode(path: Path) -> Iterable[Any]:
    data = read_bytes(path)
    try:
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:
        pass  # YAML, or several JSON objects
    except RecursionError as error:
        raise DocumentError(f"{path}: lists and maps are nested too deeply") from error
    documents = yaml_documents(data, str(path))
    if not documents:
        raise DocumentError(f"{path}: the file is empty")
    return documents


def add(document: Document, value: Json, source: str) -> None:
    """Add a JSON value to the document: a Kubernetes object, a list of them, or a document. ``source`` names it.

    Raises:
        DocumentError: the value is none of these.
    """
    if isinstance(value, list):
        for item in value:
            add(document, item, source)
    elif not isinstance(value, dict):
        raise DocumentError(f"{source}: expected an object, got {type(value).__name__}")
    elif str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        add(document, value["items"], source)
    elif not isinstance(value.get("kind", ""), str | None):
        raise DocumentError(f"{source}: kind must be a string, not {value['kind']}")
    elif value.get("kind"):
        document.objects.append(value)
    else:
        _add_fields(document, value, source)


def _add_fields(document: Document, value: Mapping[str, Any], source: str) -> None:
    for key, shape in _FIELDS.items():
        if value.get(key) is not None and not isinstance(value[key], shape):
            raise DocumentError(f"{source}: {key} must be {'a list' if shape is list else 'a map'}")
    if not _FIELDS.keys() & value.keys():
        raise DocumentError(f"{source}: neither a Kubernetes object nor one of {', '.join(_FIELDS)}")
    for pool, names in (value.get("instanceTypesForNodePool") or {}).items():
        if not isinstance(names, list):
            raise DocumentError(f"{source}: instanceTypesForNodePool.{pool} must be a list of instance types")
    document.options.update(value.get("options") or {})
    add(document, value.get("objects") or [], source)
    document.instance_types += value.get("instanceTypes") or []
    document.lists_types |= value.get("instanceTypes") is not None
    document.types_for_pool.update(value.get("instanceTypesForNodePool") or {})


def simulation_input(document: Document, *, now: datetime, offered: Offered | None = None) -> SimulationInput:
    """The scheduling problem of the document.

    ``offered`` says what NodePools can launch if the document has no list of instance types.

    Raises:
        DocumentError: the options or the instance types are invalid.
    """
    types = tuple(parse_instance_type(raw, i) for i, raw in enumerate(document.instance_types))
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for raw in document.objects:
        by_kind.setdefault(str(raw.get("kind")), []).append(raw)
    by_kind.pop("PodDisruptionBudget", None)  # scheduling doesn't ask them
    refused: dict[str, UnschedulableReason] = {}
    used = manifest_pods.USED_KINDS | (frozenset() if document.lists_types else _NODE_CLASSES)
    snapshot, read_notes = snapshot_of(by_kind, now=now, used=used, node_claims=_node_claims, refused=refused)
    if document.lists_types or offered is None:
        resolved, notes = _listed(snapshot, types, document.types_for_pool), [] if types else [_NO_TYPES]
    else:
        resolved, notes = offered(snapshot)
    conflicts = (f"NodeOverlay {name}: {why}" for name, why in sorted(resolved.overlay_conflicts.items()))
    problem = Problem(
        snapshot=snapshot,
        instance_types=resolved.instance_types,
        not_ready=resolved.not_ready,
        pods=frozenset(p.key for p in snapshot.pods if is_pending(p)),
        policies=parse_policies(document.options),
    )
    all_notes = (*read_notes, *notes, *conflicts)
    return SimulationInput(problem, refused, snapshot.invalid, all_notes, document.lists_types)


def _listed(
    snapshot: Snapshot, types: tuple[InstanceType, ...], types_for_pool: Mapping[str, Sequence[str]]
) -> ResolvedNodePools:
    """What the NodePools can launch of the instance types that a document lists."""
    overlaid = apply_overlays(
        {p.name: instance_types_for(p.name, types, types_for_pool) for p in snapshot.node_pools},
        {p.name: labels_of(p) for p in snapshot.node_pools},
        snapshot.node_overlays,
    )
    return ResolvedNodePools(
        instance_types=overlaid.instance_types, not_ready={}, node_classes={}, overlay_conflicts=overlaid.conflicts
    )


def _node_claims(raw_objects: Iterable[Raw]) -> tuple[tuple[NodeClaim, ...], list[InvalidObject]]:
    outcomes = [node_claim(raw) for raw in raw_objects]
    invalid = [InvalidObject(ref=c.ref, problems=c.problems) for c in outcomes if c.value is None]
    return tuple(c.value for c in outcomes if c.value is not None), invalid


def instance_types_for(
    pool: str, types: tuple[InstanceType, ...], types_for_pool: Mapping[str, Sequence[str]]
) -> tuple[InstanceType, ...]:
    """The instance types that the document gives to the NodePool; all of them if it names none."""
    if pool not in types_for_pool:
        return types
    names = set(types_for_pool[pool])
    return tuple(t for t in types if t.name in names)


def parse_policies(raw: Mapping[str, Any]) -> SchedulingPolicies:
    """The scheduling policies of a document's options.

    Raises:
        DocumentError: a policy is unknown.
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


def parse_instance_type(raw: Json, index: int) -> InstanceType:
    """An instance type of a document.

    Raises:
        DocumentError: a field is missing or of the wrong shape.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("name", ""), str):
        raise DocumentError(f"instanceTypes[{index}]: must be a map with name, capacity and offerings")
    try:
        return InstanceType(
            name=raw["name"],
            labels=_labels(raw),
            capacity=parse_resources(raw["capacity"]),
            overhead=parse_resources(raw.get("overhead") or {}),
            offerings=tuple(_offering(offering) for offering in raw.get("offerings") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DocumentError(f"instanceTypes[{index}]: {problem}") from error


def _labels(raw: Mapping[str, Any]) -> dict[str, str]:
    labels = dict(raw.get("labels") or {})
    systems = raw.get("os") or []
    if raw.get("arch"):
        labels[ARCH] = raw["arch"]
    if systems:
        labels[OS] = systems if isinstance(systems, str) else ",".join(systems)
    return labels


def _offering(raw: Json) -> Offering:
    if not isinstance(raw, dict):
        raise TypeError("offerings must be a list of maps with zone, capacityType and price")
    return Offering(
        zone=raw["zone"],
        capacity_type=raw["capacityType"],
        price=float(raw["price"]),
        available=raw.get("available", True),
        labels=raw.get("labels") or {},
    )

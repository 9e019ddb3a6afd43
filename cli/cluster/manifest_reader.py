"""Reads a cluster from files: `kubectl get … -o json` (or yaml), manifests, or the documents of `tenon simulate`.

JSON is decoded object by object straight into structs, because the output for a large cluster is a hundred megabytes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cli import decoding, manifest_pods, problem_files, workloads
from cli.cluster import price_origin
from cli.cluster.observed_cluster import ObservedCluster
from cli.cluster.offerings import CatalogOfferings, DocumentOfferings, has_status
from cli.cluster.services import ObservedServices
from cli.errors import UsageError
from cli.file_contents import read_bytes, yaml_documents
from cli.object_snapshot import snapshot_of
from cli.traffic.service import Service
from shared.api import labels as names
from shared.api.decode import DecodeError, decode
from shared.api.quantity import QuantityError
from shared.base.struct import MutableStruct, WireStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    from cli.cluster.offerings import OfferingSource
    from cli.cluster.price_origin import PriceOrigin
    from cli.decoding import Raw
    from cli.workloads import Workload
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.scheduling.decision import UnschedulableReason
    from shared.snapshot import Snapshot

T = TypeVar("T")
_ZONE_LETTERS = "abcdefgh"
USED_KINDS = frozenset({*manifest_pods.USED_KINDS, "EC2NodeClass", "AWSNodeTemplate", "VolumeAttachment", "Service"})
"""The kinds that commands read from files, besides workloads."""


class _Document(WireStruct, rename="camel"):
    """The outermost value of a JSON file: a list of objects, a document of `tenon simulate`, or one object."""

    kind: str = ""
    items: list[msgspec.Raw] | None = None
    options: dict[str, Any] | None = None
    objects: list[msgspec.Raw] | None = None
    instance_types: list[Any] | None = None
    instance_types_for_node_pool: dict[str, list[str]] | None = None

    @property
    def is_list(self) -> bool:
        return self.kind.endswith("List") and self.items is not None

    @property
    def is_empty(self) -> bool:
        return not self.kind and self.items is None and self.objects is None and self.instance_types is None


class _Kind(WireStruct):
    kind: str = ""


class _FileContents(MutableStruct):
    """Objects by kind, undecoded, and the options and instance types of documents."""

    by_kind: dict[str, list[Raw]] = {}
    document: problem_files.Document = msgspec.field(default_factory=problem_files.Document)

    def add(self, raw: Raw, kind: str) -> None:
        self.by_kind.setdefault(kind, []).append(raw)

    def of(self, *kinds: str) -> list[Raw]:
        return [raw for kind in kinds for raw in self.by_kind.get(kind, ())]


def read(
    paths: Sequence[Path], *, now: datetime, catalog: Callable[[str], tuple[InstanceTypeCatalog, PriceOrigin]]
) -> ObservedCluster:
    """The cluster that the files describe.

    ``catalog`` returns a Region's catalog and the origin of its prices; it is called only if no file lists instance
    types.

    Raises:
        UsageError: a file can't be read, or holds nothing of the expected shape.
    """
    contents = _FileContents()
    for path in paths:
        _read_into(contents, path)
    try:
        policies = problem_files.parse_policies(contents.document.options)
        offerings = _listed_offerings(contents.document)
    except QuantityError as error:
        raise UsageError(str(error)) from error
    refused: dict[str, UnschedulableReason] = {}
    snapshot, notes = snapshot_of(contents.by_kind, now=now, used=USED_KINDS, refused=refused)
    prices = price_origin.FILES
    if offerings is None:
        raw, prices = catalog(region_of(snapshot))
        offerings, more = _catalog_offerings(snapshot, raw)
        hint = "; --aws reads AWS's prices" if prices == price_origin.MADE_UP else ""
        notes = (*((prices.note + hint,) if prices.note else ()), *notes, *more)
    return ObservedCluster(
        name=", ".join(p.name if str(p) != "-" else "standard input" for p in paths),
        now=now,
        snapshot=snapshot,
        offerings=offerings,
        notes=notes,
        unreadable_pods=refused,
        workloads=_workloads(contents),
        services=partial(_services, contents),
        policies=policies,
        prices=prices,
    )


def _listed_offerings(document: problem_files.Document) -> OfferingSource | None:
    """The instance types that the files list; None if they list none."""
    types = tuple(problem_files.parse_instance_type(raw, i) for i, raw in enumerate(document.instance_types))
    if not types:
        return None
    by_pool = document.types_for_pool
    return DocumentOfferings(
        types=types, for_pool={p: problem_files.instance_types_for(p, types, by_pool) for p in by_pool}
    )


def _catalog_offerings(snapshot: Snapshot, raw: InstanceTypeCatalog) -> tuple[OfferingSource, tuple[str, ...]]:
    """The offerings of the Region's catalog, and a note if a node class has no status."""
    offerings = CatalogOfferings(raw=raw)
    if all(has_status(c) for c in snapshot.node_classes):
        return offerings, ()
    return offerings, ("node classes without a status are assumed to be ready in every zone that has nodes",)


def _workloads(contents: _FileContents) -> dict[tuple[str, str, str], Workload]:
    result: dict[tuple[str, str, str], Workload] = {}
    for kind in workloads.KINDS:
        owners = [o for raw in contents.of(kind) if (o := _decode_or_none(raw, workloads.Owner)) is not None]
        result |= workloads.by_name(kind, owners)
    return result


def _services(contents: _FileContents) -> ObservedServices:
    """The Services that can be decoded."""
    services = tuple(s for raw in contents.of("Service") if (s := _decode_or_none(raw, Service)) is not None)
    return ObservedServices(
        services=services, problem="" if services else "the files have no Services (kubectl get services -A -o json)"
    )


def region_of(snapshot: Snapshot) -> str:
    """The Region by the nodes' labels; empty if no node has one."""
    for node in snapshot.nodes:
        labels = node.metadata.labels
        region = labels.get(names.REGION) or labels.get(names.ZONE, "").rstrip(_ZONE_LETTERS)
        if region:
            return region
    return ""


def read_objects(path: Path) -> dict[str, list[Raw]]:
    """The objects of one file by kind, undecoded.

    Raises:
        UsageError: as :func:`read`.
    """
    contents = _FileContents()
    _read_into(contents, path)
    return contents.by_kind


def as_mappings(by_kind: dict[str, list[Raw]], *kinds: str) -> list[dict[str, Any]]:
    """The objects of these kinds as JSON values."""
    return [decoding.as_mapping(raw) for kind in kinds for raw in by_kind.get(kind, ())]


def _read_into(contents: _FileContents, path: Path) -> None:
    data = read_bytes(path)
    if data.lstrip()[:1] in {b"{", b"["} and _is_json(data):
        _add_json(contents, data, path)
    else:
        _add_yaml(contents, data, path)


def _is_json(data: bytes) -> bool:
    """Whether the text is one JSON value, rather than several or YAML in braces."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        return True
    return True


def _add_json(contents: _FileContents, data: bytes, path: Path) -> None:
    try:
        if data.lstrip()[:1] == b"[":
            for raw in msgspec.json.decode(data, type=list[msgspec.Raw]):
                _add_json(contents, bytes(raw), path)
            return
        document = msgspec.json.decode(data, type=_Document)
        if document.kind and not document.is_list:
            contents.add(data, document.kind)
            return
        for raw in (*(document.items or ()), *(document.objects or ())):
            kind = msgspec.json.decode(raw, type=_Kind).kind or document.kind.removesuffix("List")
            contents.add(bytes(raw), kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: not the JSON of Kubernetes objects: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: lists and maps are nested too deeply") from error
    if document.is_empty:
        raise UsageError(f"{path}: neither Kubernetes objects nor a document with objects or instanceTypes")
    contents.document.options.update(document.options or {})
    contents.document.instance_types += document.instance_types or []
    contents.document.types_for_pool.update(document.instance_types_for_node_pool or {})


def _add_yaml(contents: _FileContents, data: bytes, path: Path) -> None:
    values = yaml_documents(data, str(path))
    if not values:
        raise UsageError(f"{path}: the file is empty")
    for value in values:
        _add_json(contents, msgspec.json.encode(value), path)


def _decode_or_none(raw: Raw, kind: type[T]) -> T | None:
    """The struct, or None if it can't be decoded, for what no decision needs."""
    try:
        return decode(raw, kind)
    except DecodeError:
        return None

"""A cluster from files: `kubectl get … -o json` (or yaml), manifests, or the documents of `tenon simulate`.

JSON is decoded object by object straight into structs, because a large cluster's dump is a hundred megabytes.
"""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cli.cluster import decoding, workloads
from cli.cluster.observed_cluster import Facts, Workload
from cli.cluster.offerings import Listed, Sold, is_stated
from cli.errors import UsageError
from cli.simulate import input_files
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.decode import DecodeError, decode
from shared.api.kubernetes import DaemonSet, Namespace, Node, PodDisruptionBudget
from shared.api.nodeclaim import NodeClaim
from shared.api.quantity import QuantityError
from shared.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from shared.cluster import conversion
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from cli.cluster.decoding import Raw
    from cli.cluster.observed_cluster import Stock
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.scheduling.decision import UnschedulableReason
    from shared.snapshot import InvalidObject

T = TypeVar("T")
_ZONE_LETTERS = "abcdefgh"


class _Top(msgspec.Struct, rename="camel"):
    """The outermost value of a JSON file: a list of objects, a document of ours, or one object."""

    kind: str = ""
    items: list[msgspec.Raw] | None = None
    options: dict[str, Any] | None = None
    objects: list[msgspec.Raw] | None = None
    instance_types: list[Any] | None = None
    instance_types_for_node_pool: dict[str, list[str]] | None = None


class _Kind(msgspec.Struct):
    kind: str = ""


@dataclass
class _Contents:
    """What the files hold: objects by kind, undecoded, and what a document of ours says besides."""

    by_kind: dict[str, list[Raw]] = field(default_factory=dict)
    document: input_files.Document = field(default_factory=input_files.Document)

    def add(self, raw: Raw, kind: str) -> None:
        self.by_kind.setdefault(kind, []).append(raw)

    def of(self, *kinds: str) -> list[Raw]:
        return [raw for kind in kinds for raw in self.by_kind.get(kind, ())]


def read(paths: Sequence[Path], *, now: datetime, catalog: Callable[[str], InstanceTypeCatalog]) -> Facts:
    """The cluster that the files describe; ``catalog`` gives a Region's, asked only if no file lists instance types.

    Raises:
        UsageError: a file can't be read, or holds nothing of the expected shape.
    """
    contents = _Contents()
    for path in paths:
        _read_into(contents, path)
    try:
        listed = tuple(input_files.instance_type(raw, i) for i, raw in enumerate(contents.document.instance_types))
        policies = input_files.policies(contents.document.options)
    except (input_files.DocumentError, QuantityError) as error:
        raise UsageError(str(error)) from error
    refused: dict[str, UnschedulableReason] = {}
    snapshot = _snapshot(contents, now, refused)
    notes = []
    stock: Stock
    if listed:
        named = contents.document.types_for_pool
        stock = Listed(types=listed, for_pool={p: input_files.types_for(p, listed, named) for p in named})
    else:
        raw = catalog(region_of(snapshot))
        stock = Sold(raw=raw)
        if any(not is_stated(c) for c in snapshot.node_classes):
            notes.append("node classes without a status are taken to be ready in every zone of the nodes")
    found: dict[tuple[str, str, str], Workload] = {}
    for kind in workloads.KINDS:
        owners = [o for raw in contents.of(kind) if (o := _tolerant(raw, workloads.Owner)) is not None]
        found |= workloads.named(kind, owners)
    return Facts(
        name=", ".join(p.name if str(p) != "-" else "standard input" for p in paths),
        now=now,
        snapshot=snapshot,
        stock=stock,
        notes=tuple(notes),
        unreadable=refused,
        workloads=found,
        policies=policies,
    )


def region_of(snapshot: Snapshot) -> str:
    """The Region of the nodes, by their labels; empty if no node says one."""
    for node in snapshot.nodes:
        labels = node.metadata.labels
        region = labels.get(names.REGION) or labels.get(names.ZONE, "").rstrip(_ZONE_LETTERS)
        if region:
            return region
    return ""


def objects(path: Path) -> dict[str, list[Raw]]:
    """The objects of one file by kind, undecoded.

    Raises:
        UsageError: as :func:`read`.
    """
    contents = _Contents()
    _read_into(contents, path)
    return contents.by_kind


def plain(by_kind: dict[str, list[Raw]], *kinds: str) -> list[dict[str, Any]]:
    """The objects of these kinds as plain JSON values."""
    return [decoding.plain(raw) for kind in kinds for raw in by_kind.get(kind, ())]


def _read_into(contents: _Contents, path: Path) -> None:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if data.lstrip()[:1] in {b"{", b"["}:
        _add_json(contents, data, path)
    else:
        _add_yaml(contents, data, path)


def _add_json(contents: _Contents, data: bytes, path: Path) -> None:
    try:
        if data.lstrip()[:1] == b"[":
            for raw in msgspec.json.decode(data, type=list[msgspec.Raw]):
                _add_json(contents, bytes(raw), path)
            return
        top = msgspec.json.decode(data, type=_Top)
        inner = [*(top.items or ()), *(top.objects or ())]
        if top.kind and not (top.kind.endswith("List") and top.items is not None):
            contents.add(data, top.kind)
            return
        for raw in inner:
            kind = msgspec.json.decode(raw, type=_Kind).kind or top.kind.removesuffix("List")
            contents.add(bytes(raw), kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not the JSON of Kubernetes objects: {error}") from error
    if not top.kind and top.items is None and top.objects is None and top.instance_types is None:
        raise UsageError(f"{path}: neither Kubernetes objects nor a document with objects or instanceTypes")
    contents.document.options.update(top.options or {})
    contents.document.instance_types += top.instance_types or []
    contents.document.types_for_pool.update(top.instance_types_for_node_pool or {})


def _add_yaml(contents: _Contents, data: bytes, path: Path) -> None:
    import yaml  # noqa: PLC0415 (slow to import, and JSON doesn't need it)

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        values = [v for v in yaml.load_all(data, Loader=loader) if v is not None]
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: neither JSON nor YAML: {error}") from error
    if not values:
        raise UsageError(f"{path}: is empty")
    for value in values:
        # times and the like become text, as the JSON has them
        _add_json(contents, msgspec.json.encode(value, enc_hook=str), path)


def _snapshot(contents: _Contents, now: datetime, refused: dict[str, UnschedulableReason]) -> Snapshot:
    invalid: list[InvalidObject] = []

    def every(kind: type[T]) -> tuple[T, ...]:
        return decoding.every(contents.of(kind.__name__), kind, invalid)

    node_pools, bad_pools = conversion.node_pools(plain(contents.by_kind, "NodePool", "Provisioner"))
    classes, bad_classes = conversion.node_classes(plain(contents.by_kind, "EC2NodeClass", "AWSNodeTemplate"))
    invalid += [*bad_pools, *bad_classes]
    return Snapshot(
        taken_at=now,
        pods=decoding.pods(contents.of("Pod"), refused),
        nodes=every(Node),
        node_claims=tuple(_usable(every(NodeClaim))),
        node_pools=node_pools,
        node_classes=classes,
        daemon_sets=every(DaemonSet),
        namespaces=every(Namespace),
        persistent_volumes=every(PersistentVolume),
        persistent_volume_claims=every(PersistentVolumeClaim),
        storage_classes=every(StorageClass),
        csi_nodes=every(CSINode),
        volume_attachments=every(VolumeAttachment),
        pod_disruption_budgets=every(PodDisruptionBudget),
        invalid=tuple(invalid),
    )


def _usable(claims: Iterable[NodeClaim]) -> Iterable[NodeClaim]:
    return (c for c in claims if c.api_version == nodeclaim.API_VERSION)


def _tolerant(raw: Raw, kind: type[T]) -> T | None:
    """The struct, or None where it can't be read: without it, only what-if questions about it can't be answered."""
    try:
        return decode(raw, kind)
    except DecodeError:
        return None

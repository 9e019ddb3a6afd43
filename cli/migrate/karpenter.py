"""Runs ``tenon migrate karpenter``: what is different for the objects of a cluster, or of files, once Tenon runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli import decoding, json_output, terminal
from cli.cluster import kubeconfig_context, live_reader, manifest_reader
from cli.errors import CommandError, UsageError
from cli.migrate import karpenter_objects, karpenter_settings
from cli.migrate.autoscaler_deployment import AutoscalerDeployment
from cli.migrate.json_migration import KarpenterMigration, KarpenterObject
from cli.printable import echo
from shared.api.meta import ObjectRef
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.cluster import resources
from shared.cluster.snapshot_reader import convert_node_classes, convert_node_overlays, convert_node_pools, list_raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference
    from cli.decoding import Raw
    from shared.snapshot import InvalidObject

    Objects = Mapping[str, Sequence[dict[str, Any]]]
    """JSON values by kind."""

_READ = (
    resources.NODE_POOLS, resources.PROVISIONERS, resources.NODE_CLASSES, resources.NODE_TEMPLATES,
    resources.NODE_OVERLAYS, resources.DEPLOYMENTS,
)  # fmt: skip
_KINDS = tuple(resource.kind for resource in _READ)
_NAME_LABEL = "app.kubernetes.io/name"
_NAME = "karpenter"


class ObjectReport(Struct, kw_only=True):
    """What differs for an object; ``is_refused``: Tenon doesn't use it until that is mended."""

    ref: ObjectRef
    differences: tuple[str, ...]
    is_refused: bool = False


def read_files(paths: Sequence[Path]) -> Objects:
    """The objects of files.

    Raises:
        UsageError: a file can't be read.
    """
    by_kind: dict[str, list[Raw]] = {}
    for path in paths:
        for kind, raw in manifest_reader.read_objects(path).items():
            by_kind.setdefault(kind, []).extend(raw)
    return {kind: manifest_reader.as_mappings(by_kind, kind) for kind in _KINDS}


def read_cluster(reference: ClusterReference) -> Objects:
    """The objects of a cluster; a kind that isn't installed has none.

    Raises:
        ApiError, KubeconfigError: they can't be read.
    """
    client = live_reader.connect(kubeconfig_context.resolve(reference))
    return {resource.kind: list(list_raw(client, resource)) for resource in _READ}


def reports(objects: Objects) -> list[ObjectReport]:
    """What differs for each object, those that Tenon refuses first."""
    pools, invalid_pools = convert_node_pools([*objects["NodePool"], *objects["Provisioner"]])
    classes, invalid_classes = convert_node_classes([*objects["EC2NodeClass"], *objects["AWSNodeTemplate"]])
    _, invalid_overlays = convert_node_overlays(objects["NodeOverlay"])
    weights = karpenter_objects.shared_weights(pools)
    return [
        *_refused((*invalid_pools, *invalid_classes, *invalid_overlays)),
        *(ObjectReport(ref=p.ref, differences=tuple(karpenter_objects.of_node_pool(p, weights))) for p in pools),
        *(ObjectReport(ref=c.ref, differences=tuple(karpenter_objects.of_node_class(c))) for c in classes),
        *_deployments(objects["Deployment"]),
    ]


def show(objects: Objects, *, as_json: bool) -> None:
    """Print the reports, or with ``as_json`` their JSON.

    Raises:
        UsageError: there is nothing of Karpenter's.
        CommandError: Tenon refuses objects.
    """
    listed = reports(objects)
    if not listed:
        raise UsageError("there is no NodePool, EC2NodeClass, NodeOverlay or Deployment of Karpenter")
    if as_json:
        echo(json_output.text("migrate karpenter", _output(listed)))
    else:
        _print(listed)
    refused = sum(report.is_refused for report in listed)
    if refused:
        raise CommandError(f"Tenon can't use {plural(refused, 'object')} as written; correct the fields above")


def _output(listed: Iterable[ObjectReport]) -> KarpenterMigration:
    objects = [
        KarpenterObject(
            kind=report.ref.kind,
            namespace=report.ref.namespace,
            name=report.ref.name,
            refused=report.is_refused,
            differences=list(report.differences),
        )
        for report in listed
    ]
    return KarpenterMigration(objects=objects, refused=sum(each.refused for each in objects))


def _print(listed: Iterable[ObjectReport]) -> None:
    console = terminal.console()
    for report in listed:
        console.print(
            str(report.ref), style=terminal.BAD if report.is_refused else "bold", markup=False, highlight=False
        )
        for line in report.differences or ("means the same",):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _refused(invalid: Iterable[InvalidObject]) -> Iterator[ObjectReport]:
    for each in invalid:
        yield ObjectReport(ref=each.ref, differences=tuple(each.problems), is_refused=True)


def _deployments(raw_objects: Sequence[Raw]) -> Iterator[ObjectReport]:
    for deployment in decoding.decode_objects(raw_objects, AutoscalerDeployment, []):
        if deployment.metadata.labels.get(_NAME_LABEL, deployment.name) == _NAME:
            namespace = deployment.metadata.namespace or "default"
            ref = ObjectRef(api_version="apps/v1", kind="Deployment", name=deployment.name, namespace=namespace)
            yield ObjectReport(ref=ref, differences=tuple(karpenter_settings.differences(deployment)))

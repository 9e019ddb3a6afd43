"""The options that choose a cluster, files or a kubeconfig with AWS credentials, and opening that cluster."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import UsageError
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.cluster.observed_cluster import ObservedCluster
    from shared.instance_types.catalog import InstanceTypeCatalog

DEFAULT_REGION = "us-east-1"

File = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Read the cluster from a file: output of `kubectl get … -o json` (or yaml) or manifests; may be gzipped; "
        "- is standard input; repeatable.",
    ),
]
Context = Annotated[str, typer.Option(metavar="NAME", help="The kubeconfig context; default: the current one.")]
Cluster = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The EKS cluster's name; default: from the context, as `aws eks update-kubeconfig` writes it.",
    ),
]
Region = Annotated[
    str,
    typer.Option(metavar="REGION", help="The cluster's AWS Region; default: from the context or the nodes' labels."),
]
Aws = Annotated[
    bool,
    typer.Option(
        "--aws", help="With --file: read instance types and prices from your AWS account, not from the local world."
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of namespaced objects.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextlib.contextmanager
def open_cluster(
    files: Sequence[Path] | None, *, context: str, cluster: str, region: str, aws: bool
) -> Iterator[ObservedCluster]:
    """The cluster that the options choose. Inside, AWS calls that don't read are refused.

    Raises:
        CommandError, ApiError, ClientError, BotoCoreError: the cluster can't be read.
    """
    from shared.base import runtime  # noqa: PLC0415 (slow to import, and --help doesn't need it)

    with runtime.gc_paused():
        if files:
            with progress("Reading the files"):
                from cli.cluster import manifest_reader  # noqa: PLC0415 (slow to import)

                observed = manifest_reader.read(
                    files,
                    now=runtime.current().now(),
                    catalog=lambda node_region: _catalog(region or node_region, aws=aws),
                )
            yield observed
            return
        if aws:
            raise UsageError("--aws needs --file; a live cluster's prices are always read from AWS")
        with progress("Reading the cluster"):
            from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
            from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)

            reference = resolve(ClusterReference(context=context, cluster=cluster, region=region))
        with live_reader.read_only_aws(reference):
            with progress("Reading the cluster"):
                observed = live_reader.read(live_reader.connect(reference), reference, now=runtime.current().now())
            yield observed


def _catalog(region: str, *, aws: bool) -> InstanceTypeCatalog:
    from cli.cluster import regions  # noqa: PLC0415 (next to its use)
    from shared.base import runtime  # noqa: PLC0415 (slow to import)

    now = runtime.current().now()
    if aws:
        from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
        from cli.cluster.cluster_reference import ClusterReference  # noqa: PLC0415 (next to its use)
        from shared.base import aws as clients  # noqa: PLC0415 (slow to import)
        from shared.instance_types.refresh import refresh  # noqa: PLC0415 (the same)

        if region:
            regions.existing(region)
        with live_reader.read_only_aws(ClusterReference(region=region)):
            at = region or os.environ.get("AWS_REGION", DEFAULT_REGION)
            return refresh(clients, None, requested=None, region=at, now=now).catalog
    from local.world import catalog_cache  # noqa: PLC0415 (slow to import)

    return catalog_cache.load_or_fetch(region=regions.known(region or DEFAULT_REGION), seed=0, now=now)

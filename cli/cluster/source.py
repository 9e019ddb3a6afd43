"""How `plan`, `explain`, `nodes` and `report` are told which cluster: files, or a kubeconfig and AWS credentials."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.cluster.observed_cluster import Facts
    from shared.instance_types.catalog import InstanceTypeCatalog

DEFAULT_REGION = "us-east-1"

File = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        help="Read the cluster from files instead: `kubectl get … -o json` (or yaml), manifests, gzipped or not; "
        "- is standard input; may be given again.",
    ),
]
Context = Annotated[str, typer.Option(help="The kubeconfig's context; the current one without.")]
Cluster = Annotated[
    str, typer.Option(help="The EKS cluster's name, where the context doesn't say (it does after update-kubeconfig).")
]
Region = Annotated[str, typer.Option(help="The cluster's AWS Region, where neither context nor nodes say.")]
Aws = Annotated[
    bool,
    typer.Option(
        "--aws", help="With files: take instance types and prices from your AWS account, not the local world's."
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The namespace of what has one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextlib.contextmanager
def facts(files: Sequence[Path] | None, *, context: str, cluster: str, region: str, aws: bool) -> Iterator[Facts]:
    """The cluster that was asked about; AWS is only ever read inside.

    Raises:
        CommandError, ApiError, ClientError, BotoCoreError: it can't be read.
    """
    from shared import runtime  # noqa: PLC0415 (slow to import, and --help doesn't need it)

    with _uncollected():
        if files:
            from cli.cluster import manifest_reader  # noqa: PLC0415 (slow to import)

            now = runtime.current().now()
            yield manifest_reader.read(files, now=now, catalog=lambda found: _catalog(region or found, aws=aws))
            return
        if aws:
            raise UsageError("--aws goes with files; a live cluster's prices are AWS's anyway")
        from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)

        where = live_reader.located(live_reader.Where(context=context, cluster=cluster, region=region))
        with live_reader.reading_only(where):
            yield live_reader.read(live_reader.connect(where), where, now=runtime.current().now())


def _catalog(region: str, *, aws: bool) -> InstanceTypeCatalog:
    from shared import runtime  # noqa: PLC0415 (slow to import)

    now = runtime.current().now()
    if aws:
        from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
        from shared.instance_types.refresh import refresh  # noqa: PLC0415 (the same)

        with live_reader.reading_only(live_reader.Where(region=region)):
            return refresh(
                None, asked=None, region=region or os.environ.get("AWS_REGION", DEFAULT_REGION), now=now
            ).catalog
    from local.world import catalog_cache  # noqa: PLC0415 (the same)

    return catalog_cache.load_or_fetch(region=region or DEFAULT_REGION, seed=0, now=now)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: a large cluster is a million objects, and none of them is garbage yet."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()

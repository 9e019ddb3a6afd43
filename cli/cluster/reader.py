"""Reads the cluster that the options choose: files, or a live cluster with AWS."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from cli.cluster import local_catalog, manifest_reader, price_origin, regions, source
from cli.cluster.cluster_reference import ClusterReference
from cli.errors import UsageError
from cli.progress import progress
from shared.base import aws as clients
from shared.base import runtime
from shared.instance_types.refresh import refresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.cluster.price_origin import PriceOrigin
    from shared.instance_types.catalog import InstanceTypeCatalog

DEFAULT_REGION = "us-east-1"


@contextlib.contextmanager
def open_cluster(
    files: Sequence[Path] | None, reference: ClusterReference, *, aws: bool = False
) -> Iterator[ObservedCluster]:
    """The cluster that the options choose. Inside, AWS calls that don't read are refused.

    Raises:
        CommandError, ApiError, ClientError, BotoCoreError: the cluster can't be read.
    """
    now = runtime.current().now
    with runtime.gc_paused():
        if files:
            with progress(source.reading(files)):
                observed = manifest_reader.read(
                    files, now=now(), catalog=lambda region: region_catalog(reference.region or region, aws=aws)
                )
            yield observed
            return
        if aws:
            raise UsageError("--aws needs --file; a live cluster's prices are always read from AWS")
        with progress(source.reading(files)):
            from cli.cluster import kubeconfig_context, live_reader  # noqa: PLC0415 (slow to import)

            reference = kubeconfig_context.resolve(reference)
        with live_reader.read_only_aws(reference):
            with progress(source.reading(files)):
                observed = live_reader.read(live_reader.connect(reference), reference, now=now())
            yield observed


def region_catalog(region: str, *, aws: bool = False) -> tuple[InstanceTypeCatalog, PriceOrigin]:
    """The Region's catalog of the account, or of the local world, and the origin of its prices."""
    now = runtime.now()
    if aws:
        from cli.cluster import live_reader  # noqa: PLC0415 (the same)

        if region:
            regions.existing(region)
        with live_reader.read_only_aws(ClusterReference(region=region)):
            at = region or os.environ.get("AWS_REGION", DEFAULT_REGION)
            fetched = refresh(clients, None, requested=None, region=at, now=now).catalog
        return fetched, price_origin.of_account(fetched)
    return local_catalog.read(regions.known(region or DEFAULT_REGION), now), price_origin.MADE_UP

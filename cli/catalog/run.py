"""Runs ``tenon catalog``: instance types of the local world or of an AWS account, filtered."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError

from cli import json_output, program
from cli.catalog import output
from cli.catalog.entries import entries
from cli.cluster import local_catalog, regions
from cli.errors import CommandError, UsageError
from cli.nearest import suggestion
from cli.printable import echo
from cli.progress import progress
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.base import aws
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.instance_types.provider import build_instance_types
from shared.instance_types.refresh import refresh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.catalog.entries import CatalogEntry
    from cli.catalog.filters import Filters
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.instance_types.instance_type import InstanceType

_LAST_AL2 = (1, 32)
_VERSION = re.compile(r"1\.\d+")


class Query(Struct, kw_only=True):
    """Instance types by name (all, if there is none), of a Region, for nodes of a Kubernetes version."""

    types: Sequence[str]
    kubernetes: str
    max_pods: int | None
    region: str | None
    aws: bool


def run(query: Query, filters: Filters, *, as_json: bool) -> None:
    """Show the instance types that meet the filters."""
    filters.check()
    shown = _entries(query, filters)
    if as_json:
        echo(json_output.text("catalog", shown))
    else:
        output.show(shown)


def _entries(query: Query, filters: Filters) -> list[CatalogEntry]:
    """The instance types of these names, or all, that meet the filters; prints how many there are."""
    if not _VERSION.fullmatch(query.kubernetes):
        raise typer.BadParameter(f'"{query.kubernetes}" is not of the form 1.33', param_hint="--kubernetes")
    try:
        with progress("Reading instance types"):
            region_catalog, source = (
                _of_account(query.region) if query.aws else _of_local_world(query.region or "us-east-1")
            )
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--region") from error
    known = {s.name for s in region_catalog.hardware}
    if unknown := sorted(set(query.types) - known):
        names = ", ".join(f'"{name}"' for name in unknown)
        nearest = suggestion(unknown[0], known)
        raise UsageError(f"{region_catalog.region} has no instance type {names}{nearest}; without TYPE all are shown")
    with progress("Computing what is allocatable"):
        every = entries(_types(region_catalog, query.kubernetes, query.max_pods))
        shown = [entry for entry in filters.of(every) if not query.types or entry.name in query.types]
    total = plural(len(every), "instance type")
    _print_error(f"{total if len(shown) == len(every) else f'{len(shown)} of {total}'} of {source}.")
    return shown


def _types(region_catalog: InstanceTypeCatalog, kubernetes: str, max_pods: int | None) -> tuple[InstanceType, ...]:
    major, minor = (int(part) for part in kubernetes.split("."))
    spec = EC2NodeClassSpec(ami_family="AL2" if (major, minor) <= _LAST_AL2 else "AL2023")
    kubelet = {} if max_pods is None else {"maxPods": max_pods}
    return build_instance_types(
        region_catalog, EC2NodeClass(spec=spec), kubelet, zones=region_catalog.zones, unavailable=(), only_offered=False
    )


def _of_local_world(region: str) -> tuple[InstanceTypeCatalog, str]:
    """The local world's catalog, fetched as the catalog function does, and cached."""
    region = regions.known(region)
    source = f"the local world in {region}; prices are made up"
    return local_catalog.read(region, datetime.now(UTC)), source


def _of_account(region: str | None) -> tuple[InstanceTypeCatalog, str]:
    if region is not None:
        regions.existing(region)
    try:
        boto3.setup_default_session(region_name=region)
        account = boto3.client("sts").get_caller_identity()["Account"]
        name = aws.ec2().meta.region_name
        refreshed = refresh(aws, None, requested=None, region=name, now=datetime.now(UTC))
    except (BotoCoreError, ClientError) as error:
        raise CommandError(f"AWS can't be called: {error}") from error
    for problem in refreshed.problems:
        _print_error(f"{program.name()} catalog: {problem}")
    estimated = "" if refreshed.catalog.price_source == "aws" else "; on-demand prices are estimates"
    return refreshed.catalog, f"account {account} in {name}{estimated}"


def _print_error(text: str) -> None:
    echo(text, err=True)

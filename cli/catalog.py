"""``tenon catalog``: instance types with capacity, labels and offerings, simulated or of an AWS account."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import UsageError
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.instance_types.catalog import InstanceTypeCatalog

USAGE, FAILED = 2, 1
_LAST_AL2 = (1, 32)
_MAX_DETAILED = 3
"""Up to so many instance types are shown in full; more as a table."""
_VERSION = re.compile(r"1\.\d+")


def catalog(
    types: Annotated[
        list[str] | None, typer.Argument(metavar="TYPE", help="Instance types, such as c7i.2xlarge; default: all.")
    ] = None,
    kubernetes: Annotated[
        str, typer.Option(metavar="1.N", help="The Kubernetes version; it determines the AMI family.")
    ] = "1.34",
    max_pods: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="The kubelet's maxPods; default: by network interfaces.")
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(metavar="REGION", help="The AWS Region; default: us-east-1, or your profile's with --aws."),
    ] = None,
    *,
    aws: Annotated[bool, typer.Option("--aws", help="Read from your AWS account instead of the local world.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show instance types: capacity, allocatable resources, labels, and offerings with prices.

    Without --aws they are those of the local world: EC2's descriptions with made-up prices; no credentials are needed.

    For example:

      tenon catalog c7i.2xlarge
      tenon catalog --kubernetes 1.33 --max-pods 110 --json
      tenon catalog m5.large --aws --region eu-central-1
    """
    if not _VERSION.fullmatch(kubernetes):
        raise typer.BadParameter(f'"{kubernetes}" is not of the form 1.33', param_hint="--kubernetes")
    try:
        with progress("Reading instance types"):
            region_catalog, source = _of_account(region) if aws else _of_local_world(region or "us-east-1")
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--region") from error
    unknown = sorted(set(types or ()) - {s.name for s in region_catalog.hardware})
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        _print_error(f"tenon catalog: {region_catalog.region} has no instance type {names}; without TYPE all are shown")
        raise typer.Exit(USAGE)
    from shared.plurals import plural  # noqa: PLC0415 (slow to import)

    _print_error(f"{plural(len(region_catalog.hardware), 'instance type')} of {source}.")
    with progress("Computing what is allocatable"):
        from cli.catalog_entries import entries  # noqa: PLC0415 (slow to import)

        catalog_entries = entries(
            t for t in _types(region_catalog, kubernetes, max_pods) if not types or t.name in types
        )
    if as_json:
        typer.echo(json.dumps(catalog_entries))
    elif len(catalog_entries) <= _MAX_DETAILED:
        _details(catalog_entries)
    else:
        _table(catalog_entries)


def _types(region_catalog: InstanceTypeCatalog, kubernetes: str, max_pods: int | None) -> Any:  # noqa: ANN401 (a tuple of InstanceType, whose module is slow to import)
    from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec, Kubelet  # noqa: PLC0415 (slow to import)
    from shared.instance_types.provider import build_instance_types  # noqa: PLC0415 (the same)

    major, minor = (int(part) for part in kubernetes.split("."))
    spec = EC2NodeClassSpec(ami_family="AL2" if (major, minor) <= _LAST_AL2 else "AL2023")
    kubelet = Kubelet(max_pods=max_pods)
    return build_instance_types(
        region_catalog, EC2NodeClass(spec=spec), kubelet, zones=region_catalog.zones, unavailable=(), only_offered=False
    )


def _of_local_world(region: str) -> tuple[InstanceTypeCatalog, str]:
    """The local world's catalog, fetched as the catalog function does, and cached."""
    from datetime import UTC, datetime  # noqa: PLC0415 (used here alone)

    from cli.cluster import regions  # noqa: PLC0415 (beside its use)
    from local.world import catalog_cache  # noqa: PLC0415 (slow to import)

    region = regions.known(region)
    source = f"the local world in {region}; prices are made up"
    return catalog_cache.load_or_fetch(region=region, seed=0, now=datetime.now(UTC)), source


def _of_account(region: str | None) -> tuple[InstanceTypeCatalog, str]:
    from datetime import UTC, datetime  # noqa: PLC0415 (used here alone)

    import boto3  # noqa: PLC0415 (slow to import)
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (the same)

    from cli.cluster import regions  # noqa: PLC0415 (beside its use)
    from shared import aws  # noqa: PLC0415 (the same)
    from shared.instance_types.refresh import refresh  # noqa: PLC0415 (the same)

    if region is not None:
        regions.existing(region)
    try:
        boto3.setup_default_session(region_name=region)
        account = boto3.client("sts").get_caller_identity()["Account"]
        name = aws.ec2().meta.region_name
        refreshed = refresh(None, requested=None, region=name, now=datetime.now(UTC))
    except (BotoCoreError, ClientError) as error:
        _print_error(f"tenon catalog: AWS can't be called: {error}")
        raise typer.Exit(FAILED) from error
    for problem in refreshed.problems:
        _print_error(f"tenon catalog: {problem}")
    estimated = "" if refreshed.catalog.price_source == "aws" else "; on-demand prices are estimates"
    return refreshed.catalog, f"account {account} in {name}{estimated}"


def _print_error(text: str) -> None:
    typer.echo(text, err=True)


def _cheapest(entry: dict[str, Any], capacity_type: str) -> str:
    prices = [(o["price"], o["zone"]) for o in entry["offerings"] if o["capacityType"] == capacity_type]
    return f"{min(prices)[0]:.4f}" if prices else "-"


def _extended_resources(amounts: dict[str, str]) -> str:
    usual = {"cpu", "memory", "pods", "ephemeral-storage"}
    return ", ".join(f"{name.rpartition('/')[2]} {amounts[name]}" for name in sorted(amounts) if name not in usual)


def _table(entries: Sequence[dict[str, Any]]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import, and --json doesn't need it)

    amounts = ("cpu", "memory", "pods", "storage")
    prices = ("on-demand", "spot from")
    table = terminal.table("type", *amounts, "other", *prices, right=(*amounts, *prices), optional=("storage", "other"))
    for entry in entries:
        allocatable = entry["allocatable"]
        table.add_row(
            "",
            entry["name"],
            *(allocatable[name] for name in ("cpu", "memory", "pods", "ephemeral-storage")),
            _extended_resources(allocatable),
            _cheapest(entry, "on-demand"),
            _cheapest(entry, "spot"),
        )
    console = terminal.console()
    console.print(terminal.title("Allocatable resources, and USD per hour"))
    console.print(table)


def _details(entries: Sequence[dict[str, Any]]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import, and --json doesn't need it)

    console = terminal.console()
    for entry in entries:
        console.print()
        console.print(terminal.title(entry["name"]))
        columns = ("capacity", "overhead", "allocatable")
        amounts = terminal.table("resource", *columns, right=columns)
        for name in entry["capacity"]:
            amounts.add_row("", name, *(str(entry[column].get(name, "-")) for column in columns))
        console.print(amounts)
        console.print()
        offered = terminal.table("zone", "capacity", "$/h", "available", right=("$/h",))
        for o in entry["offerings"]:
            kind = terminal.capacity(o["capacityType"])
            offered.add_row("", o["zone"], kind, f"{o['price']:.4f}", "yes" if o["available"] else "no")
        console.print(offered)
        console.print()
        for name, value in entry["labels"].items():
            console.print(f"  {name}={value}", markup=False, soft_wrap=True)

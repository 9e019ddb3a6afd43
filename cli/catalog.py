"""``tenon catalog``: instance types with capacity, labels and offerings, simulated or of an AWS account."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import program
from cli.errors import CommandError, UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.catalog_entries import CatalogEntry
    from cli.catalog_filters import Filters
    from shared.instance_types.catalog import InstanceTypeCatalog

_LAST_AL2 = (1, 32)
_MAX_DETAILED = 3
"""Up to this many instance types are shown in full; more as a table."""
_VERSION = re.compile(r"1\.\d+")
_SORTS = ("name", "price", "cpu", "memory", "price-per-cpu")
Values = list[str] | None
"""Of options that take values separated by commas, and may be repeated."""


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*_SORTS, *(f"-{s}" for s in _SORTS)) if s.startswith(incomplete)]


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
    family: Annotated[Values, typer.Option(metavar="FAMILIES", help="Only these families, such as m7i,c7g.")] = None,
    arch: Annotated[
        Values, typer.Option(metavar="ARCHITECTURE", help="Only this architecture: amd64 or arm64.")
    ] = None,
    zone: Annotated[
        Values, typer.Option(metavar="ZONES", help="Only what is offered in these zones, such as us-east-1a.")
    ] = None,
    capacity_type: Annotated[
        Values, typer.Option(metavar="TYPE", help="Only what is offered as on-demand, spot or reserved capacity.")
    ] = None,
    max_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Only what is offered for at most that many USD per hour.")
    ] = None,
    min_cpu: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=0, help="Only types with at least that many vCPUs.")
    ] = None,
    max_cpu: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=0, help="Only types with at most that many vCPUs.")
    ] = None,
    min_memory: Annotated[
        str, typer.Option(metavar="QUANTITY", help="Only types with at least that much memory, such as 16Gi.")
    ] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Only types with GPUs.")] = False,
    gpu_name: Annotated[
        Values, typer.Option(metavar="NAMES", help="Only types with these GPUs, such as t4,a10g.")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort-by",
            metavar="COLUMN",
            help=f"Sort by {', '.join(_SORTS)}; a leading - reverses the order.",
            autocompletion=_complete_sort,
        ),
    ] = "name",
    aws: Annotated[bool, typer.Option("--aws", help="Read from your AWS account instead of the local world.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show instance types: capacity, allocatable resources, labels, and offerings with prices.

    Without --aws they are those of the local world: EC2's descriptions with made-up prices; no credentials are needed.

    Filters take several values separated by commas. Only offerings that meet them are shown.

    For example:

      tenon catalog c7i.2xlarge
      tenon catalog --kubernetes 1.33 --max-pods 110 --json
      tenon catalog m5.large --aws --region eu-central-1
      tenon catalog --arch arm64 --min-cpu 4 --capacity-type spot --sort-by price
      tenon catalog --gpu --zone us-east-1a --max-price 2
    """
    with errors_as_one_line("catalog"):
        from cli.catalog_filters import Filters, memory  # noqa: PLC0415 (slow to import)
        from cli.nearest import split  # noqa: PLC0415 (next to its use)

        filters = Filters(
            families=split(family),
            architectures=split(arch),
            zones=split(zone),
            capacity_types=split(capacity_type),
            gpu_names=split(gpu_name),
            gpu=gpu,
            max_price=max_price,
            min_cpu=min_cpu,
            max_cpu=max_cpu,
            min_memory=memory(min_memory),
            sort=sort,
        )
        filters.check()
        shown = _entries(types or (), filters, kubernetes=kubernetes, max_pods=max_pods, region=region, aws=aws)
        if as_json:
            from cli import json_output  # noqa: PLC0415 (slow to import)

            typer.echo(json_output.text("catalog", shown))
        elif len(shown) <= _MAX_DETAILED:
            _details(shown)
        else:
            _table(shown)


def _entries(
    types: Sequence[str],
    filters: Filters,
    *,
    kubernetes: str,
    max_pods: int | None,
    region: str | None,
    aws: bool,
) -> list[CatalogEntry]:
    """The instance types of these names, or all, that meet the filters; prints how many there are."""
    from cli.nearest import suggestion  # noqa: PLC0415 (next to its use)
    from shared.base.plurals import plural  # noqa: PLC0415 (slow to import)

    if not _VERSION.fullmatch(kubernetes):
        raise typer.BadParameter(f'"{kubernetes}" is not of the form 1.33', param_hint="--kubernetes")
    try:
        with progress("Reading instance types"):
            region_catalog, source = _of_account(region) if aws else _of_local_world(region or "us-east-1")
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--region") from error
    known = {s.name for s in region_catalog.hardware}
    if unknown := sorted(set(types) - known):
        names = ", ".join(f'"{name}"' for name in unknown)
        nearest = suggestion(unknown[0], known)
        raise UsageError(f"{region_catalog.region} has no instance type {names}{nearest}; without TYPE all are shown")
    with progress("Computing what is allocatable"):
        from cli.catalog_entries import entries  # noqa: PLC0415 (slow to import)

        every = entries(_types(region_catalog, kubernetes, max_pods))
        shown = [entry for entry in filters.of(every) if not types or entry.name in types]
    total = plural(len(every), "instance type")
    _print_error(f"{total if len(shown) == len(every) else f'{len(shown)} of {total}'} of {source}.")
    return shown


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

    from cli.cluster import regions  # noqa: PLC0415 (next to its use)
    from local.world import catalog_cache  # noqa: PLC0415 (slow to import)

    region = regions.known(region)
    source = f"the local world in {region}; prices are made up"
    return catalog_cache.load_or_fetch(region=region, seed=0, now=datetime.now(UTC)), source


def _of_account(region: str | None) -> tuple[InstanceTypeCatalog, str]:
    from datetime import UTC, datetime  # noqa: PLC0415 (used here alone)

    import boto3  # noqa: PLC0415 (slow to import)
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (the same)

    from cli.cluster import regions  # noqa: PLC0415 (next to its use)
    from shared.base import aws  # noqa: PLC0415 (the same)
    from shared.instance_types.refresh import refresh  # noqa: PLC0415 (the same)

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
    typer.echo(text, err=True)


def _cheapest(entry: CatalogEntry, capacity_type: str) -> str:
    prices = [o.price for o in entry.offerings if o.capacity_type == capacity_type]
    return f"{min(prices):.4f}" if prices else "-"


def _extended_resources(amounts: dict[str, str]) -> str:
    usual = {"cpu", "memory", "pods", "ephemeral-storage"}
    return ", ".join(f"{name.rpartition('/')[2]} {amounts[name]}" for name in sorted(amounts) if name not in usual)


def _table(entries: Sequence[CatalogEntry]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import, and --json doesn't need it)

    amounts = ("cpu", "memory", "pods", "storage")
    prices = ("on-demand", "spot from")
    table = terminal.table("type", *amounts, "other", *prices, right=(*amounts, *prices), optional=("storage", "other"))
    for entry in entries:
        allocatable = entry.allocatable
        table.add_row(
            "",
            entry.name,
            *(allocatable[name] for name in ("cpu", "memory", "pods", "ephemeral-storage")),
            _extended_resources(allocatable),
            _cheapest(entry, "on-demand"),
            _cheapest(entry, "spot"),
        )
    console = terminal.console()
    console.print(terminal.title("Allocatable resources, and USD per hour"))
    console.print(table)


def _details(entries: Sequence[CatalogEntry]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import, and --json doesn't need it)

    console = terminal.console()
    for entry in entries:
        console.print()
        console.print(terminal.title(entry.name))
        columns = ("capacity", "overhead", "allocatable")
        amounts = terminal.table("resource", *columns, right=columns)
        for name in entry.capacity:
            cells = (amount.get(name, "-") for amount in (entry.capacity, entry.overhead, entry.allocatable))
            amounts.add_row("", name, *cells)
        console.print(amounts)
        console.print()
        offered = terminal.table("zone", "capacity", "$/h", "available", right=("$/h",))
        for o in entry.offerings:
            kind = terminal.capacity(o.capacity_type)
            offered.add_row("", o.zone, kind, f"{o.price:.4f}", "yes" if o.available else "no")
        console.print(offered)
        console.print()
        for name, value in entry.labels.items():
            console.print(f"  {name}={value}", markup=False, soft_wrap=True)

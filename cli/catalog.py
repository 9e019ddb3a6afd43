"""``tenon catalog``: instance types as Tenon sees them, of the local world or of a real account."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.instance_types.catalog import InstanceTypeCatalog

USAGE, FAILED = 2, 1
_LAST_AL2 = (1, 32)
_DETAILED = 3
"""So many types are shown with all that is known of them; more as a table."""
_VERSION = re.compile(r"1\.\d+")


class UnknownRegionError(LookupError):
    """There is no such Region."""


def catalog(
    types: Annotated[
        list[str] | None, typer.Argument(metavar="[TYPE]...", help="Instance types, such as c7i.2xlarge; all without.")
    ] = None,
    kubernetes: Annotated[
        str, typer.Option(metavar="1.N", help="The cluster's version; it decides the AMI family.")
    ] = "1.34",
    max_pods: Annotated[
        int | None, typer.Option(min=1, help="The kubelet's maxPods; by network interfaces without.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="The AWS Region; us-east-1, or your profile's with --aws.")] = None,
    *,
    aws: Annotated[
        bool, typer.Option("--aws", help="Ask the AWS account of your credentials, not the local world.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list as JSON.")] = False,
) -> None:
    """Show instance types: capacity, what pods get of it, labels, and offerings with prices.

    Without --aws they are those of the local world: EC2's own descriptions with believable prices, no credentials.

    For example:

      tenon catalog c7i.2xlarge

      tenon catalog --kubernetes 1.33 --max-pods 110 --json

      tenon catalog m5.large --aws --region eu-central-1
    """
    from cli.catalog_entries import entries  # noqa: PLC0415 (slow to import)

    if not _VERSION.fullmatch(kubernetes):
        raise typer.BadParameter(f'"{kubernetes}" is not of the form 1.33', param_hint="--kubernetes")
    try:
        raw, source = _of_account(region) if aws else _of_local_world(region or "us-east-1")
    except UnknownRegionError as error:
        raise typer.BadParameter(str(error), param_hint="--region") from error
    _say(f"{len(raw.hardware)} instance types of {source}.")
    unknown = sorted(set(types or ()) - {s.name for s in raw.hardware})
    if unknown:
        _say(f"tenon catalog: {raw.region} has no instance type named {', '.join(unknown)}")
        raise typer.Exit(USAGE)
    built = entries(t for t in _types(raw, kubernetes, max_pods) if not types or t.name in types)
    if as_json:
        typer.echo(json.dumps(built))
    elif len(built) <= _DETAILED:
        _details(built)
    else:
        _table(built)


def _types(raw: InstanceTypeCatalog, kubernetes: str, max_pods: int | None) -> Any:  # noqa: ANN401 (a tuple of InstanceType, whose module is slow to import)
    from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec, Kubelet  # noqa: PLC0415 (slow to import)
    from shared.instance_types.provider import build_instance_types  # noqa: PLC0415 (the same)

    major, minor = (int(part) for part in kubernetes.split("."))
    spec = EC2NodeClassSpec(ami_family="AL2" if (major, minor) <= _LAST_AL2 else "AL2023")
    kubelet = Kubelet(max_pods=max_pods)
    return build_instance_types(
        raw, EC2NodeClass(spec=spec), kubelet, zones=raw.zones, unavailable=(), only_offered=False
    )


def _of_local_world(region: str) -> tuple[InstanceTypeCatalog, str]:
    """The catalog of the local world, fetched from its AWS as the catalog function would, and kept for next time."""
    from datetime import UTC, datetime  # noqa: PLC0415 (used here alone)

    import boto3  # noqa: PLC0415 (slow to import)

    from local.world import catalog_cache  # noqa: PLC0415 (slow to import)

    known = boto3.session.Session().get_available_regions("ec2")
    if region not in known:
        raise UnknownRegionError(f'"{region}" is no AWS Region; there are {", ".join(sorted(known))}')
    source = f"the local world in {region}; prices are made up, in believable proportion"
    return catalog_cache.load_or_fetch(region=region, seed=0, now=datetime.now(UTC)), source


def _of_account(region: str | None) -> tuple[InstanceTypeCatalog, str]:
    from datetime import UTC, datetime  # noqa: PLC0415 (used here alone)

    import boto3  # noqa: PLC0415 (slow to import)
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (the same)

    from shared import aws  # noqa: PLC0415 (the same)
    from shared.instance_types.refresh import refresh  # noqa: PLC0415 (the same)

    try:
        boto3.setup_default_session(region_name=region)
        account = boto3.client("sts").get_caller_identity()["Account"]
        name = aws.ec2().meta.region_name
        refreshed = refresh(None, asked=None, region=name, now=datetime.now(UTC))
    except (BotoCoreError, ClientError) as error:
        _say(f"tenon catalog: AWS can't be asked: {error}")
        raise typer.Exit(FAILED) from error
    for problem in refreshed.problems:
        _say(f"tenon catalog: {problem}")
    estimated = "" if refreshed.catalog.price_source == "aws" else "; on-demand prices are estimates"
    return refreshed.catalog, f"account {account} in {name}{estimated}"


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _cheapest(entry: dict[str, Any], capacity_type: str) -> str:
    prices = [(o["price"], o["zone"]) for o in entry["offerings"] if o["capacityType"] == capacity_type]
    return f"{min(prices)[0]:.4f}" if prices else "-"


def _others(amounts: dict[str, str]) -> str:
    usual = {"cpu", "memory", "pods", "ephemeral-storage"}
    return ", ".join(f"{name.rpartition('/')[2]} {amounts[name]}" for name in sorted(amounts) if name not in usual)


def _table(built: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console  # noqa: PLC0415 (slow to import, and --json doesn't need it)
    from rich.table import Table  # noqa: PLC0415 (the same)

    table = Table("Type", "cpu", "memory", "pods", "storage", "besides", title="What pods get, and USD per hour")
    for heading in ("on demand", "spot from"):
        table.add_column(heading, justify="right")
    for entry in built:
        room = entry["allocatable"]
        table.add_row(
            entry["name"],
            *(room[name] for name in ("cpu", "memory", "pods", "ephemeral-storage")),
            _others(room),
            _cheapest(entry, "on-demand"),
            _cheapest(entry, "spot"),
        )
    console = Console()
    console.width = console.width if console.is_terminal else 140
    console.print(table)


def _details(built: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console  # noqa: PLC0415 (slow to import, and --json doesn't need it)
    from rich.table import Table  # noqa: PLC0415 (the same)

    console = Console()
    console.width = console.width if console.is_terminal else 140
    for entry in built:
        console.print(f"\n[bold]{entry['name']}[/bold]", highlight=False)
        amounts = Table("", "capacity", "overhead", "allocatable")
        for name in entry["capacity"]:
            amounts.add_row(name, *(str(entry[k].get(name, "-")) for k in ("capacity", "overhead", "allocatable")))
        console.print(amounts)
        offered = Table("zone", "capacity type", "USD/h", "available")
        for o in entry["offerings"]:
            offered.add_row(o["zone"], o["capacityType"], f"{o['price']:.4f}", "yes" if o["available"] else "no")
        console.print(offered)
        for name, value in entry["labels"].items():
            console.print(f"  {name}={value}", markup=False, highlight=False, soft_wrap=True)

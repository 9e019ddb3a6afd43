"""``tenon catalog``: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress

SORTS = ("name", "price", "cpu", "memory", "price-per-cpu")
Values = list[str] | None
"""Of options that take values separated by commas, and may be repeated."""


def _complete_sort(incomplete: str) -> list[str]:
    return [s for s in (*SORTS, *(f"-{s}" for s in SORTS)) if s.startswith(incomplete)]


Types = Annotated[
    list[str] | None, typer.Argument(metavar="TYPE", help="Instance types, such as c7i.2xlarge; default: all.")
]
Kubernetes = Annotated[str, typer.Option(metavar="1.N", help="The Kubernetes version; it determines the AMI family.")]
MaxPods = Annotated[
    int | None, typer.Option(metavar="NUMBER", min=1, help="The kubelet's maxPods; default: by network interfaces.")
]
Region = Annotated[
    str | None, typer.Option(metavar="REGION", help="The AWS Region; default: us-east-1, or your profile's with --aws.")
]
Families = Annotated[Values, typer.Option(metavar="FAMILIES", help="Only these families, such as m7i,c7g.")]
Architectures = Annotated[Values, typer.Option(metavar="ARCHITECTURE", help="Only this architecture: amd64 or arm64.")]
Zones = Annotated[
    Values, typer.Option(metavar="ZONES", help="Only what is offered in these zones, such as us-east-1a.")
]
CapacityTypes = Annotated[
    Values, typer.Option(metavar="TYPE", help="Only what is offered as on-demand, spot or reserved capacity.")
]
MaxPrice = Annotated[
    float | None, typer.Option(metavar="USD", help="Only what is offered for at most that many USD per hour.")
]
MinCpu = Annotated[int | None, typer.Option(metavar="NUMBER", min=0, help="Only types with at least that many vCPUs.")]
MaxCpu = Annotated[int | None, typer.Option(metavar="NUMBER", min=0, help="Only types with at most that many vCPUs.")]
MinMemory = Annotated[
    str, typer.Option(metavar="QUANTITY", help="Only types with at least that much memory, such as 16Gi.")
]
Gpu = Annotated[bool, typer.Option("--gpu", help="Only types with GPUs.")]
GpuNames = Annotated[Values, typer.Option(metavar="NAMES", help="Only types with these GPUs, such as t4,a10g.")]
Sort = Annotated[
    str,
    typer.Option(
        "--sort-by",
        metavar="COLUMN",
        help=f"Sort by {', '.join(SORTS)}; a leading - reverses the order.",
        autocompletion=_complete_sort,
    ),
]
Aws = Annotated[bool, typer.Option("--aws", help="Read from your AWS account instead of the local world.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@examples(
    "tenon catalog c7i.2xlarge",
    "tenon catalog --kubernetes 1.33 --max-pods 110 --json",
    "tenon catalog m5.large --aws --region eu-central-1",
    "tenon catalog --arch arm64 --min-cpu 4 --capacity-type spot --sort-by price",
    "tenon catalog --gpu --zone us-east-1a --max-price 2",
)
def catalog(
    types: Types = None,
    kubernetes: Kubernetes = "1.34",
    max_pods: MaxPods = None,
    region: Region = None,
    *,
    family: Families = None,
    arch: Architectures = None,
    zone: Zones = None,
    capacity_type: CapacityTypes = None,
    max_price: MaxPrice = None,
    min_cpu: MinCpu = None,
    max_cpu: MaxCpu = None,
    min_memory: MinMemory = "",
    gpu: Gpu = False,
    gpu_name: GpuNames = None,
    sort: Sort = "name",
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Show instance types: capacity, allocatable resources, labels, and offerings with prices.

    Without --aws they are those of the local world: EC2's descriptions with made-up prices; no credentials are needed.

    Filters take several values separated by commas. Only offerings that meet them are shown.
    """
    with errors_as_one_line("catalog"):
        with progress("Reading instance types"):
            from cli.catalog.filters import Filters, memory
            from cli.catalog.run import Query, run
            from cli.nearest import split

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
        query = Query(types=types or (), kubernetes=kubernetes, max_pods=max_pods, region=region, aws=aws)
        run(query, filters, as_json=as_json)

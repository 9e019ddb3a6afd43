"""The page of instance types: what nodes have for pods, and the labels that pods and NodePools select by.

The types are those that the local world's EC2 describes in us-east-1. Prices are left out: they differ by Region and
hour.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli.catalog.entries import entries
from docs.markdown import complete, table
from local.world import catalog_cache
from shared.api import labels
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.instance_types.provider import build_instance_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.catalog.entries import CatalogEntry

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_PREFIX = labels.INSTANCE_PREFIX
_COMMON = "c7i.2xlarge"
"""The type whose labels are the examples, where it has them."""
_PLAIN = frozenset({"cpu", "memory", "pods", "ephemeral-storage", "vpc.amazonaws.com/pod-eni"})

MEANINGS = {
    labels.INSTANCE_TYPE: "The instance type.",
    labels.ARCH: "The architecture: amd64 or arm64.",
    labels.OS: "The operating system: linux or windows.",
    labels.ZONE: "The zone.",
    labels.ZONE_ID: "The zone's id, the same in all accounts.",
    labels.REGION: "The Region.",
    labels.CAPACITY_TYPE: "spot, on-demand or reserved.",
    labels.NODEPOOL: "The NodePool.",
    labels.NODECLASS: "The node class.",
    labels.WINDOWS_BUILD: "The build of Windows.",
    f"{_PREFIX}category": "The letters before the generation.",
    f"{_PREFIX}family": "The part before the period.",
    f"{_PREFIX}generation": "The number in the family's name.",
    f"{_PREFIX}size": "The part after the period.",
    f"{_PREFIX}cpu": "vCPUs.",
    f"{_PREFIX}cpu-manufacturer": "aws, intel or amd.",
    f"{_PREFIX}cpu-sustained-clock-speed-mhz": "The sustained clock speed in MHz.",
    f"{_PREFIX}memory": "Memory in MiB.",
    f"{_PREFIX}ebs-bandwidth": "The highest bandwidth to EBS in Mbit/s.",
    f"{_PREFIX}network-bandwidth": "The baseline network bandwidth in Mbit/s.",
    f"{_PREFIX}hypervisor": "nitro, xen, or empty for bare metal.",
    f"{_PREFIX}encryption-in-transit-supported": "Whether traffic between instances is encrypted.",
    f"{_PREFIX}capability-flex": "Whether it is a flex type.",
    f"{_PREFIX}local-nvme": "GiB of local NVMe disks.",
    f"{_PREFIX}tenancy": "default or dedicated.",
    f"{_PREFIX}gpu-name": "The GPU's name.",
    f"{_PREFIX}gpu-manufacturer": "The GPU's manufacturer.",
    f"{_PREFIX}gpu-count": "The number of GPUs.",
    f"{_PREFIX}gpu-memory": "The memory of one GPU in MiB.",
    f"{_PREFIX}accelerator-name": "The accelerator's name.",
    f"{_PREFIX}accelerator-manufacturer": "The accelerator's manufacturer.",
    f"{_PREFIX}accelerator-count": "The number of accelerators.",
}


def page() -> str:
    """The page, in Markdown."""
    types = _entries()
    families: dict[str, list[CatalogEntry]] = defaultdict(list)
    for entry in types:
        families[entry.labels[f"{_PREFIX}category"]].append(entry)
    lines = [
        "# Instance types",
        "",
        (
            f"{len(types):,} instance types of us-east-1, with what a node has for pods: capacity less what the "
            "kubelet and the system reserve, with AL2023 and the default kubelet settings (`tenon catalog TYPE` has "
            "more, `--aws` what your account is offered now, with prices). DaemonSets take their part of it."
        ),
        "",
        "## Labels",
        "",
        (
            "Pods select by them, and NodePools' requirements limit them. Labels of the NodePool's template, and those "
            "that its requirements name, are on its nodes as well."
        ),
        "",
        *table(("label", "meaning", "for example"), _label_rows(types)),
    ]
    for category, members in sorted(families.items()):
        head = ("type", "vCPU", "memory", "architecture", "pods", "CPU for pods", "memory for pods", "devices")
        lines += ["", f"## Category {category}", "", *table(head, (_row(entry) for entry in members))]
    return "\n".join(lines)


def _entries() -> list[CatalogEntry]:
    catalog = catalog_cache.load_or_fetch(region="us-east-1", seed=0, now=_NOW)
    node_class = EC2NodeClass(spec=EC2NodeClassSpec(ami_family="AL2023"))
    built = build_instance_types(catalog, node_class, None, zones=catalog.zones, unavailable=(), only_offered=False)
    return sorted(entries(built), key=_order)


def _order(entry: CatalogEntry) -> tuple[str, int, int, str]:
    of = entry.labels
    return of[f"{_PREFIX}family"], int(of[f"{_PREFIX}cpu"]), int(of[f"{_PREFIX}memory"]), entry.name


def _label_rows(types: Sequence[CatalogEntry]) -> list[tuple[str, str, str]]:
    common = [entry for entry in types if entry.name == _COMMON]
    examples = {key: value for entry in (*types, *common) for key, value in entry.labels.items() if value}
    complete("label", set(examples) - set(MEANINGS), set())
    return [(f"`{key}`", meaning, f"`{examples[key]}`" if key in examples else "") for key, meaning in MEANINGS.items()]


def _row(entry: CatalogEntry) -> tuple[str, ...]:
    of, allocatable = entry.labels, entry.allocatable
    devices = ", ".join(f"{count} {name}" for name, count in sorted(allocatable.items()) if name not in _PLAIN)
    memory = f"{int(of[f'{_PREFIX}memory']) / 1024:.4g} GiB"
    return (
        entry.name,
        of[f"{_PREFIX}cpu"],
        memory,
        of[labels.ARCH],
        allocatable["pods"],
        allocatable["cpu"],
        allocatable["memory"],
        devices,
    )

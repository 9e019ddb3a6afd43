"""What EC2's API doesn't tell of instance types: ``shared/instance_types/hardware.json``, by Karpenter's tables.

Karpenter's AWS provider publishes the limits of the VPC resource controller and the bandwidth of EC2's user guide, both
under the Apache License 2.0; only the figures are kept.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docs.fields.go_modules import downloaded

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROVIDER = "github.com/aws/karpenter-provider-aws"
_TABLES = "pkg/providers/instancetype"
_FILE = Path(__file__).parents[2] / "shared" / "instance_types" / "hardware.json"
_LIMITS = re.compile(r'^\t"(?P<name>[^"]+)": \{\n(?P<fields>.*?)^\t\},', re.MULTILINE | re.DOTALL)
_TRUNKING = re.compile(r"IsTrunkingCompatible:\s+true,")
_BRANCHES = re.compile(r"BranchInterface:\s+(\d+),")
_BANDWIDTH = re.compile(r'^\t+"(?P<name>[^"]+)":\s+(?P<mbps>\d+),', re.MULTILINE)
_VAGUE = re.compile(r"^\t+// (?P<name>\S+) has vague bandwidth", re.MULTILINE)


def save(minor: str) -> None:
    """Write the file by the newest release of a minor version of Karpenter."""
    release, folder = downloaded(_PROVIDER, minor)
    limits, bandwidth = (
        (folder / _TABLES / f"zz_generated.{name}.go").read_text(encoding="utf-8")
        for name in ("vpclimits", "bandwidth")
    )
    clock_mhz = json.loads(_FILE.read_bytes())["clock_mhz"]
    source = f"{_TABLES} of {_PROVIDER} {release}: branch interfaces of the VPC resource controller, baseline Mbps"
    _FILE.write_text(_text(source, clock_mhz, types(limits, bandwidth)), encoding="utf-8")


def types(limits: str, bandwidth: str) -> dict[str, tuple[int, int | None]]:
    r"""Branch interfaces and baseline bandwidth (Mbps) by type, of the two Go files.

    The bandwidth is 0 where AWS documents none, and None where the table doesn't know the type.

    >>> types('\t"a.large": {\n\tIsTrunkingCompatible: true,\n\tBranchInterface: 9,\n\t},', '\t"a.large": 750,')
    {'a.large': (9, 750)}
    """
    branches = {m["name"]: _branch_interfaces(m["fields"]) for m in _LIMITS.finditer(limits)}
    mbps: dict[str, int] = dict.fromkeys((m["name"] for m in _VAGUE.finditer(bandwidth)), 0)
    mbps |= {m["name"]: int(m["mbps"]) for m in _BANDWIDTH.finditer(bandwidth)}
    return {name: (branches.get(name, 0), mbps.get(name)) for name in sorted(branches.keys() | mbps.keys())}


def _branch_interfaces(fields: str) -> int:
    branches = _BRANCHES.search(fields) if _TRUNKING.search(fields) else None
    return int(branches[1]) if branches is not None else 0


def _text(source: str, clock_mhz: Mapping[str, int], of_types: Mapping[str, tuple[int, int | None]]) -> str:
    """The file: a line for each type, so that a change shows the types that it is about."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in of_types.items())
    head = f' "source": {json.dumps(source)},\n "clock_mhz": {json.dumps(clock_mhz)},\n'
    return f'{{\n{head} "types": {{\n{lines}\n }}\n}}\n'

"""Facts of instance types that DescribeInstanceTypes doesn't give: branch interfaces and baseline bandwidth.

They are carried as data (``limits.json``, which names its source). A type that is newer than the table has no branch
interfaces, and the bandwidth that EC2 says.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec


class _Limits(msgspec.Struct, frozen=True):
    clock_mhz: dict[str, int]
    types: dict[str, tuple[int, int]]


@functools.cache
def _limits() -> _Limits:
    return msgspec.json.decode((Path(__file__).parent / "limits.json").read_bytes(), type=_Limits)


def branch_interfaces(instance_type: str) -> int:
    """How many branch interfaces (``vpc.amazonaws.com/pod-eni``) a node of the type can have."""
    return _limits().types.get(instance_type, (0, 0))[0]


def network_mbps(instance_type: str, *, described: float) -> int:
    """The baseline bandwidth, Mbps; 0 where AWS documents none. ``described`` is what EC2 says, for newer types."""
    known = _limits().types.get(instance_type)
    return round(described) if known is None else known[1]


def clock_mhz(instance_type: str, *, described: float) -> int:
    """The sustained clock speed, MHz; for some families Karpenter's reference differs from what EC2 says."""
    return _limits().clock_mhz.get(instance_type.partition(".")[0], round(described))

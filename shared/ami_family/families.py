"""AMI families: which images a class means, and what differs between them for the arithmetic.

Facts: Karpenter's AMI families (docs/facts/karpenter.md section 4). A family decides the root device and its default
size, and which kubelet settings its bootstrap honours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api import labels

if TYPE_CHECKING:
    from shared.api.nodeclass import EC2NodeClassSpec

AL2 = "AL2"
AL2023 = "AL2023"
BOTTLEROCKET = "Bottlerocket"
CUSTOM = "Custom"
GIB = 2**30

LAST_AL2 = (1, 32)
"""The last Kubernetes version that AWS publishes AL2 images for."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume that an instance has if the class says nothing; size in GiB."""

    device: str
    size_gib: int


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an AMI family does; the flags say whether its bootstrap honours the kubelet's setting.

    ``ephemeral_device`` holds the pods' files; empty: unknown. ``pods_from_interfaces``: how many pods a node takes
    follows from its network interfaces, else it is 110. ``reserves_by_interfaces``: memory is reserved for as many pods
    as the interfaces allow, whatever maxPods says.
    """

    name: str
    os: str = "linux"
    volumes: tuple[Volume, ...]
    ephemeral_device: str
    pods_from_interfaces: bool = True
    reserves_by_interfaces: bool = True
    pods_per_core: bool = True
    soft_eviction: bool = True
    windows_build: str = ""


def _windows(name: str, build: str) -> Family:
    return Family(
        name=name,
        os="windows",
        volumes=(Volume(device="/dev/sda1", size_gib=50),),
        ephemeral_device="/dev/sda1",
        pods_from_interfaces=False,
        reserves_by_interfaces=False,
        soft_eviction=False,
        windows_build=build,
    )


_XVDA = (Volume(device="/dev/xvda", size_gib=20),)
FAMILIES = {
    family.name: family
    for family in (
        Family(name=AL2, volumes=_XVDA, ephemeral_device="/dev/xvda"),
        Family(name=AL2023, volumes=_XVDA, ephemeral_device="/dev/xvda"),
        Family(
            name=BOTTLEROCKET,
            volumes=(Volume(device="/dev/xvda", size_gib=4), Volume(device="/dev/xvdb", size_gib=20)),
            ephemeral_device="/dev/xvdb",
            reserves_by_interfaces=False,
            pods_per_core=False,
            soft_eviction=False,
        ),
        Family(name=CUSTOM, volumes=(), ephemeral_device=""),
        _windows("Windows2019", "10.0.17763"),
        _windows("Windows2022", "10.0.20348"),
        _windows("Windows2025", "10.0.26100"),
    )
}
_BY_ALIAS = {name.lower(): name for name in FAMILIES}


def alias(spec: EC2NodeClassSpec) -> tuple[str, str] | None:
    """Family and version of the class's alias term (``al2023@latest`` is ``("AL2023", "latest")``), or None.

    An unknown family comes back as it stands.
    """
    for term in spec.ami_selector_terms:
        if term.alias:
            name, _, version = term.alias.partition("@")
            return _BY_ALIAS.get(name.lower(), name), version or "latest"
    return None


def family_of(spec: EC2NodeClassSpec, *, legacy: bool, version: str = "") -> Family:
    """The family of a class on a cluster of the Kubernetes version ("1.34"; empty: a current one).

    Its alias says it, else ``amiFamily``. A class that names neither gets AL2 up to Kubernetes 1.32 and AL2023 after;
    so does a legacy AWSNodeTemplate that names AL2, because it may be older than AL2's end.
    """
    named = alias(spec)
    name = named[0] if named else spec.ami_family
    if not name and spec.ami_selector_terms:
        return FAMILIES[CUSTOM]
    if name == AL2 and not legacy:
        return FAMILIES[AL2]
    if name in {"", AL2}:
        return FAMILIES[AL2 if version and _parsed(version) <= LAST_AL2 else AL2023]
    return FAMILIES.get(name, FAMILIES[CUSTOM])


def is_legacy(kind: str) -> bool:
    """Whether a class of the kind was converted from an AWSNodeTemplate."""
    return kind == "AWSNodeTemplate"


def _parsed(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def node_labels(family: Family) -> dict[str, str]:
    """The labels that follow from the family alone."""
    build = {labels.WINDOWS_BUILD: family.windows_build} if family.windows_build else {}
    return {labels.OS: family.os, **build}

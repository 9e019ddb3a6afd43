"""The AMI families: their volumes, which kubelet settings their bootstrap honours, and their user data.

Source: Karpenter's AMI families (docs/facts/karpenter.md, section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shared.ami_family.bootstrap import UserDataError
from shared.api import labels
from shared.api.kubelet import SETTINGS, without_nulls
from shared.api.nodeclass import KUBERNETES_VERSION_HELD
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ami_family.bootstrap import Bootstrap
    from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec

AL2 = "AL2"
AL2023 = "AL2023"
BOTTLEROCKET = "Bottlerocket"
CUSTOM = "Custom"
GIB = 2**30

LAST_AL2 = (1, 32)
"""The last Kubernetes version that AWS publishes AL2 images for."""


class Volume(Struct, kw_only=True):
    """A volume of instances whose class has no block device mappings; size in GiB."""

    device: str
    size_gib: int


class Family(Struct, kw_only=True):
    """The defaults of an AMI family; the flags say whether its bootstrap honours a kubelet setting.

    ``ephemeral_device`` holds the pods' ephemeral storage; empty: unknown. ``pods_from_interfaces``: maxPods defaults
    to the number of addresses of the network interfaces, else to 110. ``reserves_by_interfaces``: kube-reserved memory
    is for as many pods as the interfaces allow, whatever maxPods is. ``any_kubelet_setting``: its bootstrap takes a
    kubelet configuration (AL2023), or is the user's (Custom); others map the settings that Tenon reads.
    """

    name: str
    os: str = "linux"
    volumes: tuple[Volume, ...]
    ephemeral_device: str
    pods_from_interfaces: bool = True
    reserves_by_interfaces: bool = True
    pods_per_core: bool = True
    soft_eviction: bool = True
    any_kubelet_setting: bool = False
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


_MAX_USER_DATA = 16_384
"""Bytes before base64 (EC2 User Guide, "Run commands when you launch an EC2 instance with user data input")."""
_XVDA = (Volume(device="/dev/xvda", size_gib=20),)
FAMILIES = {
    family.name: family
    for family in (
        Family(name=AL2, volumes=_XVDA, ephemeral_device="/dev/xvda"),
        Family(name=AL2023, volumes=_XVDA, ephemeral_device="/dev/xvda", any_kubelet_setting=True),
        Family(
            name=BOTTLEROCKET,
            volumes=(Volume(device="/dev/xvda", size_gib=6), Volume(device="/dev/xvdb", size_gib=20)),
            ephemeral_device="/dev/xvdb",
            reserves_by_interfaces=False,
            pods_per_core=False,
            soft_eviction=False,
        ),
        Family(name=CUSTOM, volumes=(), ephemeral_device="", any_kubelet_setting=True),
        _windows("Windows2019", "10.0.17763"),
        _windows("Windows2022", "10.0.20348"),
        _windows("Windows2025", "10.0.26100"),
    )
}
_BY_ALIAS = {name.lower(): name for name in FAMILIES}


def alias(spec: EC2NodeClassSpec) -> tuple[str, str] | None:
    """Family and version of the class's alias term (``al2023@latest`` is ``("AL2023", "latest")``), or None.

    An unknown family is returned as it was written.
    """
    for term in spec.ami_selector_terms:
        if term.alias:
            name, _, version = term.alias.partition("@")
            return _BY_ALIAS.get(name.lower(), name), version or "latest"
    return None


def is_version_held(node_class: EC2NodeClass) -> bool:
    """Whether an annotation lets, or let lately, the class's images be of an older version than the control plane.

    The condition stays for a while after the annotation.
    """
    if labels.KUBERNETES_VERSION in node_class.metadata.annotations:
        return True
    return any(c.type == KUBERNETES_VERSION_HELD for c in node_class.status.conditions)


def family_of(node_class: EC2NodeClass, *, version: str = "") -> Family:
    """The AMI family of a class on a cluster of the Kubernetes version ("1.34"; empty: a current one).

    The alias names it, else ``amiFamily``. A class with neither gets AL2 up to Kubernetes 1.32 and AL2023 after; so
    does a class whose AL2 follows the version.
    """
    spec = node_class.spec
    named = alias(spec)
    name = named[0] if named else spec.ami_family
    if not name and spec.ami_selector_terms:
        return FAMILIES[CUSTOM]
    if name == AL2 and not node_class.al2_follows_version:
        return FAMILIES[AL2]
    if name in {"", AL2}:
        return FAMILIES[AL2 if version and _parsed(version) <= LAST_AL2 else AL2023]
    return FAMILIES.get(name, FAMILIES[CUSTOM])


def _parsed(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def unsupported_settings(family: Family, kubelet: Mapping[str, Any]) -> list[str]:
    """A problem for each kubelet setting of a class that the family's bootstrap would leave out.

    >>> unsupported_settings(FAMILIES[BOTTLEROCKET], {"maxPods": 40, "failSwapOn": False})
    ['spec.kubelet.failSwapOn: false is not supported by Bottlerocket; AL2023 supports every setting']
    """
    if family.any_kubelet_setting:
        return []
    mapped = SETTINGS if family.pods_per_core else SETTINGS - {"podsPerCore"}
    given = {name: value for name, value in without_nulls(kubelet).items() if value not in ({}, [], "")}
    left_out = {name: value for name, value in given.items() if name not in mapped}
    if len(given.get("clusterDNS", ())) > 1:
        left_out["clusterDNS"] = given["clusterDNS"]  # only the first is mapped
    return [
        f"spec.kubelet.{name}: {msgspec.json.encode(value).decode()} is not supported by {family.name}; "
        f"AL2023 supports every setting"
        for name, value in left_out.items()
    ]


def node_labels(family: Family) -> dict[str, str]:
    """The node labels that follow from the family."""
    build = {labels.WINDOWS_BUILD: family.windows_build} if family.windows_build else {}
    return {labels.OS: family.os, **build}


def render_user_data(family: Family, bootstrap: Bootstrap) -> str:
    """The family's bootstrap merged with the class's user data, as text; for the family Custom the user's, unchanged.

    A family's module is imported when a launch needs it, because its parsers (YAML, TOML, MIME) would be a twentieth of
    every cold start.

    Raises:
        UserDataError: the class's ``spec.userData`` can't be merged, or the whole is larger than EC2 takes.
    """
    user_data = _rendered(family, bootstrap)
    if (size := len(user_data.encode())) > _MAX_USER_DATA:
        raise UserDataError(
            f"user data is {size:,} bytes with spec.userData of {len(bootstrap.user_data.encode()):,}, and EC2 takes "
            f"{_MAX_USER_DATA:,}: let spec.userData fetch what it needs"
        )
    return user_data


def _rendered(family: Family, bootstrap: Bootstrap) -> str:
    if family.os == "windows":
        from shared.ami_family import windows

        return windows.render(bootstrap)
    if family.name == AL2:
        from shared.ami_family import al2

        return al2.render(bootstrap)
    if family.name == AL2023:
        from shared.ami_family import al2023

        return al2023.render(bootstrap)
    if family.name == BOTTLEROCKET:
        from shared.ami_family import bottlerocket

        return bottlerocket.render(bootstrap)
    return bootstrap.user_data

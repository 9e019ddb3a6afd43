"""The AMIs that EKS publishes, and their public SSM parameters, which moto lacks.

As on AWS, Amazon Linux 2 exists up to Kubernetes 1.32 only. Each variant has an image for each release; "recommended"
(or "latest") is the newest.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.aws import backends
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LAST_AL2 = (1, 32)
_EKS = "602401143452"
_BOTTLEROCKET = "092701018921"
_WINDOWS = "801119661308"
_RELEASES = ("20251016", "20251112")
_BOTTLEROCKET_RELEASES = ("1.49.0", "1.50.0")
_ARCHITECTURES = ("x86_64", "arm64")
_NAME = re.compile(r"(?:amazon-eks-.*|bottlerocket-aws-k8s|EKS_Optimized)-(1\.\d+)")


class Image(Struct, kw_only=True):
    """An image and the SSM parameters with its id."""

    name: str
    architecture: str
    owner: str
    created: datetime
    parameters: tuple[str, ...]
    root_device: str = "/dev/xvda"
    platform: str | None = None

    @property
    def image_id(self) -> str:
        """The image's id, a hash of its name."""
        return "ami-" + hashlib.sha256(self.name.encode()).hexdigest()[:17]


def published(version: str) -> Iterator[Image]:
    """The images for a Kubernetes version ("1.34"), oldest first."""
    yield from _amazon_linux_2023(version)
    if tuple(int(part) for part in version.split(".")) <= LAST_AL2:
        yield from _amazon_linux_2(version)
    yield from _bottlerocket(version)
    yield from _windows(version)


def kubernetes_version(image_name: str) -> str:
    """The Kubernetes version that the name of an EKS image has; "" for other images."""
    match = _NAME.search(image_name)
    return match[1] if match else ""


def publish(region: str, version: str) -> None:
    """Add the images and parameters for a Kubernetes version to moto."""
    from moto.ec2.models.amis import Ami
    from moto.ssm.models import Parameter

    ec2, ssm = backends.ec2(region), backends.ssm(region)
    for image in published(version):
        ec2.amis[image.image_id] = Ami(
            ec2,
            image.image_id,
            name=image.name,
            description=f"EKS-optimized image {image.name}",
            owner_id=image.owner,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=image.architecture,
            creation_date=image.created,
            platform=image.platform,
            image_location=f"amazon/{image.name}",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=image.root_device,
            region_name=f"{region}a",
            boot_mode="uefi-preferred",
        )
        for name in image.parameters:
            versions = ssm._parameters[name]  # noqa: SLF001 - PutParameter refuses names under /aws
            versions.append(
                Parameter(
                    account_id=backends.ACCOUNT,
                    name=name,
                    value=image.image_id,
                    parameter_type="String",
                    description=None,
                    allowed_pattern=None,
                    keyid=None,
                    last_modified_date=image.created,
                    version=len(versions) + 1,
                    data_type="aws:ec2:image",
                )
            )


def _date(release: str) -> datetime:
    return datetime.strptime(release, "%Y%m%d").replace(tzinfo=UTC)


def _amazon_linux_2023(version: str) -> Iterator[Image]:
    base = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023"
    for release in _RELEASES:
        for architecture, variant in (
            *((architecture, "standard") for architecture in _ARCHITECTURES),
            *((architecture, "nvidia") for architecture in _ARCHITECTURES),
            ("x86_64", "neuron"),
        ):
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{version}-v{release}"
            yield Image(
                name=name,
                architecture=architecture,
                owner=_EKS,
                created=_date(release),
                parameters=(
                    f"{base}/{architecture}/{variant}/recommended/image_id",
                    f"{base}/{architecture}/{variant}/{name}/image_id",
                ),
            )


def _amazon_linux_2(version: str) -> Iterator[Image]:
    base = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2"
    for release in _RELEASES:
        for suffix, stem, architecture in (
            ("", "amazon-eks-node", "x86_64"),
            ("-gpu", "amazon-eks-gpu-node", "x86_64"),
            ("-arm64", "amazon-eks-arm64-node", "arm64"),
        ):
            name = f"{stem}-{version}-v{release}"
            yield Image(
                name=name,
                architecture=architecture,
                owner=_EKS,
                created=_date(release),
                parameters=(f"{base}{suffix}/recommended/image_id", f"{base}{suffix}/{name}/image_id"),
            )


def _bottlerocket(version: str) -> Iterator[Image]:
    for release, day in zip(_BOTTLEROCKET_RELEASES, _RELEASES, strict=True):
        for variant in ("", "-nvidia"):
            for architecture in _ARCHITECTURES:
                base = f"/aws/service/bottlerocket/aws-k8s-{version}{variant}/{architecture}"
                yield Image(
                    name=f"bottlerocket-aws-k8s-{version}{variant}-{architecture}-v{release}",
                    architecture=architecture,
                    owner=_BOTTLEROCKET,
                    created=_date(day),
                    parameters=(f"{base}/latest/image_id", f"{base}/{release}/image_id"),
                )


def _windows(version: str) -> Iterator[Image]:
    for year in ("2019", "2022", "2025"):
        for edition in ("Core", "Full"):
            stem = f"Windows_Server-{year}-English-{edition}-EKS_Optimized-{version}"
            yield Image(
                name=f"{stem}-{_RELEASES[-1][:4]}.{_RELEASES[-1][4:6]}.{_RELEASES[-1][6:]}",
                architecture="x86_64",
                owner=_WINDOWS,
                created=_date(_RELEASES[-1]),
                parameters=(f"/aws/service/ami-windows-latest/{stem}/image_id",),
                root_device="/dev/sda1",
                platform="windows",
            )


def deprecate(region: str, image_id: str, at: datetime) -> None:
    """Deprecate an image from that time on: EC2 launches it, and hides it from those who don't ask for it."""
    backends.ec2(region).amis[image_id].deprecation_time = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}"


def listed(response: Any, images: Sequence[Any], now: datetime) -> list[Any]:
    """Those of the images that EC2 shows: deprecated ones of others only where IncludeDeprecated is set."""
    if str(response._get_param("IncludeDeprecated") or "").lower() == "true":  # noqa: SLF001 - how moto's own read them
        return list(images)
    times = [(image, getattr(image, "deprecation_time", "")) for image in images]
    return [i for i, at in times if not at or i.owner_id == backends.ACCOUNT or datetime.fromisoformat(at) > now]

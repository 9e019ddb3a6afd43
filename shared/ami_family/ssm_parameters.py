"""The Systems Manager parameters in which AWS publishes the AMI ids of each family.

Source: the EKS, Bottlerocket and Windows user guides; docs/facts/karpenter.md, section 4. Pure: only names.
"""

from __future__ import annotations

from shared.ami_family import families
from shared.api import labels
from shared.api.nodeclass import AMIRequirement
from shared.base.struct import Struct

_GPU = labels.INSTANCE_PREFIX + "gpu-count"
_ACCELERATOR = labels.INSTANCE_PREFIX + "accelerator-count"

STANDARD = (
    AMIRequirement(key=_ACCELERATOR, operator="DoesNotExist"),
    AMIRequirement(key=_GPU, operator="DoesNotExist"),
)
NVIDIA = (AMIRequirement(key=_GPU, operator="Exists"),)
NEURON = (AMIRequirement(key=_ACCELERATOR, operator="Exists"),)
ANY: tuple[AMIRequirement, ...] = ()
ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
"""Kubernetes' name of an architecture, by EC2's."""


class SSMParameter(Struct):
    """A parameter's name, its AMI's architecture ("amd64", "arm64"), and which instance types the AMI is for."""

    name: str
    arch: str
    requirements: tuple[AMIRequirement, ...]


def ssm_parameters(family: families.Family, release: str, version: str) -> tuple[SSMParameter, ...]:
    """The parameters of a family's release ("latest", "v20250904") on a Kubernetes version; some may not exist."""
    match family.name:
        case families.AL2023:
            return _al2023(release, version)
        case families.AL2:
            return _al2(release, version)
        case families.BOTTLEROCKET:
            return _bottlerocket(release, version)
        case name if family.os == "windows":
            year = name.removeprefix("Windows")
            image = f"Windows_Server-{year}-English-Core-EKS_Optimized-{version}"
            return (SSMParameter(f"/aws/service/ami-windows-latest/{image}/image_id", "amd64", ANY),)
        case _:
            return ()


def _al2023(release: str, version: str) -> tuple[SSMParameter, ...]:
    root = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023"
    parameters = []
    for arch, variant, requirements in (
        ("x86_64", "standard", STANDARD),
        ("arm64", "standard", STANDARD),
        ("x86_64", "nvidia", NVIDIA),
        ("arm64", "nvidia", NVIDIA),
        ("x86_64", "neuron", NEURON),
    ):
        name = "recommended"
        if release != "latest":
            name = f"amazon-eks-node-al2023-{arch}-{variant}-{version}-{release}"
        parameters.append(SSMParameter(f"{root}/{arch}/{variant}/{name}/image_id", ARCHES[arch], requirements))
    return tuple(parameters)


def _al2(release: str, version: str) -> tuple[SSMParameter, ...]:
    root = f"/aws/service/eks/optimized-ami/{version}"
    parameters = []
    for path, image, requirements in (
        ("amazon-linux-2", "amazon-eks-node", STANDARD),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", STANDARD),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", NVIDIA),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", NEURON),
    ):
        name = "recommended" if release == "latest" else f"{image}-{version}-{release}"
        arch = "arm64" if path.endswith("arm64") else "amd64"
        parameters.append(SSMParameter(f"{root}/{path}/{name}/image_id", arch, requirements))
    return tuple(parameters)


def _bottlerocket(release: str, version: str) -> tuple[SSMParameter, ...]:
    name = release.removeprefix("v")
    return tuple(
        SSMParameter(
            f"/aws/service/bottlerocket/aws-k8s-{version}{variant}/{arch}/{name}/image_id", ARCHES[arch], requirements
        )
        for variant, requirements in (("", STANDARD), ("-nvidia", NVIDIA))
        for arch in ("x86_64", "arm64")
    )

"""Every instance type that Karpenter publishes, compared with the catalog's from EC2's description."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.api import labels
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.api.quantity import format_resources, parse_resources
from shared.instance_types import catalog
from shared.instance_types.hardware import parse_hardware
from shared.instance_types.provider import build_instance_types

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

EXPECTED = json.loads(gzip.decompress((Path(__file__).parent / "karpenter-instance-types.json.gz").read_bytes()))
NOW = datetime(2026, 11, 21, tzinfo=UTC)

NOT_DESCRIBED = {"g4ad.xlarge", "g4ad.2xlarge", "g4ad.4xlarge", "g4ad.8xlarge", "g4ad.16xlarge"}
"""moto's copy of DescribeInstanceTypes lacks them."""

FEWER_INTERFACES = {"i7ie.48xlarge", "i7ie.metal-48xl", "i8ge.48xlarge", "i8ge.metal-48xl"}
"""EC2 now says that their interfaces are spread over two cards; the VPC CNI uses the first one only."""


OTHER_TABLES = re.compile(r"(c9gd?|hpc7g|g7)\..*|[cmr]8(gb|gn|i|ib|idb|idn|in)\.metal-\d+xl|i4i\.large")
"""Types whose branch interfaces or bandwidth are others in Karpenter 1.15 than in 1.14.1, which published these."""
BRANCH_INTERFACES = "vpc.amazonaws.com/pod-eni"
BANDWIDTH = "karpenter.k8s.aws/instance-network-bandwidth"


@pytest.fixture(scope="module")
def raw() -> catalog.InstanceTypeCatalog:
    described = json.loads(
        gzip.decompress(resources.files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes())
    )
    hardware = tuple(s for s in map(parse_hardware, described.values()) if s is not None)
    return catalog.InstanceTypeCatalog(
        region="us-east-1",
        types_at=NOW,
        prices_at=NOW,
        hardware=hardware,
        zones={"us-east-1a": "use1-az1"},
        offered={s.name: ("us-east-1a",) for s in hardware},
        on_demand={s.name: 1.0 for s in hardware},
    )


def built(raw: catalog.InstanceTypeCatalog) -> dict[str, InstanceType]:
    node_class = EC2NodeClass(spec=EC2NodeClassSpec(ami_family="AL2023"))
    types = build_instance_types(raw, node_class, None, zones=["us-east-1a"], unavailable=())
    return {t.name: t for t in types}


def test_every_published_type_that_ec2_describes_is_in_the_catalog(raw: catalog.InstanceTypeCatalog) -> None:
    assert set(EXPECTED) - set(built(raw)) == NOT_DESCRIBED


def test_labels_are_those_that_karpenter_publishes(raw: catalog.InstanceTypeCatalog) -> None:
    types = built(raw)
    different = {
        name: (dict(types[name].labels), wanted["labels"])
        for name, wanted in EXPECTED.items()
        if name in types and {k: v for k, v in types[name].labels.items() if k != labels.REGION} != wanted["labels"]
    }
    assert set(different) == {"g7.2xlarge", "g7.4xlarge", "g7.8xlarge"}
    assert all({k for k in wanted if ours[k] != wanted[k]} == {BANDWIDTH} for ours, wanted in different.values())


def test_allocatable_is_what_karpenter_publishes(raw: catalog.InstanceTypeCatalog) -> None:
    types = built(raw)
    different = {
        name: (format_resources(types[name].allocatable), wanted["allocatable"])
        for name, wanted in EXPECTED.items()
        if name in types and types[name].allocatable != parse_resources(wanted["allocatable"])
    }
    of_other_tables = {name for name in different if OTHER_TABLES.fullmatch(name)}
    assert set(different) - of_other_tables == FEWER_INTERFACES
    for ours, wanted in (different[name] for name in of_other_tables):
        assert {k for k in ours | wanted if ours.get(k) != wanted.get(k)} == {BRANCH_INTERFACES}

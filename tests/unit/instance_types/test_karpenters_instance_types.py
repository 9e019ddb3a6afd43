"""Every instance type that Karpenter publishes, compared with the catalog's from EC2's description."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from shared.api import labels
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.api.quantity import format_resources, parse_resources
from shared.instance_types import catalog
from shared.instance_types.hardware import parse_hardware
from shared.instance_types.provider import build_instance_types
from tests.karpenter_instance_types import EXPECTED, FEWER_INTERFACES, NOT_DESCRIBED, comparable

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

NOW = datetime(2026, 11, 21, tzinfo=UTC)


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
    ours = {name: {k: v for k, v in t.labels.items() if k != labels.REGION} for name, t in types.items()}
    different = {
        name: (ours[name], wanted["labels"])
        for name, wanted in EXPECTED.items()
        if name in ours and comparable(name, ours[name]) != comparable(name, wanted["labels"])
    }
    assert different == {}


def test_allocatable_is_what_karpenter_publishes(raw: catalog.InstanceTypeCatalog) -> None:
    ours = {name: format_resources(t.allocatable) for name, t in built(raw).items()}
    different = {
        name
        for name, wanted in EXPECTED.items()
        if name in ours
        and parse_resources(comparable(name, ours[name])) != parse_resources(comparable(name, wanted["allocatable"]))
    }
    assert different == FEWER_INTERFACES

"""``tenon catalog``, compared with Karpenter's published instance types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.integration.cli.command import call
from tests.karpenter_instance_types import EXPECTED, FEWER_INTERFACES, NOT_DESCRIBED, comparable

if TYPE_CHECKING:
    from pathlib import Path


def test_every_type_has_the_allocatable_and_the_labels_that_karpenter_publishes() -> None:
    done = call("catalog", "--json")
    assert done.code == 0, done.err
    listed: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in done.json}
    assert set(EXPECTED) - set(listed) <= NOT_DESCRIBED
    for part in ("allocatable", "labels"):
        different = {
            name
            for name, wanted in EXPECTED.items()
            if name in listed and comparable(name, listed[name][part]) != comparable(name, wanted[part])
        }
        assert different == (FEWER_INTERFACES if part == "allocatable" else set())
    assert len(NOT_DESCRIBED | FEWER_INTERFACES) <= 10


def test_an_instance_type_has_known_resources_and_a_price_for_each_offering() -> None:
    done = call("catalog", "c7i.2xlarge", "--kubernetes", "1.33", "--json")
    (entry,) = done.json
    assert set(entry) >= {"name", "capacity", "allocatable", "labels", "offerings"}
    assert entry["allocatable"] == {
        "cpu": "7910m",
        "memory": "14162Mi",
        "pods": "58",
        "ephemeral-storage": "17Gi",
        "vpc.amazonaws.com/pod-eni": "38",
    }
    assert entry["overhead"]["cpu"] == "90m"
    for offering in entry["offerings"]:
        assert set(offering) == {"zone", "capacityType", "price", "available"}
        assert offering["available"] is True
    prices = {(o["zone"], o["capacityType"]): o["price"] for o in entry["offerings"]}
    assert prices["us-east-1a", "on-demand"] == 0.357
    assert 0 < prices["us-east-1a", "spot"] < 0.2
    assert "local world in us-east-1" in done.err


def test_max_pods_is_that_of_the_option() -> None:
    (entry,) = call("catalog", "c7i.2xlarge", "--max-pods", "110", "--json").json
    assert entry["capacity"]["pods"] == entry["allocatable"]["pods"] == "110"


def test_few_types_are_shown_in_detail_and_more_as_a_table() -> None:
    shown = call("catalog", "c5a.large")
    for text in ("c5a.large", "1930m", "us-east-1a", "on-demand", "0.0770", "karpenter.k8s.aws/instance-family=c5a"):
        assert text in shown.out
    table = call("catalog", "c5a.large", "c5a.xlarge", "m5.large", "m5.xlarge", "--region", "eu-west-1")
    assert table.out.count(".xlarge") == 2
    assert "eu-west-1" in table.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["m5.enormous"], 2, 'us-east-1 has no instance type "m5.enormous"'),
        (["--region", "mars"], 2, "is not an AWS Region"),
        (["--kubernetes", "new"], 2, "is not of the form"),
        (["--aws", "--region", "us-east-1"], 1, "AWS can't be called: Unable to locate credentials"),
    ],
)
def test_errors_are_reported(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    nobody = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
    }
    done = call("catalog", *arguments, env=nobody)
    assert done.code == code
    assert message in " ".join(done.err.split())

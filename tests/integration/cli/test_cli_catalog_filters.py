"""`tenon catalog`: filters and order of instance types, and what is said of values that are not valid."""

from __future__ import annotations

from typing import Any

import pytest

from cli.catalog import command
from cli.catalog.filters import SORTS
from tests.integration.cli.command import call

LABEL = "karpenter.k8s.aws/instance-"
GIB = 1024
"""In MiB, which the label of an instance type's memory counts."""


def entries(arguments: str) -> list[dict[str, Any]]:
    """The instance types that are printed; there is at least one."""
    done = call("catalog", "--json", *arguments.split())
    assert done.code == 0, done.err
    shown: list[dict[str, Any]] = done.json
    assert shown
    return shown


def number(entry: dict[str, Any], label: str) -> int:
    return int(entry["labels"].get(LABEL + label, 0))


def least_price(entry: dict[str, Any]) -> float:
    return min(float(o["price"]) for o in entry["offerings"])


def test_families_architectures_and_sizes() -> None:
    assert {e["labels"][LABEL + "family"] for e in entries("--family m7i,c7g")} == {"m7i", "c7g"}
    assert {e["labels"][LABEL + "family"] for e in entries("--family m7i --family c7g --arch arm64")} == {"c7g"}
    shown = entries("--family m7i --min-cpu 4 --max-cpu 8 --min-memory 32Gi")
    assert [e["name"] for e in shown] == ["m7i.2xlarge"]
    # 16 GiB as AWS sells it, though a node reports less
    assert "m7i.xlarge" in {e["name"] for e in entries("--family m7i --min-memory 16Gi")}
    assert all(number(e, "memory") >= 100 * GIB for e in entries("--min-memory 100Gi"))


def test_gpus() -> None:
    assert all(number(e, "gpu-count") for e in entries("--gpu"))
    assert {e["labels"][LABEL + "gpu-name"] for e in entries("--gpu-name t4,a10g")} == {"t4", "a10g"}


def test_only_offerings_that_meet_the_filters_are_shown() -> None:
    shown = entries("--capacity-type spot --zone us-east-1b --max-price 0.02")
    assert {(o["zone"], o["capacityType"]) for e in shown for o in e["offerings"]} == {("us-east-1b", "spot")}
    assert max(o["price"] for e in shown for o in e["offerings"]) <= 0.02
    assert min(len(e["offerings"]) for e in shown) == 1


def test_nothing_left_is_no_error() -> None:
    done = call("catalog", "--json", "--gpu", "--max-price", "0.0001")
    assert (done.code, done.json) == (0, [])
    assert done.err.startswith("0 of ")
    assert "instance types of the local world" in done.err


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("price", least_price),
        ("cpu", lambda e: number(e, "cpu")),
        ("memory", lambda e: number(e, "memory")),
        ("price-per-cpu", lambda e: least_price(e) / number(e, "cpu")),
        ("name", lambda e: e["name"]),
    ],
)
def test_the_order(sort: str, key: Any) -> None:
    ascending = [key(e) for e in entries(f"--family m7i,c7g,t3 --sort-by {sort}")]
    assert ascending == sorted(ascending)
    assert len(set(ascending)) > 5
    assert [key(e) for e in entries(f"--family m7i,c7g,t3 --sort-by -{sort}")] == ascending[::-1]


def test_the_shell_completes_every_order() -> None:
    assert command._complete_sort("") == [*SORTS, *(f"-{s}" for s in SORTS)]
    assert command._complete_sort("price-") == ["price-per-cpu"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--family m7j", '--family: there is no "m7j"; the nearest is "m7'),
        ("--arch x86", '--arch: there is no "x86"; must be amd64, arm64'),
        ("--arch arm", 'the nearest is "arm64"'),
        ("--capacity-type ondemand", 'the nearest is "on-demand"'),
        ("--zone us-east-1", 'the nearest is "us-east-1'),
        ("--gpu-name A10G", 'there is no "A10G"; the nearest is "a10g"'),
        ("--gpu-name a10", 'the nearest is "a10'),
        ("--sort-by prize", 'the nearest is "price"'),
        ("--max-price 0", "must be USD per hour, more than 0"),
        ("--max-price nan", "must be USD per hour, more than 0"),
        ("--min-cpu 8 --max-cpu 4", "--min-cpu 8 is more than --max-cpu 4"),
        ("--min-memory 16", 'give a unit, such as "16Gi"'),
        ("--min-memory 16GB", "is not a quantity such as"),
        ("--min-memory much", 'is not a quantity such as "16Gi"'),
        ("m5.hugee", 'no instance type "m5.hugee"; the nearest is "m5.'),
    ],
)
def test_a_value_that_is_not_valid_gets_one_line_with_the_nearest(arguments: str, message: str) -> None:
    done = call("catalog", *arguments.split())
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("tenon catalog: ")
    assert done.err.count("\n") == 1

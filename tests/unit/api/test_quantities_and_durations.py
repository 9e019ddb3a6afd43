from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.duration import DurationError, format_duration, parse_duration
from shared.api.quantity import (
    QuantityError,
    add,
    fits,
    format_quantity,
    largest,
    parse_quantity,
    parse_resources,
    subtract,
)

names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods", "nvidia.com/gpu", "hugepages-2Mi"])
resources = st.dictionaries(names, st.integers(0, 10**15))
SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("cpu", "1u", 1),
        ("cpu", "1n", 1),
        ("memory", "1Gi", 2**30),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "128e6", 128_000_000),
        ("memory", "1E", 10**18),
        ("memory", "100m", 1),
        ("memory", ".5Ki", 512),
        ("memory", "1.", 1),
        ("pods", "+110", 110),
        ("memory", "-1Ki", -1024),
    ],
)
def test_quantities_are_exact_integers(name: str, text: str | float, expected: int) -> None:
    assert parse_quantity(name, text) == expected


@pytest.mark.parametrize(
    "text", ["", "1GB", "Gi", "1 Gi", "one", "1e999", "0x10", "1\n", "\u0661", "1KI", "--1", "1" * 65, "inf"]
)
def test_an_invalid_quantity_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(QuantityError, match=r"quantity|exponent"):
        parse_quantity("memory", text)


def test_a_bad_quantity_is_reported_with_its_resource() -> None:
    with pytest.raises(QuantityError, match=r'^memory: "lots" is not a quantity'):
        parse_resources({"cpu": 1, "memory": "lots"})


@given(names, st.integers(-(10**18), 10**18))
def test_a_written_quantity_reads_back_the_same(name: str, amount: int) -> None:
    assert parse_quantity(name, format_quantity(name, amount)) == amount


@given(names, st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_quantities_are_rounded_up_and_by_less_than_one(name: str, whole: int, part: int, suffix: str) -> None:
    exact = (Fraction(whole) + Fraction(part, 1000)) * SUFFIXES[suffix] * (1000 if name == "cpu" else 1)
    rounded = parse_quantity(name, f"{whole}.{part:03d}{suffix}")
    assert exact <= rounded < exact + 1


@given(resources, resources)
def test_added_resources_can_be_subtracted(a: dict[str, int], b: dict[str, int]) -> None:
    assert {k: v for k, v in subtract(add(a, b), b).items() if v} == {k: v for k, v in a.items() if v}
    assert fits(a, add(a, b))
    assert fits(a, largest(a, b))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5h", timedelta(minutes=90)),
        ("720h", timedelta(days=30)),
        ("100ms", timedelta(milliseconds=100)),
        ("0", timedelta()),
        ("0s", timedelta()),
        ("Never", None),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, expected: timedelta | None) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "30", "1d", "never", "1h 30m", "-5m", "h", "1h5", "\u0663s", "5m\n", "9" * 30 + "h"]
)
def test_an_invalid_duration_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(DurationError, match="duration"):
        parse_duration(text)


@given(st.none() | st.integers(0, 10**8).map(lambda s: timedelta(seconds=s)))
def test_a_written_duration_reads_back_the_same(duration: timedelta | None) -> None:
    assert parse_duration(format_duration(duration)) == duration

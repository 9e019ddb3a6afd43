"""Expressions: CEL's arithmetic as in cel-go, with the types checked before anything is evaluated."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.instance_types.cel import CompileError, compile_expression
from shared.instance_types.cel_arithmetic import INT, STRING, EvaluationError

TYPES = {"vcpus": INT, "instance_type": STRING}
M5_LARGE: dict[str, int | str] = {"vcpus": 2, "instance_type": "m5.large"}


def value(text: str) -> float:
    return compile_expression(text, TYPES).evaluate(M5_LARGE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("2 + 3 * 4 - 1", 13),
        ("10 - 4 - 3", 3),
        ("0x1F", 31),
        ("1e3", 1000.0),
        (".5 + 1.25", 1.75),
        ("double(vcpus) * 1.5", 3.0),
        ("int(2.9) + int(-2.9)", 0),
        ("max(3, 4) * min(3, 4)", 12),
        ("max(vcpus, 1.5)", 2.0),
        ("vcpus <= 2 ? 8 : vcpus <= 4 ? 16 : 32", 8),
        ("!(vcpus > 2) && vcpus != 3 ? 1 : 0", 1),
        ("vcpus == 2 || vcpus == 4 ? 1 : 0", 1),
        ("vcpus in [2, 4] ? 1 : 0", 1),
        ("vcpus in [] ? 1 : 0", 0),
        ('instance_type == "m5.large" ? 1 : 0', 1),
        ("instance_type.startsWith('m5.') && instance_type.endsWith('large') ? 1 : 0", 1),
        ('instance_type.contains("metal") ? 1 : 0', 0),
        ("true ? 1 : 1 / 0", 1),
        ("1 / 0 > 1 || true ? 1 : 0", 1),
        ("1 / 0 > 1 && false ? 1 : 0", 0),
        ("false && 1 / 0 > 1 ? 1 : 0", 0),
        ("2.0 / 0.0", math.inf),
        ("-2.0 / 0.0", -math.inf),
    ],
)
def test_it_has_the_value_that_cel_gives(text: str, expected: float) -> None:
    result = value(text)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the end is not expected"),
        ("vcpus ==", "the end is not expected"),
        ("vcpus vcpus", '"vcpus" at column 7 is not expected'),
        ("(vcpus", 'the end is not expected; ")" is expected'),
        ("vcpus $ 2", '"$" at column 7 is not part of an expression'),
        ("cores * 2", '"cores" is unknown; known are vcpus, instance_type'),
        ("round(1.5)", "round(double) is unknown; known are int(x), double(x), max(a, b) and min(a, b) of numbers"),
        ("max(1, 2, 3)", "max(int, int, int) is unknown"),
        ("instance_type.matches('m.*')", '"matches" at column 15 is not expected; known are startsWith'),
        ("vcpus * 1.5", '"*" doesn\'t take int and double; convert numbers by int(x) or double(x)'),
        ("vcpus > 2.5 ? 1 : 0", '">" doesn\'t take int and double'),
        ("true ? 1 : 2.0", '"? :" doesn\'t take bool and int and double'),
        ("5.5 % 2.0", '"%" doesn\'t take double and double'),
        ("!vcpus", '"!" doesn\'t take int'),
        ("vcpus in ['a'] ? 1 : 0", '"in" doesn\'t take int and string'),
        ("vcpus > 2", "is a bool; a number is needed"),
        ("instance_type", "is a string; a number is needed"),
        ("9223372036854775808", "9223372036854775808 at column 1 is beyond 64 bits"),
        ("(" * 60 + "1" + ")" * 60, "is nested more than 40 deep"),
        ("+".join("1" * 300), "is nested more than 200 deep"),
        ("true ? 1 : " * 101 + "1", "has more than 100 conditionals"),
        ("1" + " " * 4096, "has 4097 characters; allowed are at most 4096"),
    ],
)
def test_what_is_no_expression_of_a_number_is_named(text: str, message: str) -> None:
    with pytest.raises(CompileError) as error:
        compile_expression(text, TYPES)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "1 / (vcpus - 2)",
        "1 % (vcpus - 2)",
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "9223372036854775807 * vcpus",
        "int(1e300)",
        "int(0.0 / 0.0)",
    ],
)
def test_an_error_of_arithmetic_is_no_number(text: str) -> None:
    with pytest.raises(EvaluationError):
        value(text)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20).filter(bool))
def test_quotient_and_remainder_are_those_of_go(a: int, b: int) -> None:
    quotient, remainder = value(f"({a}) / ({b})"), value(f"({a}) % ({b})")
    assert quotient == math.trunc(a / b)
    assert quotient * b + remainder == a


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_a_compile_error(text: str) -> None:
    with contextlib.suppress(CompileError):
        compile_expression(text, TYPES)

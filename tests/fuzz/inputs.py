"""Inputs that nobody would write: examples of a parser's own input, changed at one or several places.

A change puts something from :data:`POISON` in the place of a JSON value or of a part of the text: times at the ends of
the calendar, numbers of 5,000 digits, deep nesting, control characters. Plain text without an example is tried, too.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEEP = 20_000
"""How deeply poison is nested: Python's own limit is a thousand."""
POISON = (
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "2026-11-26T12:00:00",
    "Fri, 31 Dec 9999 23:59:59 -1400",
    "Mon, 01 Jan 0001 00:00:00 +1400",
    "Mon, 01 Jan 99999999999999999999 00:00:00 +9999",
    "9" * 5_000,
    "0" * 5_000 + "1",
    "-1",
    "1e400",
    "NaN",
    "9" * 400 + "h",
    "1" * 5_000 + "%",
    "\u0661\u0662",
    "\x00",
    "\x1b[2J",
    "\ud800",
    "\u2028",
    "a" * 70_000,
    "[" * DEEP,
    "(" * DEEP,
    "{{" * 100,
    "(a+)+$",
    "../../..",
    "i-0123456789abcdef0",
    "",
)
_RAW = (
    "[" * DEEP + "]" * DEEP,
    "[" * 900 + "]" * 900,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    "9" * 5_000,
    "-1e999",
    "1e308",
    "NaN",
    "null",
    "true",
    "[]",
    "{}",
    '[null, 1, "x", {}]',
    '"\\ud800"',
    '"\\u0000"',
)
"""JSON as it stands in the text, which Python's own encoder wouldn't write."""
_SIGNS = "0123456789.,:/*-+%=@()[]{}\"'\\ \n\t"
_PLACE = "\x07place\x07"


def inputs(examples: Sequence[str]) -> st.SearchStrategy[str]:
    """Texts for a parser that reads texts such as the examples."""
    of_json = [example for example in examples if _is_object(example)]
    strategies: list[st.SearchStrategy[str]] = [_changed_texts(examples), st.sampled_from(POISON + _RAW), st.text()]
    if of_json:
        strategies.insert(0, _changed_json(of_json))
    return st.one_of(strategies)


@st.composite
def _changed_json(draw: st.DrawFn, examples: Sequence[str]) -> str:
    value = json.loads(draw(st.sampled_from(examples)))
    poison = [json.dumps(text) for text in POISON] + list(_RAW)
    put: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        container[key] = f"{_PLACE}{len(put)}{_PLACE}"
        put.append(draw(st.sampled_from(poison)))
    text = json.dumps(value)
    place = re.escape(json.dumps(_PLACE)[1:-1])
    return re.sub(f'"{place}(\\d+){place}"', lambda match: put[int(match[1])], text)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key of it: what may be replaced."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


@st.composite
def _changed_texts(draw: st.DrawFn, examples: Sequence[str]) -> str:
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        part = draw(st.sampled_from(POISON) | st.text(max_size=4) | st.sampled_from(_SIGNS))
        text = text[:start] + part + text[end:]
    return text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False

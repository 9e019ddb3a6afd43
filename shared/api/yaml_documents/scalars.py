"""What a scalar stands for: text, number, boolean or null.

Source: ``resolve`` of go.yaml.in/yaml/v2, and the conversion to JSON of sigs.k8s.io/yaml 1.6.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Scalar = str | int | float | bool | None

_LONG = "tag:yaml.org,2002:"
_STR, _INT, _FLOAT, _BOOL, _NULL = (f"{_LONG}{name}" for name in ("str", "int", "float", "bool", "null"))
_TIMESTAMP, _BINARY = f"{_LONG}timestamp", f"{_LONG}binary"
_RESOLVED = frozenset({_INT, _FLOAT, _BOOL, _NULL, _TIMESTAMP})
_WORDS: dict[str, Scalar] = {
    **{form: True for word in ("y", "yes", "true", "on") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("n", "no", "false", "off") for form in (word, word.capitalize(), word.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_BASES = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
    (re.compile(r"[-+]?0[oO][0-7]+"), 8),
    (re.compile(r"[-+]?0[0-7]+"), 8),
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), 10),
)
_SIGNED_BINARY = re.compile(r"0b([-+][01]+)")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FRACTION = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
_TIME = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"([Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.,][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.,][0-9]+)?)?"
)
_MIN_INT, _MAX_INT, _MAX_UINT = -(2**63), 2**63 - 1, 2**64 - 1
_FLOAT_DIGITS = 9
"""Significant digits with which every 32-bit float can be told from the next."""


class ScalarError(ValueError):
    """A scalar that isn't of its tag, or has no JSON."""


def resolve(text: str, tag: str | None, *, implicit: bool) -> Scalar:
    """The value of a scalar. ``implicit``: it is plain, without a tag. Infinite and NaN are possible here.

    Raises:
        ScalarError: it isn't of its tag.
    """
    if tag is None:
        return plain(text) if implicit else text
    if tag == _BINARY:
        return _binary(text)
    if tag not in _RESOLVED:
        return text
    value = None if text == "" else plain(text)
    is_time = tag == _TIMESTAMP and _TIME.fullmatch(text) is not None
    if tag == _FLOAT and type(value) is int and value <= _MAX_INT:
        return float(value)
    if not is_time and _tag_of(value) != tag:
        raise ScalarError(f"cannot decode `{text}` as a {tag.replace(_LONG, '!!')}")
    return value


@lru_cache(maxsize=4096)
def plain(text: str) -> Scalar:
    """The value of a plain scalar without a tag. Timestamps are text."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first == ".":
        return _finite(text.replace("_", ""), text) if _FRACTION.fullmatch(text) else text
    if first not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    integer = _integer(digits)
    if integer is not None:
        return integer
    return _finite(digits, text) if _DECIMAL.fullmatch(digits) else text


def json_value(value: Scalar) -> Scalar:
    """The value as JSON readers get it: 1e3 is the integer 1000, and integers beyond 64 bits are floats.

    Raises:
        ScalarError: it is infinite or not a number.
    """
    if type(value) is float:
        return _json_float(value)
    if type(value) is int and value > _MAX_INT:
        return float(value)
    return value


def key(value: Scalar) -> str:
    """The text of a map's key.

    Raises:
        ScalarError: null can't be a key, nor can integers beyond 64 bits with a sign.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_key(value)
    if value is None or value > _MAX_INT:
        raise ScalarError(f"unsupported map key: {'null' if value is None else value}")
    return str(value)


def _integer(digits: str) -> int | None:
    """The integer, if it is one of 64 bits: decimal, 0x1F, 0b11, 0o17, or 017."""
    signed = _SIGNED_BINARY.fullmatch(digits)
    if signed:
        return _within_64_bits(signed[1], 2)
    base = next((base for pattern, base in _BASES if pattern.fullmatch(digits)), None)
    if base is None:
        return None
    # Python wants 0o17, not 017
    bare = re.sub(r"^([-+]?)0[xXbBoO]?(?=.)", r"\1", digits) if base != 10 else digits  # noqa: PLR2004 (base ten)
    return _within_64_bits(bare, base)


def _within_64_bits(digits: str, base: int) -> int | None:
    if len(digits) > 80:  # noqa: PLR2004 (a sign and 64 binary digits, and zeros in front of them)
        digits = re.sub(r"^([-+]?)0+(?=.)", r"\1", digits)
        if len(digits) > 80:  # noqa: PLR2004 (the same)
            return None
    value = int(digits, base)
    # only numbers without a sign may use the 64th bit
    most = _MAX_INT if digits[0] in "+-" else _MAX_UINT
    return value if _MIN_INT <= value <= most else None


def _finite(digits: str, text: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else text


def _tag_of(value: Scalar) -> str:
    tags: dict[type, str] = {bool: _BOOL, int: _INT, float: _FLOAT, type(None): _NULL}
    return tags.get(type(value), _STR)


def _binary(text: str) -> str:
    try:
        data = base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScalarError("!!binary value contains invalid base64 data") from error
    return _utf_8(data)


def _utf_8(data: bytes) -> str:
    """The text, with one U+FFFD for each byte that is not UTF-8, as Go's JSON has it."""
    parts: list[str] = []
    while data:
        try:
            return "".join((*parts, data.decode()))
        except UnicodeDecodeError as error:
            parts += [data[: error.start].decode(), "\ufffd" * (error.end - error.start)]
            data = data[error.end :]
    return "".join(parts)


def _json_float(value: float) -> int | float:
    if not math.isfinite(value):
        raise ScalarError(f"JSON has no {'NaN' if math.isnan(value) else 'infinite numbers'}")
    if value.is_integer() and abs(value) <= _MAX_UINT:
        # the shortest digits, which Go writes, and zeros
        integer = int(Decimal(repr(value)))
        return integer if _MIN_INT <= integer <= _MAX_INT else value
    return value


def _float_key(value: float) -> str:
    """The shortest digits of the nearest 32-bit float, as Go's %g with precision -1."""
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.copysign(math.inf, value)
    if not math.isfinite(single):
        return ".nan" if math.isnan(single) else ".inf" if single > 0 else "-.inf"
    mantissa, exponent = _shortest(single)
    digits = mantissa.replace("-", "").replace(".", "")
    sign = "-" if mantissa.startswith("-") else ""
    if not -4 <= exponent < 6:  # noqa: PLR2004 (Go's %g of the shortest digits)
        return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _shortest(single: float) -> tuple[str, int]:
    """The mantissa and exponent with the fewest digits that are still this 32-bit float."""
    same: Callable[[str], bool] = lambda text: struct.pack("f", float(text)) == struct.pack("f", single)  # noqa: E731
    forms = (f"{single:.{precision}e}" for precision in range(_FLOAT_DIGITS))
    text = next((form for form in forms if same(form)), f"{single:.8e}")
    mantissa, exponent = text.split("e")
    return mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa, int(exponent)

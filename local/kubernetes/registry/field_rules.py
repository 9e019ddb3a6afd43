"""Errors of single fields, and the syntax of names, labels and selectors.

Sources: apimachinery ``util/validation``, ``pkg/apis/meta/v1/validation``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local.kubernetes.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

    Causes = Iterator[Cause]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN, _LONGEST_PORT_NAME = 63, 253, 15
_PORTS = range(1, 65536)


def invalid(path: str, value: Json, text: str) -> Cause:
    """The field has a value that it must not have."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {text}")


def required(path: str, text: str = "") -> Cause:
    """The field is absent or empty."""
    return Cause(path, "FieldValueRequired", f"Required value: {text}" if text else "Required value")


def forbidden(path: str, text: str) -> Cause:
    """The field must not be set together with other fields."""
    return Cause(path, "FieldValueForbidden", f"Forbidden: {text}")


def duplicate(path: str, value: Json) -> Cause:
    """The field repeats a value that must be unique."""
    return Cause(path, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def not_supported(path: str, value: Json, allowed: Iterable[str]) -> Cause:
    """The field has none of the values that it may have."""
    listed = ", ".join(f'"{name}"' for name in sorted(allowed))
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')


def too_long(path: str, limit: int) -> Cause:
    """The field's text is too long."""
    return Cause(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def not_negative(path: str, number: int | None) -> Causes:
    """The error of a number below 0."""
    if number is not None and number < 0:
        yield invalid(path, number, "must be greater than or equal to 0")


def positive(path: str, number: int) -> Causes:
    """The error of a number below 1."""
    if number <= 0:
        yield invalid(path, number, "must be greater than 0")


def port(path: str, number: int) -> Causes:
    """The error of a number that is no port."""
    if number not in _PORTS:
        yield invalid(path, number, "must be between 1 and 65535, inclusive")


def port_name(path: str, name: str) -> Causes:
    """The error of a port's name (IANA service name)."""
    has_letter = any(c.isalpha() for c in name)
    wrong = not _PORT_NAME.fullmatch(name) or "--" in name or name[:1] == "-" or name[-1:] == "-"
    if len(name) > _LONGEST_PORT_NAME or wrong or not has_letter:
        yield invalid(path, name, "must be a lower-case name of at most 15 characters with at least one letter")


def is_dns_label(text: str) -> bool:
    """Whether the text is a lower-case RFC 1123 label."""
    return len(text) <= _LONGEST_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether the text is a lower-case RFC 1123 subdomain."""
    return len(text) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def dns_label(path: str, text: str) -> Causes:
    """The error of a text that is no lower-case RFC 1123 label."""
    if not is_dns_label(text):
        yield invalid(
            path, text, "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
        )


def subdomain(path: str, text: str) -> Causes:
    """The error of a text that is no lower-case RFC 1123 subdomain."""
    if not is_subdomain(text):
        yield invalid(path, text, "a lowercase RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.'")


def is_qualified_name(text: str) -> bool:
    """Whether the text is a name with an optional DNS prefix, such as a label's key."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= _LONGEST_LABEL and _NAME_PART.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether the text is a label's value."""
    return not text or (len(text) <= _LONGEST_LABEL and _NAME_PART.fullmatch(text) is not None)


def qualified_name(path: str, text: str) -> Causes:
    """The error of a text that is no qualified name."""
    if not is_qualified_name(text):
        yield invalid(path, text, "name part must consist of alphanumeric characters, '-', '_' or '.'")


def label_value(path: str, text: str) -> Causes:
    """The error of a text that is no label's value."""
    if not is_label_value(text):
        rule = "consist of alphanumeric characters, '-', '_' or '.', and start and end with an alphanumeric character"
        yield invalid(path, text, f"a valid label must be an empty string or {rule}, of at most 63 characters")


def labels(path: str, values: Obj | None) -> Causes:
    """The errors of a map of labels; all have the map's path."""
    for key, value in (values or {}).items():
        yield from qualified_name(path, key)
        yield from label_value(path, value)


def label_selector(path: str, selector: Obj | None) -> Causes:
    """The errors of a label selector."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _operator(at, requirement)
        yield from qualified_name(f"{at}.key", requirement.get("key", ""))
        for number, value in enumerate(requirement.get("values") or ()):
            yield from label_value(f"{at}.values[{number}]", value)


def _operator(path: str, requirement: Obj) -> Causes:
    values = requirement.get("values") or ()
    match requirement.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden(f"{path}.values", text)
        case operator:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")


def count_or_percent(path: str, value: int | str, *, most: int | None = 100) -> Causes:
    """The errors of an absolute number or a percentage, which is at most ``most`` percent."""
    if isinstance(value, int):
        yield from not_negative(path, value)
        return
    if not re.fullmatch(r"[0-9]+%", value):
        text = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%')"
        yield invalid(path, value, text)
    elif most is not None and int(value[:-1]) > most:
        yield invalid(path, value, f"must not be greater than {most}%")


def among(path: str, value: Json, allowed: Collection[str]) -> Causes:
    """The error of a value that is set and not allowed."""
    if value is not None and value not in allowed:
        yield not_supported(path, value, allowed)

"""PromQL from families: a query can only name a metric that the export has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.export.families import Family


class UnknownLabelError(ValueError):
    """The family doesn't have the label; the message names both."""


def series(family: Family, *matchers: str, suffix: str = "") -> str:
    """The selector of a family's series; matchers are PromQL's, such as ``state="ready"``.

    Raises:
        UnknownLabelError: the family doesn't have a matcher's label.
    """
    for matcher in matchers:
        label = matcher.partition("=")[0].rstrip("!")
        if label not in {*family.labels, *_OF_TARGETS}:
            raise UnknownLabelError(f"{family.name} has no label {label}")
    return f"{family.name}{suffix}" + (f"{{{','.join(matchers)}}}" if matchers else "")


_OF_TARGETS = ("job", "instance")


def total(inner: str, *by: str) -> str:
    """The sum by labels."""
    return f"sum by ({', '.join(by)}) ({inner})" if by else f"sum({inner})"


def increase(inner: str, window: str) -> str:
    """How much a counter grew within a window."""
    return f"increase({inner}[{window}])"

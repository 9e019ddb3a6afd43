"""Counts in sentences for users: ``1 node``, ``2 nodes``."""

from __future__ import annotations

_ES = ("ch", "s", "sh", "x")


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``2 matches``, ``3 entries``, ``1,200 pods``."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(_ES) else 's'}"

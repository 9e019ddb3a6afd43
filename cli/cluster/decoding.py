"""Objects of files as structs, as far as they can be read: what can't be is told of by itself, and the rest goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.api.decode import DecodeError, decode, ref_of
from shared.api.kubernetes import Pod
from shared.scheduling.decision import UnschedulableReason
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")
Raw = bytes | dict[str, Any]


def every(raws: Iterable[Raw], kind: type[T], invalid: list[InvalidObject]) -> tuple[T, ...]:
    """Those that can be read; the others are added to ``invalid``."""
    found: list[T] = []
    for raw in raws:
        try:
            found.append(decode(raw, kind))
        except DecodeError as error:
            invalid.append(InvalidObject(ref=ref_of(plain(raw)), problems=(error.problem,)))
    return tuple(found)


def pods(raws: Iterable[Raw], refused: dict[str, UnschedulableReason]) -> tuple[Pod, ...]:
    """Those that can be read; the others are added to ``refused``, by namespace/name."""
    unread: list[InvalidObject] = []
    found = every(raws, Pod, unread)
    for one in unread:
        key = f"{one.ref.namespace or 'default'}/{one.ref.name}"
        refused[key] = UnschedulableReason(message=f"the pod can't be read: {one.problems[0]}")
    return found


def plain(raw: Raw) -> dict[str, Any]:
    """The object as JSON values; empty where it is none."""
    value = raw if isinstance(raw, dict) else msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}

"""Makes what differs as small as it can be: parts are removed as long as the difference stays."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Path = tuple[str | int, ...]


def shrunk(value: Any, differs: Callable[[Any], bool], *, most: int = 400) -> Any:
    """The value without the parts that the difference doesn't need; ``differs`` is called ``most`` times at most."""
    calls = 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for path in sorted(_paths(value), key=len):
            if calls == most:
                return value
            candidate = _without(value, path)
            if candidate is None:
                continue
            calls += 1
            if differs(candidate):
                value, is_smaller = candidate, True
    return value


def _paths(value: Any, above: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        yield from _paths(inner, (*above, key))


def _without(value: Any, path: Path) -> Any:
    """A copy without the part; None if it isn't there any more."""
    copied = owner = copy.deepcopy(value)
    try:
        for key in path[:-1]:
            owner = owner[key]
        del owner[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return copied

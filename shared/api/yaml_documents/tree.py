"""The value of a YAML document from the parser's events: maps with text keys, lists and JSON scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api.yaml_documents import scalars
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yaml import ScalarEvent

    from shared.api.json_types import Json

MAX_DEPTH = 200
"""Nested lists and maps of a YAML document; Kubernetes' objects have less than 30."""
MAX_EXPANDED = 1_000_000
"""What aliases of a text may stand for, in all of its documents: values, and as one each 64 characters of a scalar."""
_CHARACTERS = 64
_MERGE = "<<"
_MERGE_TAG = "tag:yaml.org,2002:merge"


class TreeError(ValueError):
    """The document has no value; ``line`` counts from 0."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class _EventError(ValueError):
    """What is wrong at the present event."""


class Expansion(MutableStruct):
    """How much the aliases of a text have stood for so far."""

    size: int = 0

    def add(self, size: int) -> None:
        """Count an alias."""
        self.size += size
        if self.size > MAX_EXPANDED:
            raise _EventError(f"aliases stand for more than {MAX_EXPANDED:,} values")


class _Anchored(MutableStruct):
    """What an anchor stands for. Scalars aren't JSON yet; ``size`` counts the values; it is open until its end."""

    value: Any = None
    size: int = 1
    is_open: bool = True


class _List(MutableStruct):
    value: list[Any] = []

    wants_key = False
    wants_merge = False

    def add(self, value: Json, *, aliased: bool) -> None:  # noqa: ARG002 (any JSON; as of a map)
        self.value.append(value)


class _Map(MutableStruct):
    value: dict[str, Any] = {}
    key: str = ""
    wants_key: bool = True
    wants_merge: bool = False

    def add(self, value: Json, *, aliased: bool) -> None:
        """Add a key, or the value of the last key."""
        if self.wants_key:
            self.key = value
        elif self.wants_merge:
            self._merge(value, aliased=aliased)
            self.wants_merge = False
        else:
            self.value[self.key] = value
        self.wants_key = not self.wants_key

    def _merge(self, value: Json, *, aliased: bool) -> None:
        maps = [value] if isinstance(value, dict) else value
        # a list of maps can't be an alias itself
        if (
            not isinstance(maps, list)
            or not all(isinstance(item, dict) for item in maps)
            or (aliased and maps is value)
        ):
            raise _EventError("map merge requires map or sequence of maps as the value")
        # earlier maps take precedence
        for item in reversed(maps):
            self.value |= item


class _Tree(MutableStruct):
    """The document so far. Aliases are copied, so that who changes one of the values doesn't change others."""

    expansion: Expansion
    root: Any = None
    _open: list[tuple[_List | _Map, _Anchored, int]] = []
    _anchors: dict[str, _Anchored] = {}
    _size: int = 0

    def scalar(self, event: ScalarEvent) -> None:
        self._size += 1
        implicit = event.implicit[0]
        parent = self._open[-1][0] if self._open else None
        if parent is not None and parent.wants_key and event.value == _MERGE and (implicit or event.tag == _MERGE_TAG):
            parent.wants_merge = True
        value = scalars.resolve(event.value, event.tag, implicit=implicit)
        if event.anchor is not None:
            size = 1 + len(event.value) // _CHARACTERS
            self._anchors[event.anchor] = _Anchored(value=value, size=size, is_open=False)
        self._add_scalar(value)

    def alias(self, name: str | None) -> None:
        """Add the anchor's value once more."""
        anchored = self._anchors.get(name or "")
        if anchored is None:
            raise _EventError(f"unknown anchor {name} referenced")
        if anchored.is_open:
            raise _EventError(f"*{name} contains itself")
        self._size += anchored.size
        self.expansion.add(anchored.size)
        if isinstance(anchored.value, dict | list):
            self._refuse_as_key()
            self._add(_copy(anchored.value), aliased=True)
        else:
            self._add_scalar(anchored.value)

    def start(self, collection: _List | _Map, anchor: str | None) -> None:
        """Begin a list or map."""
        self._refuse_as_key()
        anchored = _Anchored()
        if anchor is not None:
            self._anchors[anchor] = anchored
        self._open.append((collection, anchored, self._size))
        self._size += 1
        if len(self._open) > MAX_DEPTH:
            raise _EventError(f"lists and maps are nested more than {MAX_DEPTH} deep")

    def end(self) -> None:
        """End the innermost list or map."""
        collection, anchored, before = self._open.pop()
        anchored.value, anchored.size, anchored.is_open = collection.value, self._size - before, False
        self._add(collection.value)

    def _refuse_as_key(self) -> None:
        if self._open and self._open[-1][0].wants_key:
            raise _EventError("invalid map key: a map or list (the {{ }} of a template must be rendered first)")

    def _add_scalar(self, value: scalars.Scalar) -> None:
        is_key = bool(self._open) and self._open[-1][0].wants_key
        self._add(scalars.key(value) if is_key else scalars.json_value(value))

    def _add(self, value: Json, *, aliased: bool = False) -> None:
        if self._open:
            self._open[-1][0].add(value, aliased=aliased)
        else:
            self.root = value


def first_value(events: Iterable[Any], expansion: Expansion) -> Json:
    """The value of the first document among PyYAML's events; None if there is none.

    ``expansion`` is that of the whole text.

    Raises:
        TreeError: the document has no JSON, or is too large.
    """
    import yaml  # noqa: PLC0415 (slow to import, and JSON doesn't need it)

    tree = _Tree(expansion=expansion)
    for event in events:
        try:
            match event:
                case yaml.ScalarEvent():
                    tree.scalar(event)
                case yaml.MappingStartEvent():
                    tree.start(_Map(), event.anchor)
                case yaml.SequenceStartEvent():
                    tree.start(_List(), event.anchor)
                case yaml.CollectionEndEvent():
                    tree.end()
                case yaml.AliasEvent():
                    tree.alias(event.anchor or "")
                case yaml.DocumentEndEvent():
                    break
        except (_EventError, scalars.ScalarError) as error:
            raise TreeError(event.start_mark.line, str(error)) from error
    return tree.root


def _copy(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value

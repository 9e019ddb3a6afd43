"""Reads the files that commands are given: their bytes, their text, and the values of YAML.

Every way in which a file can't be read is a usage error that names the file. YAML is checked event by event before it
is loaded, because libyaml's loader has no limit of nesting, and aliases can stand for any amount of data.
"""

from __future__ import annotations

import codecs
import gzip
import sys
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_DEPTH = 200
"""Nested lists and maps of a YAML document; Kubernetes' objects have less than 30."""
_MAX_EXPANDED = 1_000_000
_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_bytes(path: Path) -> bytes:
    """The UTF-8 text of a file; ``-`` is standard input. Gzip is unpacked; UTF-16, as PowerShell writes, is converted.

    Raises:
        UsageError: it can't be read, or is not text.
    """
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        data = gzip.decompress(data) if data[:2] == _GZIP else data
        if data.startswith(_UTF_16):
            return data.decode("utf-16").encode()
        data.decode()
    except UnicodeError as error:
        raise UsageError(f"{path}: not UTF-8 text: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise UsageError(f"{path}: broken gzip: {error}") from error
    return data.removeprefix(codecs.BOM_UTF8)


def yaml_documents(text: str | bytes, source: str) -> list[Any]:
    """The documents of a YAML text as JSON values, without empty ones; timestamps are strings. ``source`` names it.

    Raises:
        UsageError: it is not YAML, or nested too deeply.
    """
    import yaml  # noqa: PLC0415 (slow to import, and JSON doesn't need it)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if problem := _problem(yaml.parse(text, Loader=loader)):
            raise UsageError(f"{source}: {problem}")
        documents = [d for d in yaml.load_all(text, Loader=loader) if d is not None]
        return [msgspec.to_builtins(d, str_keys=True, enc_hook=str) for d in documents]
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        # a timestamp of month 13, a number of 5,000 digits and the like are plain ValueErrors
        raise UsageError(f"{source}: neither JSON nor YAML: {error}") from error


class _Shape:
    """The nesting of a YAML document so far, and the number of values that its aliases stand for."""

    def __init__(self) -> None:
        self.expanded = 0
        self._size = 0
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str, int] = {}

    @property
    def depth(self) -> int:
        return len(self._open)

    def is_open(self, anchor: str | None) -> bool:
        """Whether this is inside the value of the anchor."""
        return any(anchor == opened for opened, _ in self._open)

    def alias(self, anchor: str | None) -> None:
        """Add an alias of the anchor's value."""
        self._size += self._sizes.get(anchor or "", 1)
        self.expanded += self._sizes.get(anchor or "", 1)

    def scalar(self) -> None:
        """Add a scalar."""
        self._size += 1

    def start(self, anchor: str | None) -> None:
        """Add the start of a list or map."""
        self._open.append((anchor, self._size))
        self._size += 1

    def end(self) -> None:
        """Add the end of the innermost list or map."""
        anchor, start = self._open.pop()
        if anchor is not None:
            self._sizes[anchor] = self._size - start


def _problem(events: Iterable[Any]) -> str:
    """Why the YAML can't be loaded; empty if it can."""
    import yaml  # noqa: PLC0415 (the same)

    shape = _Shape()
    for event in events:
        line = event.start_mark.line + 1
        match event:
            case yaml.AliasEvent() if shape.is_open(event.anchor):
                return f"line {line}: *{event.anchor} contains itself"
            case yaml.AliasEvent():
                shape.alias(event.anchor)
            case yaml.ScalarEvent():
                shape.scalar()
            case yaml.CollectionStartEvent():
                shape.start(event.anchor)
            case yaml.CollectionEndEvent():
                shape.end()
            case yaml.DocumentEndEvent():
                shape = _Shape()
        if shape.depth > MAX_DEPTH:
            return f"line {line}: lists and maps are nested more than {MAX_DEPTH} deep"
        if shape.expanded > _MAX_EXPANDED:
            return f"line {line}: aliases stand for more than {_MAX_EXPANDED:,} values"
    return ""

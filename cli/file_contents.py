"""Reads the files that commands are given: their bytes, their text, and the values of YAML.

Every way in which a file can't be read is a usage error that names the file.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from typing import TYPE_CHECKING, Any

from cli.errors import UsageError
from shared.api.yaml_documents import reader

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 31
"""The most of a file that is read, and that gzip unpacks to: pods of 200,000 take half of it."""
MAX_RATIO = 200
"""How many times its own size a file may unpack to, if that is more than :data:`_SMALL`; objects in JSON reach 30."""
_SMALL = 64 << 20
_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_bytes(path: Path) -> bytes:
    """The UTF-8 text of a file; ``-`` is standard input. Gzip is unpacked; UTF-16, as PowerShell writes, is converted.

    Raises:
        UsageError: it can't be read, or is not text.
    """
    try:
        data = _read(path)
        data = _unpacked(path, data) if data[:2] == _GZIP else data
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


def _read(path: Path) -> bytes:
    """The file's bytes; a device or a pipe may have no end."""
    if str(path) == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: more than {MAX_BYTES >> 30} GiB")
    return data


def _unpacked(path: Path, data: bytes) -> bytes:
    most = min(MAX_BYTES, max(_SMALL, MAX_RATIO * len(data)))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unpacked = file.read(most + 1)
    if len(unpacked) > most:
        raise UsageError(f"{path}: gzip unpacks to more than {most >> 20} MiB, {most // len(data)} times the file")
    return unpacked


def yaml_documents(text: str | bytes, source: str) -> list[Any]:
    """The documents of a YAML or JSON text as JSON values, as kubectl reads them. ``source`` names the text.

    Raises:
        UsageError: it is neither, or nested too deeply.
    """
    try:
        return reader.documents(text)
    except reader.YamlError as error:
        raise UsageError(f"{source}: neither JSON nor YAML: {error}") from error

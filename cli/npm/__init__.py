"""JavaScript of others for pages that a browser shows, from npm packages that are pinned by version and digest.

It isn't kept in the repository: ``make setup`` fetches it (:mod:`cli.npm.fetch`), and the wheel is built with it.
"""

from __future__ import annotations

from pathlib import Path

from cli.errors import UsageError

FILES = Path(__file__).resolve().parent / "files"
"""The fetched files; not in the repository."""


class MissingFileError(UsageError):
    """A file that hasn't been fetched; the message says what to run."""


def text(name: str) -> str:
    """The contents of a fetched file, such as ``uplot.js``.

    Raises:
        MissingFileError: it hasn't been fetched.
    """
    try:
        return (FILES / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingFileError(f"{name} hasn't been fetched: run `make setup`, or `python -m cli.npm.fetch`") from error

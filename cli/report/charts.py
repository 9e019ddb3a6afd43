"""uPlot, the library that draws the report's charts: a package of npm, which `make setup` installs.

It is no part of the repository. package-lock.json pins its version and checksum; a wheel has the files below next to
the page. The charts are uPlot's (51 KB) because it is much smaller than other chart libraries, and steps over time are
all that is needed.
"""

from __future__ import annotations

from pathlib import Path

from cli.errors import CommandError

SCRIPT, STYLES, LICENSE = "dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"
"""Files of the package."""
IN_WHEEL = "uplot"
"""The folder of a wheel that has them, below the page's."""
_PAGE = Path(__file__).parent / "page"
INSTALLED = Path(__file__).resolve().parents[2] / "node_modules" / "uplot"
"""The folder of a checkout that has them."""


def read(name: str) -> str:
    """The text of one of the package's files.

    Raises:
        CommandError: uPlot isn't installed.
    """
    for folder in (_PAGE / IN_WHEEL, INSTALLED):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise CommandError(
        "the report's charts need uPlot, which isn't installed: run `make setup` in the checkout (it needs npm)"
    )

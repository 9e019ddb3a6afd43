"""Hooks of the site's build: pages with diagrams get mermaid, which draws them, from the site itself.

The theme would load it from a foreign host otherwise. It is 2.9 MB, so the other pages do without.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cli.npm import FILES, MissingFileError

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_SCRIPT = "mermaid.js"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 (mkdocs passes it)
    """The page's HTML, with mermaid where it has a diagram."""
    if '<pre class="mermaid">' not in output:
        return output
    top = "../" * page.url.count("/")
    return output.replace("</head>", f'<script src="{top}assets/{_SCRIPT}"></script></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Put mermaid into the site.

    Raises:
        MissingFileError: it hasn't been fetched.
    """
    if not (FILES / _SCRIPT).exists():
        raise MissingFileError(f"{_SCRIPT} hasn't been fetched: run `make setup`")
    for name in (_SCRIPT, "mermaid.LICENSE"):
        shutil.copy(FILES / name, Path(config.site_dir) / "assets" / name)

"""Hooks of the site's build: pages with diagrams get mermaid, which draws them, from the site itself.

The theme would load it from a foreign host otherwise. It is 2.9 MB, so the other pages do without.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_MERMAID = Path(__file__).resolve().parent.parent / "node_modules" / "@mermaid-js" / "tiny"
_FILES = {"mermaid.js": "dist/mermaid.tiny.js", "mermaid.LICENSE": "LICENSE"}


class MermaidMissingError(RuntimeError):
    """Mermaid isn't installed; the message says how to install it."""


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001 (mkdocs passes it)
    """The page's HTML, with mermaid where it has a diagram."""
    if '<pre class="mermaid">' not in output:
        return output
    top = "../" * page.url.count("/")
    return output.replace("</head>", f'<script src="{top}assets/mermaid.js"></script></head>', 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Put mermaid into the site.

    Raises:
        MermaidMissingError: it isn't installed.
    """
    for name, path in _FILES.items():
        if not (_MERMAID / path).exists():
            raise MermaidMissingError(f"{_MERMAID} has no {path}: run `make setup`, which installs it from npm")
        shutil.copy(_MERMAID / path, Path(config.site_dir) / "assets" / name)

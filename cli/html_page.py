"""What the pages of ``tenon report``, ``tenon shadow report`` and ``tenon verify`` share.

Each is one HTML file that makes no network requests, and runs no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_STYLES = Path(__file__).parent / "report" / "page" / "page.css"


def styles() -> str:
    """The styles of every page."""
    return _STYLES.read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its placeholders filled in: in one pass, so never one in the cluster's data.

    ``{{policy}}`` is the page's Content-Security-Policy.
    """
    with_policy = {**parts, "policy": _policy(template, parts)}
    return _PLACEHOLDER.sub(lambda match: with_policy[match[1]], template)


def _policy(template: str, parts: Mapping[str, str]) -> str:
    """Only the template's own scripts run, by their hashes: none that the cluster's data could bring along."""
    scripts = (_PLACEHOLDER.sub(lambda match: parts[match[1]], script) for script in _SCRIPT.findall(template))
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    return "; ".join(
        (
            "default-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "style-src 'unsafe-inline'",
            "img-src data:",
            " ".join(("script-src", *(hashes or ("'none'",)))),
        )
    )


def save(page: str, output: Path) -> None:
    """Write a page.

    Raises:
        UsageError: the file can't be written.
    """
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def notes(sentences: Iterable[str]) -> str:
    """A paragraph for each sentence."""
    return "".join(f'<p class="note">{html.escape(sentence)}</p>' for sentence in sentences)


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """A tile for each figure and its label."""
    return "".join(f'<div class="tile"><b>{html.escape(b)}</b><span>{html.escape(s)}</span></div>' for b, s in figures)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, figures: int, empty: str = "None."
) -> str:
    """A table whose last ``figures`` columns are numbers; the sentence ``empty`` if it has no rows.

    ``label`` names it for screen readers. Where it is wider than the window, it is scrolled by keyboard, too.
    """
    first = len(columns) - figures
    classes = ["figure" if i >= first else "" for i in range(len(columns))]

    def body_row(row: Sequence[str]) -> str:
        cells = zip(columns, row, classes, strict=True)
        return "<tr>" + "".join(cell(name, text, class_=class_) for name, text, class_ in cells) + "</tr>"

    body = "".join(map(body_row, rows))
    if not body:
        return f'<p class="quiet">{html.escape(empty)}</p>'
    head = "".join(
        f"<th scope='col'{f' class={class_}' if class_ else ''}>{html.escape(name)}</th>"
        for name, class_ in zip(columns, classes, strict=True)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def cell(column: str, text: str, *, class_: str = "") -> str:
    """A cell of a table's body, which has its column's name in front of it on a small screen."""
    classes = f' class="{html.escape(class_)}"' if class_ else ""
    return f'<td{classes} data-column="{html.escape(column)}">{html.escape(text)}</td>'

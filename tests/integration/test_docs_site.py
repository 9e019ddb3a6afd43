"""The docs' site in a real browser, at the widths of a phone, a small and a large window, light and dark.

``make docs`` runs it.
"""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.chromium import needs_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
MIN_DIAGRAM_HEIGHT = 150
DRAWN = f"""[...document.querySelectorAll('.mermaid')].every(
    (e) => e.tagName === 'DIV' && e.getBoundingClientRect().height > {MIN_DIAGRAM_HEIGHT})"""
BROKEN_IMAGES = "[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"
BROKEN_ANCHORS = """[...document.querySelectorAll('a[href^="#"]')].map((a) => decodeURIComponent(a.hash.slice(1)))
    .filter((id) => id && !document.getElementById(id))"""
WIDE = 1440
SCROLLED = """[...document.querySelectorAll('pre > code, .mermaid')].filter((e) => e.scrollWidth > e.clientWidth + 1)
    .map((e) => `${e.scrollWidth - e.clientWidth} px too wide: ${e.textContent.slice(0, 60)}`)"""
"""Code and diagrams that have to be scrolled sideways, which a large window shouldn't need."""
LINKS = "[...document.querySelectorAll('a[href]')].map((a) => a.href.split('#')[0])"

pytestmark = [pytest.mark.long, needs_chromium]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (the base class's)
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of a server of the site."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def problems_of(tab: Page, address: str, page: str) -> list[str]:
    """The problems of a page: messages, foreign requests, what is missing or cut."""
    problems: list[str] = []
    tab.on("console", lambda m: problems.append(m.text) if m.type in {"error", "warning"} else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda r: problems.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None)
    tab.on(
        "response",
        lambda r: problems.append(f"{r.status} {r.url}") if r.status >= http.HTTPStatus.BAD_REQUEST else None,
    )
    tab.goto(address + page)
    tab.wait_for_function(DRAWN, timeout=20_000)
    problems += tab.evaluate(BROKEN_IMAGES) + tab.evaluate(BROKEN_ANCHORS)
    if tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
        problems.append("wider than the window")
    if tab.viewport_size is not None and tab.viewport_size["width"] >= WIDE:
        problems += tab.evaluate(SCROLLED)
    return problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, WIDE])
def test_no_page_has_a_problem(browser: Browser, site: Path, address: str, width: int, scheme: Any) -> None:
    pages = [str(path.relative_to(site).parent) for path in sorted(site.rglob("index.html"))]
    assert len(pages) > 40
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    by_page, links, diagrams = {}, set(), 0
    for page in pages:
        tab = context.new_page()
        by_page[page] = problems_of(tab, address, "" if page == "." else f"{page}/")
        links |= {link for link in tab.evaluate(LINKS) if link.startswith(address)}
        diagrams += tab.locator(".mermaid").count()
        tab.close()
    assert {page: problems for page, problems in by_page.items() if problems} == {}
    assert diagrams >= 2
    missing = {link for link in links if not _exists(site, link.removeprefix(address))}
    assert missing == set()


def _exists(site: Path, path: str) -> bool:
    target = site / path
    return (target / "index.html").exists() if path.endswith("/") or not path else target.exists()

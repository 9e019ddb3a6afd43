"""Whether a page of ours fits its window: no text is cut off, and nothing lies over something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_CUT_OFF = """() => [...document.querySelectorAll("h1, h2, p, b, i, span, td, th, button")]
  .filter((e) => e.offsetParent && !e.closest(".name") && getComputedStyle(e).position !== "absolute")
  .filter((e) => {
    const box = e.getBoundingClientRect(), scroller = e.closest(".scroll");
    return e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 || !scroller && box.right > innerWidth + 1;
  }).map((e) => e.outerHTML.slice(0, 80))"""
"""The elements whose text is wider than they or the window are; names of nodes end in an ellipsis by intent."""
_OVERLAPS = """() => {
  const texts = "h1, h2, section > p, .tile, .chart, .timeline, .bar i, .launches p, svg, td";
  const boxes = [...document.querySelectorAll(texts)]
    .filter((e) => e.getClientRects().length).map((e) => [e, e.getBoundingClientRect()]);
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return boxes.flatMap(([e, a], i) => boxes.slice(i + 1)
    .filter(([f, b]) => !e.contains(f) && !f.contains(e) && over(a, b))
    .map(([f]) => e.outerHTML.slice(0, 60) + " | " + f.outerHTML.slice(0, 60)));
}"""
_MISPLACED_HEADINGS = """() => [...document.querySelectorAll("table")].flatMap((table) => {
  const region = table.parentElement.getBoundingClientRect();
  return [...table.querySelectorAll("th")].map((e) => [e, e.getBoundingClientRect()])
    .filter(([e, box]) => box.width && box.right > 0 && (box.top < region.top - 1 || box.bottom > region.bottom + 1))
    .map(([e]) => e.textContent);
})"""
"""The headings that are shown outside of their tables; those left of the window are for screen readers."""


def assert_fits(tab: Page) -> None:
    """Check that the page needs no sideways scrolling, cuts off no text, and that nothing overlaps."""
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate(_CUT_OFF) == []
    assert tab.evaluate(_OVERLAPS) == []
    assert tab.evaluate(_MISPLACED_HEADINGS) == []

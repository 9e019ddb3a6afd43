"""`tenon shadow report --html`: the page in a real browser, as wide as a phone and as screens, light and dark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest

from cli.shadow.days import ShadowDays
from cli.shadow.page import page
from shared.shadow.ledger import Day, Event, Offering, Sample, UnplacedPod, Usage
from shared.shadow.record import Record
from tests.integration.chromium import needs_chromium
from tests.integration.page_layout import assert_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

Action = Literal["adopted", "launched", "removed"]
START = datetime(2026, 3, 2, tzinfo=UTC)
LARGE, SMALL = (
    Offering("u7in-24tb.224xlarge", "ap-southeast-2-akl-1a", "on-demand"),
    Offering("m7i-flex.large", "us-east-1a", "spot"),
)
ACTIONS: tuple[tuple[Action, Offering, str], ...] = (
    ("adopted", LARGE, "196.605"),
    ("launched", SMALL, "0.0401"),
    ("removed", LARGE, ""),
)


def day(number: int) -> Day:
    """A day of a large cluster, with long names and every kind of figure."""
    start = START + timedelta(days=number)
    return Day(
        date=f"{start:%Y-%m-%d}",
        seconds=86_000,
        gap_seconds=700,
        skipped_seconds=400,
        usage=[
            Usage("real", LARGE, "196.605", 86_000 * 12),
            Usage("shadow", SMALL, "0.0401", 86_000 * 100),
            Usage("unscaled", SMALL, "", 600),
        ],
        adopted=2,
        launched=1200,
        removed={"Underutilized": 900, "Empty": 280},
        moved=12_000,
        unplaced=[
            UnplacedPod(
                "a-namespace-with-a-long-name/a-statefulset-of-an-even-longer-name-than-that-0",
                'no instance type of NodePool "default" has 64 vCPUs: karpenter.k8s.aws/instance-cpu must be below 33',
                80_000,
            )
        ],
        unplaced_pods=1,
        unplaced_seconds=80_000,
        events=[
            Event(
                start + timedelta(hours=hour),
                action,
                f"ip-10-0-{number}-{hour}.ap-southeast-2.compute.internal",
                "a-node-pool-with-a-long-name",
                offering,
                offering_price,
                13,
                "Underutilized: 13 pods fit on 2 other nodes, which saves $196.6050 per hour",
            )
            for hour, (action, offering, offering_price) in enumerate(ACTIONS, 1)
        ],
        samples=[
            Sample(start + timedelta(minutes=5 * i), 2359.26 - i, 4.01 + i % 7, 12, 100, 12_000) for i in range(280)
        ],
    )


DAYS = ShadowDays(
    cluster="a-cluster-with-a-name-of-the-greatest-length-that-eks-allows-for-it",
    record=Record(since=START, at=START + timedelta(days=2), notes=["Pods of 3 namespaces couldn't be read."]),
    days=(day(0), day(1)),
)
QUIET = ShadowDays(
    cluster="prod", record=Record(since=START, at=START), days=(Day(date="2026-03-02", seconds=300, runs=1),)
)


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page of a comparison; the browser must log no message and make no other request."""
    messages: list[str] = []
    opened: list[Page] = []

    def open_(shadow: ShadowDays, *, width: int, scheme: Any = "light") -> Page:
        path = tmp_path / "shadow.html"
        path.write_text(page(shadow), encoding="utf-8")
        tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        opened.append(tab)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: messages.append(request.url) if request.url != path.as_uri() else None)
        tab.goto(path.as_uri())
        return tab

    yield open_
    for tab in opened:
        tab.close()
    assert messages == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_nothing_is_cut_off_or_overlaps(open_page: Callable[..., Page], width: int, scheme: str) -> None:
    for shadow in (DAYS, QUIET):
        assert_fits(open_page(shadow, width=width, scheme=scheme))


@needs_chromium
def test_the_colours_follow_the_system(open_page: Callable[..., Page]) -> None:
    def background(scheme: str) -> str:
        tab = open_page(QUIET, width=1280, scheme=scheme)
        color: str = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return color

    assert [background("light"), background("dark")] == ["rgb(255, 255, 255)", "rgb(18, 22, 29)"]


@needs_chromium
def test_on_a_phone_each_cell_has_its_columns_name(open_page: Callable[..., Page]) -> None:
    tab = open_page(DAYS, width=390)
    for section, columns in (
        ("days", ["Counted", "Real $", "Tenon $", "Saved $", "Launched", "Removed", "Moved", "Without a place"]),
        ("events", ["Action", "Node", "NodePool", "Offering", "Reason", "Pods", "$/h"]),
    ):
        cells = tab.locator(f"section[aria-labelledby={section}] tbody tr").first.locator("td")
        names = cells.evaluate_all(
            "cells => cells.map((e) => getComputedStyle(e, '::before').content.replaceAll('\"', '').trim())"
        )
        assert names[1:] == columns


@needs_chromium
def test_a_cell_without_text_has_no_name_on_a_phone(open_page: Callable[..., Page]) -> None:
    last = open_page(DAYS, width=390).locator("section[aria-labelledby=events] tbody tr").nth(2)
    assert last.locator("td").last.text_content() == ""
    assert last.locator("td").last.is_hidden()


@needs_chromium
def test_a_colour_is_next_to_what_it_stands_for(open_page: Callable[..., Page]) -> None:
    for width in (390, 1280):
        for entry in open_page(DAYS, width=width).locator(".legend .entry").all():
            assert entry.evaluate("e => e.getClientRects().length") == 1


@needs_chromium
def test_tables_can_be_scrolled_by_keyboard_where_they_are_wider_than_the_window(
    open_page: Callable[..., Page],
) -> None:
    tab = open_page(DAYS, width=660)
    assert tab.evaluate("[...document.querySelectorAll('.scroll')].some((e) => e.scrollWidth > e.clientWidth)")
    reached = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert reached == ["Days", "What ran", "Pods without a place", "What Tenon would have done"]


def test_large_numbers_have_separators() -> None:
    html = page(DAYS)
    assert "<b>24,000</b><span>pods moved" in html
    assert "removed 2,360 and moved 24,000 pods" in html

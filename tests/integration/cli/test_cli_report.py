"""`tenon report`: the page of a recording, in a real browser, with mouse and keyboard."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cli.report import charts
from cli.report.costs import RecordedCost, RecordedCosts
from cli.report.page import page
from cli.report.recording import (
    Mark,
    NodeSpan,
    RecordedDecision,
    RecordedLaunches,
    Recording,
    Sample,
    total_cost,
)
from cli.report.traffic import RecordedTraffic
from cli.traffic.cross_zone import ServiceTraffic
from shared.base.struct import with_fields
from tests.integration.chromium import needs_chromium
from tests.integration.cli.command import call
from tests.integration.page_layout import assert_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPANS = [
    NodeSpan(
        name="ip-10-0-1-1.ec2.internal",
        pool="default",
        instance_type="m5.large",
        zone="us-east-1a",
        capacity_type="spot",
        price=0.04,
        created=2.0,
        launched=4.0,
        ready=40.0,
        deleted=300.0,
        terminated=310.0,
        most_pods=3,
        why="Empty: empty for 30 s </script><b>",
    ),
    NodeSpan(
        name="ip-10-0-1-2.ec2.internal", capacity_type="on-demand", price=0.1, created=60.0, launched=62.0, ready=95.0
    ),
]
RUN = Recording(
    title="demo <&> {{data}}",
    start=START,
    end=600.0,
    spans=SPANS,
    samples=[
        Sample(0.0, 0.0, 0.0, 0, 3),
        Sample(4.0, 0.04, 0.0, 0, 3),
        Sample(41.0, 0.04, 0.03, 3, 0),
        Sample(62.0, 0.14, 0.09, 9, 1),
        Sample(310.0, 0.1, 0.06, 6, 0),
    ],
    decisions=[
        RecordedDecision(
            at=300.0, node=SPANS[0].name, outcome="taken", reason="Empty", why="empty for 30 s", savings=0.04
        ),
        RecordedDecision(
            at=310.0, node=SPANS[1].name, outcome="refused", reason="Underutilized", why="budgets allow no more"
        ),
    ],
    launches=[RecordedLaunches(at=4.0, pods=9, nodes=2, planned=0.1, bought=0.102, before=0.04, realised=0.145)],
    marks=[Mark(0.0, "web 0 → 9")],
)
LIVE = Recording(
    title="prod in eu-central-1",
    start=START.replace(hour=13, minute=7),
    end=3.1 * 86_400,
    spans=SPANS,
    samples=[Sample(62.0, 0.14), Sample(3.1 * 86_400, 0.14, 0.09, 9, 1)],
    decisions=RUN.decisions,
    launches=[RecordedLaunches(at=9.0, pods=9, nodes=2, planned=0.1, bought=0.1, before=0.04, realised=0.04)],
    costs=RecordedCosts(
        label="team.example.org/name",
        rows=[
            RecordedCost(share="pods", namespace="a-namespace-with-a-long-name-of-a-tenant", value="red", cost=0.0801),
            RecordedCost(share="pods", namespace="web", cost=0.03),
            RecordedCost(share="daemons", cost=0.0099),
            RecordedCost(share="idle", cost=0.02),
        ],
        total=0.14,
        unpriced=1,
    ),
)
"""As of a live cluster: pods and the lower bound are known for now only; the pods run on nodes that existed before."""
TRAFFIC = RecordedTraffic(
    share=0.67,
    services=[
        ServiceTraffic(
            service="a-namespace-with-a-long-name/a-service-with-a-name-as-long",
            routing="Even",
            endpoints=3,
            share=0.67,
            same_zone_share=0.0,
            same_zone_load=1.5,
        )
    ],
)


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a recording's page; the browser must log no message and make no other request."""
    messages: list[str] = []
    opened: list[Page] = []

    def open_page(recording: Recording = RUN, *, scheme: Any = "light", **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_text(page(recording), encoding="utf-8")
        tab = browser.new_page(color_scheme=scheme, **options)
        opened.append(tab)
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: messages.append(request.url) if request.url != path.as_uri() else None)
        tab.goto(path.as_uri())
        tab.wait_for_selector("body[data-ready]")
        return tab

    yield open_page
    for tab in opened:
        tab.close()
    assert messages == []


@needs_chromium
def test_interruptions_are_marked_on_the_lane_of_their_node(open_report: Callable[..., Page]) -> None:
    reclaimed = RecordedDecision(
        at=300.0, node=SPANS[0].name, outcome="taken", reason="Interrupted", why="EC2 reclaims it"
    )
    tab = open_report(with_fields(RUN, decisions=[reclaimed]))
    assert tab.get_by_text("Red: EC2 interrupts 1 node.").count() == 1
    marks = tab.locator("#timeline .row:not(.axis)").first.locator(".lane .mark")
    assert marks.get_attribute("style") == "left: 50%;"
    assert tab.locator("#timeline .mark").count() == 1


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("traffic", [None, TRAFFIC], ids=["demo", "cluster"])
def test_nothing_is_cut_at_the_width_of_a_phone(
    open_report: Callable[..., Page], width: int, traffic: RecordedTraffic | None
) -> None:
    recording = with_fields(RUN, traffic=traffic)
    tab = open_report(recording, viewport={"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    cut = """[...document.querySelectorAll('.scroll td, .tile b, .bar i')]
        .filter((e) => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1)
        .map((e) => e.textContent)"""
    assert tab.evaluate(cut) == []


@needs_chromium
def test_it_draws_charts_nodes_and_decisions(open_report: Callable[..., Page]) -> None:
    tab = open_report()
    assert tab.title() == "demo <&> {{data}}"
    assert tab.locator("canvas").count() == 2
    assert tab.locator("#timeline .row:not(.axis)").count() == 2
    assert tab.locator("#timeline .lane .spot").count() == 1
    assert "lower bound" in tab.locator("#cost").inner_text()
    rows = tab.locator(".scroll tbody tr")
    assert rows.count() == 2
    assert rows.first.inner_text().split() == [
        "5:00",
        "ip-10-0-1-1",
        "taken",
        "Empty",
        "empty",
        "for",
        "30",
        "s",
        "−$0.0400",
    ]
    for chart in ("cost", "pods"):
        drawn = tab.locator(f"#{chart} canvas").evaluate(
            "c => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
        )
        assert drawn > 10, "a canvas with nothing on it has one colour"


@needs_chromium
def test_hovering_a_node_shows_its_details(open_report: Callable[..., Page]) -> None:
    tab = open_report()
    assert tab.locator("#detail").is_hidden()
    tab.locator("#timeline .row:not(.axis)").first.hover()
    details = tab.locator("#detail").inner_text()
    for words in ("ip-10-0-1-1.ec2.internal", "m5.large, spot, us-east-1a", "$0.0400/h", "after 38 s", "Empty: empty"):
        assert words in details


@needs_chromium
def test_everything_is_reachable_by_keyboard(open_report: Callable[..., Page]) -> None:
    tab = open_report()
    reached = []
    for _ in range(6):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached == ["skip", "theme", "cost", "pods", "timeline", "scroll"]
    tab.locator("#cost").focus()
    tab.keyboard.press("End")
    assert "10:00" in tab.locator("#detail").inner_text()
    assert "cost 0.1" in tab.locator("#detail").inner_text()
    tab.locator("#timeline").focus()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#timeline").get_attribute("aria-activedescendant") == "node-0"
    assert "ip-10-0-1-1" in tab.locator("#detail").inner_text()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("[role=option][aria-selected=true]").get_attribute("id") == "node-1"
    tab.keyboard.press("Escape")
    assert tab.locator("#detail").is_hidden()


@needs_chromium
def test_the_theme_follows_the_system_and_the_button(open_report: Callable[..., Page]) -> None:
    def background(tab: Page) -> str:
        color: str = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return color

    light = open_report()
    assert background(light) == "rgb(255, 255, 255)"
    light.locator("#theme").press("Enter")
    assert background(light) == "rgb(18, 22, 29)"
    assert background(open_report(scheme="dark")) == "rgb(18, 22, 29)"


@needs_chromium
def test_an_empty_recording_is_a_page_too(open_report: Callable[..., Page]) -> None:
    tab = open_report(Recording(title="quiet", start=START, end=0.0))
    assert "No nodes." in tab.inner_text("#timeline")
    assert "There are no decisions." in tab.inner_text("main")


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_nothing_is_cut_off_or_overlaps(open_report: Callable[..., Page], width: int, scheme: str) -> None:
    for recording in (RUN, LIVE):
        tab = open_report(recording, scheme=scheme, viewport={"width": width, "height": 900})
        assert_fits(tab)


@needs_chromium
def test_on_a_phone_each_cell_has_its_columns_name(open_report: Callable[..., Page]) -> None:
    tab = open_report(viewport={"width": 390, "height": 800})
    cells = tab.locator(".scroll tbody tr").first.locator("td")
    labels = [
        cells.nth(i).evaluate("e => getComputedStyle(e, '::before').content.replaceAll('\"', '').trim()")
        for i in range(1, cells.count())
    ]
    assert labels == ["Node", "Outcome", "Reason", "Message", "$/h"]


@needs_chromium
def test_bars_of_equal_prices_are_equally_long(open_report: Callable[..., Page]) -> None:
    equal = RecordedLaunches(at=4.0, pods=9, nodes=2, planned=0.1, bought=0.1, before=0.0, realised=0.1)
    for width in (390, 1440):
        tab = open_report(with_fields(RUN, launches=[equal]), viewport={"width": width, "height": 800})
        bars = [tab.locator(f".bar .{name}") for name in ("planned", "bought", "realised")]
        assert len({round(bar.bounding_box()["width"]) for bar in bars}) == 1  # type: ignore[index]  # they are visible


@needs_chromium
def test_ticks_of_long_runs_are_at_round_times_with_whole_dates(open_report: Callable[..., Page]) -> None:
    """A canvas has no text to read, but the timeline's axis has the same ticks."""
    tab = open_report(LIVE, viewport={"width": 1440, "height": 900})
    ticks = tab.locator(".axis .lane span").all_inner_texts()
    assert len(ticks) >= 3
    assert all(re.fullmatch(r"2026-05-\d\d( (00|06|12|18):00)?", tick) for tick in ticks)


@needs_chromium
def test_what_is_only_known_for_now_is_no_chart(open_report: Callable[..., Page]) -> None:
    tab = open_report(LIVE)
    assert tab.inner_text("#pods") == "Only known for now: 9 scheduled, 1 pending."
    assert "lower bound" not in tab.inner_text(".tiles")


@needs_chromium
def test_the_cost_of_namespaces_is_a_table_that_ends_with_the_bill(open_report: Callable[..., Page]) -> None:
    section = open_report(LIVE, viewport={"width": 1280, "height": 800}).locator("section[aria-labelledby=costs]")
    rows = [row.split("\t") for row in section.locator("tr").all_inner_texts()]
    assert rows[0] == ["Namespace", "team.example.org/name", "$/h", "Share"]
    assert rows[2:] == [
        ["web", "none", "$0.0300", "21.4%"],
        ["DaemonSets and static pods", "", "$0.0099", "7.1%"],
        ["idle", "", "$0.0200", "14.3%"],
        ["total", "", "$0.1400", "100.0%"],
    ]
    assert "Without 1 node whose price is unknown." in section.inner_text()


@needs_chromium
def test_it_fits_a_small_screen(open_report: Callable[..., Page]) -> None:
    tab = open_report(viewport={"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_makes_no_network_requests() -> None:
    html = page(RUN)
    assert "default-src 'none'" in html
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", html)
    assert len(html) < 100_000
    assert "</script><b>" not in html


def test_planned_bought_and_realised_price_are_drawn_on_one_scale() -> None:
    bars = re.findall(r'<span class="(planned|bought|before|realised)" style="width:([\d.]+)%"', page(RUN))
    widths = {name: float(width) for name, width in bars if float(width)}
    assert widths["bought"] == pytest.approx(widths["planned"] * 1.02, rel=1e-3)
    assert widths["before"] + widths["realised"] == pytest.approx(widths["planned"] * 1.45, rel=1e-3)
    assert "bought $0.10/h (+2.0%)" in page(RUN)


def test_the_total_cost_is_the_area_under_the_cost() -> None:
    total, least = total_cost(RUN)
    assert total == pytest.approx((0.04 * 58 + 0.14 * 248 + 0.1 * 290) / 3600)
    assert least is not None
    assert least == pytest.approx((0.03 * 21 + 0.09 * 248 + 0.06 * 290) / 3600)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), ("{}", "not a recording"), ('{"version": 9}', "version 1 is required")],
)
def test_an_invalid_recording_is_reported_in_one_line(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    done = call("report", str(path))
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_without_uplot_the_command_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "INSTALLED", tmp_path)
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(RUN))
    for command in (["report", str(tmp_path / "run.json"), "-o"], ["demo", "--report"]):
        done = call(*command, str(tmp_path / "run.html"))
        assert done.code == 1
        assert "uPlot, which isn't installed: run `make setup`" in done.err
        assert done.err.count("\n") == 1
        assert not (tmp_path / "run.html").exists()


def test_the_page_has_the_license_of_its_charts() -> None:
    html = page(RUN)
    assert charts.read(charts.LICENSE) in html
    assert "Permission is hereby granted" in html

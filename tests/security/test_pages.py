"""Names and messages on the HTML pages that commands write: they stay text, and bring no script along.

Every text of what a page shows is replaced by one that would be markup. The page then has the same elements and
attributes as with a harmless text, and its policy lets no script run but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.sync_api import sync_playwright

from cli.report import page as report_page
from cli.report.recording import Recording
from cli.shadow import page as shadow_page
from cli.shadow.days import ShadowDays
from cli.verify import page as verify_page
from cli.verify.output import VerificationReport
from shared.shadow.ledger import Day
from shared.shadow.record import Record
from tests.integration.chromium import CHROMIUM, needs_chromium

if TYPE_CHECKING:
    from collections.abc import Callable

AT = datetime(2026, 11, 27, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
MARKUP = (
    "</script></title></style><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    "'\" onmouseover='document.title=1' {{data}} {{scripts}} <!-- ]]> &lt;script&gt;"
)
HARMLESS = "web-1"


class Elements(HTMLParser):
    """The elements of a page with their attributes' names, and the texts of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.scripts: list[str] = []
        self.policy = ""
        self._is_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.elements.append((tag, *values))
        self._is_script = tag == "script" and "type" not in values
        if self._is_script:
            self.scripts.append("")
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.scripts[-1] += data

    def handle_endtag(self, _tag: str) -> None:
        self._is_script = False


def example(type_: msgspec.inspect.Type, text: str) -> Any:
    """A value of a type, all of whose texts are this one."""
    value: Any
    match type_:
        case msgspec.inspect.StrType():
            value = f"{AT:%Y-%m-%dT%H:%M:%SZ}" if _is_time(type_) else text
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
            value = type_.cls(**{field.name: example(field.type, text) for field in type_.fields})
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            value = [example(type_.item_type, text)]
            value = value if isinstance(type_, msgspec.inspect.ListType) else tuple(value)
        case msgspec.inspect.DictType():
            value = {example(type_.key_type, text): example(type_.value_type, text)}
        case msgspec.inspect.UnionType():
            value = example(next(t for t in type_.types if not isinstance(t, msgspec.inspect.NoneType)), text)
        case msgspec.inspect.LiteralType():
            value = type_.values[0]
        case msgspec.inspect.Metadata():
            value = example(type_.type, text)
        case _:
            value = _SCALARS[type(type_)]
    return value


_SCALARS: dict[type, Any] = {
    msgspec.inspect.IntType: 3,
    msgspec.inspect.FloatType: 1.5,
    msgspec.inspect.BoolType: False,
    msgspec.inspect.DateTimeType: AT,
}


def _is_time(type_: Any) -> bool:
    return bool(type_.pattern)


def of(type_: type, text: str, **fixed: Any) -> Any:
    """The example of a struct, but for these fields."""
    value = example(msgspec.inspect.type_info(type_), text)
    return msgspec.structs.replace(value, **fixed)


def _report(text: str) -> str:
    return report_page.page(of(Recording, text, end=600.0))


def _shadow(text: str) -> str:
    day = of(Day, text, date=str(date(2026, 11, 27)))
    usage = [msgspec.structs.replace(u, price="0.1") for u in day.usage]
    events = [msgspec.structs.replace(e, price=text) for e in day.events]
    day = msgspec.structs.replace(day, usage=usage, events=events)
    return shadow_page.page(ShadowDays(cluster=text, record=of(Record, text), days=(day,)))


def _verify(text: str) -> str:
    return verify_page.page(of(VerificationReport, text, passed=False))


PAGES = {"report": _report, "shadow": _shadow, "verify": _verify}
pages = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@pages
def test_markup_in_a_name_adds_no_element_and_no_attribute(page: Callable[[str], str]) -> None:
    hostile = page(MARKUP)
    assert html.escape(MARKUP) in hostile  # it is shown
    assert Elements(hostile).elements == Elements(page(HARMLESS)).elements


@pages
def test_only_the_pages_own_scripts_may_run(page: Callable[[str], str]) -> None:
    parsed = Elements(page(MARKUP))
    directives = dict(part.strip().split(" ", 1) for part in parsed.policy.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in parsed.scripts]
    assert directives["script-src"].split() == hashes
    assert not any(name.startswith("on") for _, *names in parsed.elements for name in names)


@needs_chromium
@pages
def test_a_browser_runs_no_script_of_a_name_even_if_it_were_not_escaped(
    page: Callable[[str], str], tmp_path: Path
) -> None:
    """The second wall: with the escaping taken away again, the policy alone stops the script."""
    escaped = tmp_path / "escaped.html"
    escaped.write_text(page(MARKUP), encoding="utf-8")
    raw = tmp_path / "raw.html"
    raw.write_text(page(HARMLESS).replace("</main>", f"{MARKUP}</main>"), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for path in (escaped, raw):
            tab = browser.new_page()
            tab.goto(path.as_uri())
            assert tab.title() != "run", path.name
        browser.close()


def test_every_page_template_has_the_policy_in_its_head() -> None:
    templates = [p for folder in ("cli", "bench", "docs") for p in (ROOT / folder).rglob("*.html")]
    assert len(templates) >= 4
    for path in templates:
        head = path.read_text(encoding="utf-8").partition("</head>")[0]
        policy = head.find('<meta http-equiv="Content-Security-Policy" content="{{policy}}">')
        first = re.search(r"<(script|style)", head)
        assert policy != -1, path
        assert first is None or policy < first.start(), path

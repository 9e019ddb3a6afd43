"""Tenon, judged by engines of AWS's behaviour that aren't ours: only ``make test-aws`` runs these tests.

Each is skipped where its engine can't be installed, and the reason is printed. The counts of what was judged are
printed at the end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.aws_judges import engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.terminal import TerminalReporter

_COUNTED = "judged: "
_TABLE_ROW = "bundle: "


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that no other target runs it."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.aws)


def _or_skip(engine: Callable[[], Path]) -> Path:
    try:
        return engine()
    except engines.MissingToolError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def iam_engine() -> Path:
    """The IAM simulator."""
    return _or_skip(engines.iam)


@pytest.fixture(scope="session")
def rule_engine() -> Path:
    """EventBridge's rule engine."""
    return _or_skip(engines.event_rules)


@pytest.fixture
def judged(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """Count what was judged, by its name in the summary."""
    return lambda name, count: record_property(f"{_COUNTED}{name}", count)


@pytest.fixture
def bundle_row(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Add a row to the summary's table of bundles."""
    return lambda row: record_property(_TABLE_ROW, row)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the counts of all workers, and the table of bundles."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    properties = [own for report in reports if report.when == "call" for own in report.user_properties]
    counts = Counter[str]()
    for name, value in properties:
        if name.startswith(_COUNTED):
            counts[name.removeprefix(_COUNTED)] += int(value)
    rows = sorted(str(value) for name, value in properties if name == _TABLE_ROW)
    if counts:
        terminalreporter.section("judged by engines of AWS's behaviour")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:>8}  {name}")
    for row in rows:
        terminalreporter.write_line(row)

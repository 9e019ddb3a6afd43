"""A plugin of pytest that logs which tests start and fail, for the process that started it.

It is loaded by ``-p tests.faults.failure_log`` and writes to the file that the environment names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "TENON_FAULTS_LOG"
STARTED, FAILED, ENDED = "started", "failed", "ended"
_PATH = os.environ.get(VARIABLE, "")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Log a test that begins: if it never ends, it hangs."""
    _write(STARTED, nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Log a test that has ended."""
    _write(ENDED, nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Log a test that failed, in its setup and teardown too."""
    if report.failed:
        _write(FAILED, report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Log a file that can't be imported."""
    if report.failed:
        _write(FAILED, report.nodeid)


def _write(outcome: str, test: str) -> None:
    if _PATH:
        with Path(_PATH).open("a", encoding="utf-8") as file:
            file.write(f"{outcome} {test}\n")


def read(path: Path) -> tuple[list[str], list[str]]:
    """The tests that failed, and those that have not ended, each in the order of the log."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    tests: dict[str, list[str]] = {STARTED: [], FAILED: [], ENDED: []}
    for line in lines:
        outcome, _, test = line.partition(" ")
        tests[outcome].append(test)
    ended = set(tests[ENDED])
    return list(dict.fromkeys(tests[FAILED])), [test for test in tests[STARTED] if test not in ended]

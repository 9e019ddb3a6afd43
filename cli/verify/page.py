"""The report as one HTML page that makes no network requests, in the look of ``tenon report``."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cli.verify.call_times import Latency
    from cli.verify.output import VerificationReport

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def save(report: VerificationReport, output: Path) -> None:
    """Write the page.

    Raises:
        UsageError: the file can't be written.
    """
    try:
        output.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror or error}") from error


def page(report: VerificationReport) -> str:
    """The page's HTML."""
    failed = [step for step in report.steps if step.status == "failed"]
    notes = [f"{step.step}: {step.sentence}" for step in failed]
    notes += [f"Not removed: {name}" for name in report.left_over]
    parts = {
        "title": f"Verification {'passed' if report.passed else 'failed'}",
        "span": html.escape(
            f"Tenon {report.tenon}, Kubernetes {report.kubernetes}, {report.region}, {report.begun_at[:16]} UTC"
        ),
        "tiles": _tiles(report),
        "notes": "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes),
        "steps": _steps(report),
        "measured": _table(
            ("Step", "Duration", "Seconds"),
            ((s.step, m.name, f"{m.seconds:.1f}") for s in report.steps for m in s.measured),
            figures=1,
        ),
        "latencies": _table(
            ("Operation", "Calls", "Median, s", "Assumed", "99th percentile, s", "Assumed"),
            ((name, str(v.count), *map(_seconds, _times(v))) for name, v in report.latencies.items()),
            figures=5,
        ),
        "styles": (files("cli.report") / "page" / "page.css").read_text(encoding="utf-8"),
    }
    template = (files("cli.verify") / "page.html").read_text(encoding="utf-8")
    # In one pass, so that a placeholder in the cluster's data is never filled in.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], template)


def _times(latency: Latency) -> tuple[float, ...]:
    return latency.median, latency.assumed_median, latency.p99, latency.assumed_p99


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _tiles(report: VerificationReport) -> str:
    passed = sum(step.status == "passed" for step in report.steps)
    tiles = [
        (f"{passed} of {len(report.steps)}", "steps passed"),
        (f"{report.seconds / 60:.0f} min", "took"),
        (f"${report.usd:.2f}", "cost, at most"),
        (f"{len(report.calls)}", "calls to AWS"),
    ]
    return "".join(f'<div class="tile"><b>{html.escape(b)}</b><span>{html.escape(s)}</span></div>' for b, s in tiles)


def _steps(report: VerificationReport) -> str:
    rows = "".join(
        f'<tr><td class="node">{html.escape(s.step)}</td><td class="{s.status}">{s.status}</td>'
        f'<td>{html.escape(s.sentence)}</td><td class="figure">{s.seconds:.0f}</td></tr>'
        for s in report.steps
    )
    head = "<tr><th>Step</th><th>Verdict</th><th>What was seen</th><th class=figure>Seconds</th></tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, figures: int) -> str:
    """A table whose last ``figures`` columns are numbers."""
    first = len(columns) - figures

    def cells(texts: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=figure' if i >= first else ''}>{html.escape(text)}</{tag}>" for i, text in enumerate(texts)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    if not body:
        return '<p class="quiet">Nothing was measured.</p>'
    head = f"<tr>{cells(columns, 'th')}</tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'

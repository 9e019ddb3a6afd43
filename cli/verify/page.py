"""The report as one HTML page that makes no network requests, in the look of ``tenon report``."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from cli import html_page

if TYPE_CHECKING:
    from cli.verify.call_times import Latency
    from cli.verify.output import VerificationReport
    from cli.verify.result import StepResult

_NOTHING = "Nothing was measured."


def save(report: VerificationReport, output: Path) -> None:
    """Write the page.

    Raises:
        UsageError: the file can't be written.
    """
    html_page.save(page(report), output)


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
        "notes": html_page.notes(notes),
        "steps": _steps(report),
        "measured": html_page.table(
            ("Step", "Duration", "Seconds"),
            ((s.step, m.name, f"{m.seconds:.1f}") for s in report.steps for m in s.measured),
            label="Measured",
            figures=1,
            empty=_NOTHING,
        ),
        "latencies": html_page.table(
            ("Operation", "Calls", "Median, s", "Assumed", "99th percentile, s", "Assumed"),
            ((name, str(v.count), *map(_seconds, _times(v))) for name, v in report.latencies.items()),
            label="Latencies of AWS's calls",
            figures=5,
            empty=_NOTHING,
        ),
        "styles": html_page.styles(),
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return html_page.filled(template, parts)


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
    return html_page.tiles(tiles)


def _steps(report: VerificationReport) -> str:
    def row(step: StepResult) -> str:
        cells = (
            ("Step", step.step, "node"),
            ("Verdict", step.status, step.status),
            ("What was seen", step.sentence, ""),
            ("Seconds", f"{step.seconds:.0f}", "figure"),
        )
        return "<tr>" + "".join(html_page.cell(name, text, class_=class_) for name, text, class_ in cells) + "</tr>"

    rows = "".join(map(row, report.steps))
    head = "<tr><th>Step</th><th>Verdict</th><th>What was seen</th><th class=figure>Seconds</th></tr>"
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Steps"><table>'
        f"<thead>{head}</thead><tbody>{rows}</tbody></table></div>"
    )

"""What runs of Karpenter's suites say about Tenon: the page docs/karpenter-suite.md, made of Ginkgo's JSON reports.

A spec that hasn't passed needs a reason in reasons.yaml, under its full name or that of a container around it. A reason
whose specs all pass is out of date. Both are errors, so that nothing is skipped silently and no reason outlives its
cause.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_PASSED = "passed"
_SKIPPED = "skipped"
_SPEC = "It"
_HEAD = """# Karpenter's own test suites

`make test-karpenter` runs the suites of Karpenter {version} against Tenon: unmodified, on a real control plane, with
machines that join about 5 s after their launch. They know the cluster by a kubeconfig only, and expect nodes,
NodeClaims and pods to become what they would under Karpenter. Every spec that hasn't passed is listed with its reason,
from `tests/karpenter/reasons.yaml`; a spec that fails without one makes the target fail.

Specs change a Deployment of Karpenter's and read its metrics. `tests/karpenter/stand_in.py` has one that does nothing:
what feature gates turn on there, annotations of the default NodePool turn on here. Thresholds of the controller's
memory and processor time are off, as the process that is measured has the kubelets and the local AWS in it.
"""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A spec of a run. ``state`` is Ginkgo's, ``message`` that of its failure, ``seconds`` its duration."""

    name: str
    state: str
    message: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it ran and passed."""
        return self.state == _PASSED


def read(path: Path) -> list[Spec]:
    """The specs of a report in the suite's order, without those that the run's focus or skip left out."""
    reports = [report for suite in json.loads(path.read_text()) for report in suite["SpecReports"] or []]
    return [_spec(report) for report in reports if report["LeafNodeType"] == _SPEC and not _is_left_out(report)]


def merged(runs: Iterable[Sequence[Spec]]) -> list[Spec]:
    """Every spec once, with the result of the last run that has it."""
    specs = {spec.name: spec for run in runs for spec in run}
    return list(specs.values())


def reason(spec: Spec, reasons: Mapping[str, str]) -> str:
    """Why the spec doesn't pass, by the longest name that fits; empty if there is none."""
    names = [name for name in reasons if _is_of(spec, name)]
    return reasons[max(names, key=len)] if names else ""


def unexplained(specs: Iterable[Spec], reasons: Mapping[str, str]) -> list[Spec]:
    """The specs that haven't passed and have no reason."""
    return [spec for spec in specs if not spec.passed and not reason(spec, reasons)]


def outdated(specs: Sequence[Spec], reasons: Mapping[str, str]) -> list[str]:
    """The names in the reasons that no spec has, or of which every spec has passed."""
    return [name for name in reasons if all(spec.passed for spec in specs if _is_of(spec, name))]


def page(suites: Mapping[str, Sequence[Spec]], reasons: Mapping[str, str], *, version: str, run: str) -> str:
    """The Markdown page: for each suite the count, and every spec that hasn't passed with its reason.

    ``run`` tells when and on what machine they ran.
    """
    parts = [_HEAD.format(version=version)]
    parts += [_section(name, specs, reasons) for name, specs in suites.items()]
    return "\n".join([*parts, f"{run}\n"])


def _section(suite: str, specs: Sequence[Spec], reasons: Mapping[str, str]) -> str:
    passed = sum(spec.passed for spec in specs)
    minutes = sum(spec.seconds for spec in specs) / 60
    lines = [f"## {suite}\n", f"{passed} of {len(specs)} specs passed; their durations sum to {minutes:.0f} minutes.\n"]
    rows = [(spec.name, spec.state, reason(spec, reasons)) for spec in specs if not spec.passed]
    if rows:
        lines += ["| not passed | state | reason |", "|---|---|---|"]
        lines += ["| " + " | ".join(_cell(text) for text in row) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _is_of(spec: Spec, name: str) -> bool:
    """Whether the name is the spec's, or that of a container around it."""
    return spec.name == name or spec.name.startswith(f"{name} ")


def _is_left_out(report: Mapping[str, Any]) -> bool:
    """Whether the run's flags left the spec out; one that skips itself says why."""
    return bool(report["State"] == _SKIPPED and not report.get("Failure", {}).get("Message"))


def _spec(report: Mapping[str, Any]) -> Spec:
    return Spec(
        name=" ".join([*(report["ContainerHierarchyTexts"] or []), report["LeafNodeText"]]),
        state=report["State"],
        message=report.get("Failure", {}).get("Message", ""),
        seconds=report["RunTime"] / 1e9,
    )

"""The page of Karpenter's metrics: each name of its reference, and what is here in its place.

docs/fields/metrics.yaml has the names, those that are renamed, and the reasons of those that are absent; whether a name
is emitted follows from the lists that functions and ``tenon export`` emit from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cli.export import families
from docs.markdown import table
from shared.base import metrics

_FILE = Path(__file__).parent / "fields" / "metrics.yaml"


def ledger() -> dict[str, Any]:
    """The names of Karpenter's reference with their ``source``, and what is ``renamed`` or ``absent``."""
    loaded: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {**loaded, "names": loaded["names"].split()}


def emitted() -> dict[str, list[str]]:
    """Who emits each metric: the export, functions (in CloudWatch), or both."""
    who: dict[str, list[str]] = {family.name: ["export"] for family in families.ALL}
    for metric in metrics.ALL:
        who.setdefault(metric.name, []).append("CloudWatch")
    return who


def page() -> str:
    """The whole page."""
    known, who = ledger(), emitted()
    reasons = {name: entry["reason"] for entry in known["absent"] for name in entry["names"]}
    rows = [(f"`{name}`", *_answer(name, who, known["renamed"], reasons)) for name in known["names"]]
    counts = {kind: sum(row[1].startswith(kind) for row in rows) for kind in ("same name", "renamed", "absent")}
    summary = "{same name} have the same name here, {renamed} another, {absent} are absent.".format(**counts)
    return "\n".join(
        [
            "# Karpenter's metrics",
            "",
            f"Every metric of [Karpenter's reference]({known['source']}):",
            summary,
            "*export* is `tenon export`, for Prometheus and without charge ([labels](../metrics.md#all-metrics)).",
            "*CloudWatch* is [the functions' own](metrics.md), with `-c observability=full`: each is USD 0.30 a month,",
            "so they have no dimension but cluster and function.",
            "",
            *table(("Karpenter", "here", "where, or why not"), rows),
        ]
    )


def _answer(
    name: str, who: dict[str, list[str]], renamed: dict[str, list[str]], reasons: dict[str, str]
) -> tuple[str, str]:
    if name in who:
        return "same name", ", ".join(who[name])
    if name in renamed:
        return "renamed", "; ".join(f"`{alias}` ({', '.join(who[alias])})" for alias in renamed[name])
    return "absent", reasons[name]

"""Generates the pages that follow from the code: ``python -m docs.generate``; ``--check`` only compares.

Sources are the CustomResourceDefinitions, the synthesised template (permissions), the table of options, each function's
settings, the metrics in shared/base/metrics.py, the code that records events, the local world's instance types, the
scheduling core's decisions for examples, the types of what commands print as JSON, the ledger of fields, and
measurements (costs). docs/descriptions.py has the descriptions that the code doesn't have; a description that is
missing or unused is an error.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from bench import cost_page
from docs import (
    constraints_page,
    events_page,
    export_page,
    fields_page,
    iam_page,
    instance_types_page,
    json_page,
    karpenter_metrics_page,
    kinds_page,
)
from docs.descriptions import CLUSTERS, SETTINGS_MEANINGS
from docs.markdown import complete, field_docstrings, table
from infra import function_sizes
from infra.cluster import functions
from infra.options import stack_options
from shared.api import crds
from shared.base import metrics, settings

DOCS = Path(__file__).resolve().parent
_NOTICE = "<!-- Written by docs/generate.py; change what it reads, then run `make docs`. -->\n\n"


def pages() -> dict[str, str]:
    """Every page, by its path in docs."""
    texts = {f"reference/{d['spec']['names']['kind'].lower()}.md": kinds_page.page(d) for d in crds.load()}
    texts |= {
        "metrics.md": export_page.page(),
        "reference/metrics.md": _metrics(),
        "reference/karpenter-metrics.md": karpenter_metrics_page.page(),
        "reference/settings.md": _settings(),
        "reference/events.md": events_page.page(),
        "reference/fields.md": fields_page.page(),
        "reference/iam.md": iam_page.page(),
        "reference/instance-types.md": instance_types_page.page(),
        "constraints.md": constraints_page.page(),
        "cost-model.md": cost_page.page(),
        "json-output.md": json_page.page(),
    }
    pages = {name: _NOTICE + text.rstrip() + "\n" for name, text in texts.items()}
    return {**pages, "compatibility.md": fields_page.with_table(DOCS / "compatibility.md")}


def _metrics() -> str:
    rows = [(f"`{m.name}`", m.function, m.unit.value, m.statistic, m.description) for m in metrics.ALL]
    return "\n".join(
        [
            "# Metrics in CloudWatch",
            "",
            "For Prometheus, `tenon export` has these and the cluster's own: [Prometheus and Grafana](../metrics.md).",
            "",
            (
                f"In CloudWatch, namespace `{metrics.NAMESPACE}`, with the dimensions `{metrics.CLUSTER}` and "
                f"`{metrics.SERVICE}` (the function). They are written as log lines (embedded metric format), so they "
                "need no API calls; zero counts are not written. Values by NodePool, instance type or node are in the "
                "log lines; the dashboard has the queries."
            ),
            "",
            *table(("metric", "by", "unit", "statistic", "meaning"), rows),
        ]
    )


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "## Of a deployment",
        "",
        "With `-c KEY=VALUE` of `cdk deploy`, or in `cdk.json`. Unknown keys are refused.",
        "",
    ]
    fields = {option.key: name for name, option in stack_options.OPTIONS.items()}
    meanings = {"clusters": CLUSTERS, **field_docstrings(stack_options.StackOptions)}
    lines += table(("key", "meaning"), [(f"`{key}`", meanings[fields.get(key, key)]) for key in stack_options.KEYS])
    used: dict[str, list[str]] = defaultdict(list)
    for function in function_sizes.OF_ANY_MODE:
        for name in functions.setting_names(function):
            used[name].append(function)
    complete("setting", set(used), set(SETTINGS_MEANINGS))
    lines += [
        "",
        "## Of the functions",
        "",
        "Environment variables. The stack sets those that each function reads.",
        "",
    ]
    setting_rows = [
        (f"`{settings.variable(n)}`", ", ".join(by), SETTINGS_MEANINGS[n]) for n, by in sorted(used.items())
    ]
    lines += table(("variable", "read by", "meaning"), setting_rows)
    lines += ["", "## Sizes", "", "In `infra/function_sizes.py`, each with its reason.", ""]
    size_rows = [
        (name, f"{s.memory} MiB", f"{s.timeout} s", "the account's" if s.reserved is None else str(s.reserved))
        for name, s in function_sizes.SIZES.items()
    ]
    return "\n".join([*lines, *table(("function", "memory", "timeout", "reserved concurrency"), size_rows)])


def stale() -> list[str]:
    """The pages that differ from the code, by their path in docs."""
    return [name for name, text in pages().items() if not _is_current(DOCS / name, text)]


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main() -> int:
    """Write the pages, or with ``--check`` list those that are not current (exit code 1)."""
    if "--check" in sys.argv[1:]:
        names = stale()
        if names:
            print(f"not current, run `make docs`: {', '.join(names)}", file=sys.stderr)
        return 1 if names else 0
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        if not _is_current(path, text):
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The Grafana dashboard and the alerting rules are what Grafana and Prometheus read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli.export import dashboard, families, queries, rules
from tests.unit.code.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PANELS = dashboard.build()["panels"]
NAMES = {f.name for f in families.ALL} | {f"{f.name}{s}" for f in families.ALL for s in ("_sum", "_count")}
ALERTS = rules.build()["groups"][0]["rules"]


def expressions() -> list[str]:
    return [t["expr"] for p in PANELS for t in p.get("targets", ())] + [rule["expr"] for rule in ALERTS]


def test_panels_do_not_overlap_and_fill_the_width() -> None:
    def cells(panel: dict[str, Any]) -> tuple[range, range]:
        at = panel["gridPos"]
        return range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])

    for a, b in combinations(PANELS, 2):
        (ax, ay), (bx, by) = cells(a), cells(b)
        assert not (set(ax) & set(bx) and set(ay) & set(by)), (a["title"], b["title"])
    assert max(max(cells(p)[0]) for p in PANELS) == 23
    assert all(a["gridPos"]["y"] <= b["gridPos"]["y"] for a, b in pairwise(PANELS))


def test_it_is_what_grafana_10_imports() -> None:
    page = json.loads(json.dumps(dashboard.build()))
    assert page["schemaVersion"] >= 38
    assert len({p["id"] for p in PANELS}) == len(PANELS)
    assert {p["type"] for p in PANELS} <= {"row", "stat", "timeseries"}
    variables = {v["name"]: v for v in page["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        sources = [panel["datasource"], *(t["datasource"] for t in panel["targets"])]
        assert all(s == {"type": "prometheus", "uid": "${datasource}"} for s in sources)
        assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
        assert all("$job" in t["expr"] and "$instance" in t["expr"] for t in panel["targets"])
    used = set(re.findall(r"\$(\w+)", " ".join(t["expr"] for p in PANELS for t in p.get("targets", ()))))
    assert used - {"__rate_interval"} <= variables.keys()


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_names_exported_metrics_and_their_labels(expression: str) -> None:
    named = re.findall(r"\b((?:karpenter|operator|tenon|cluster_autoscaler)_\w+)(?:\{([^}]*)\})?", expression)
    assert named
    by_name = {f.name: f for f in families.ALL}
    for name, matchers in named:
        assert name in NAMES
        family = by_name[name if name in by_name else re.sub(r"_(sum|count)$", "", name)]
        for label in re.findall(r"(\w+)[=!]", matchers):
            assert label in {*family.labels, "job", "instance"}, name
    assert expression.count("(") == expression.count(")")


def test_counters_are_never_shown_as_they_are() -> None:
    counters = {f.name for f in families.ALL if f.kind == "counter"}
    for expression in expressions():
        for name in counters:
            for match in re.finditer(rf"\b{name}\b", expression):
                assert expression[: match.start()].endswith("increase("), expression


def test_a_query_with_a_label_that_the_metric_does_not_have_is_refused() -> None:
    with pytest.raises(queries.UnknownLabelError, match="tenon_pods has no label zone"):
        queries.series(families.PODS, 'zone="a"')


def test_alerts_are_complete_and_link_to_the_runbook() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    runbooks = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    for rule in ALERTS:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        link = rule["annotations"].get("runbook")
        assert link is None or f"\n## {link.partition('#')[2]}\n" in runbooks
        by = re.search(r"sum by \(([^)]*)\)", rule["expr"])
        labels = (
            set(by[1].split(", "))
            if by
            else {label for f in families.ALL if f.name in rule["expr"] for label in f.labels}
        )
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= labels, rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool isn't installed")
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules.build()))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

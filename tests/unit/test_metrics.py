"""What functions write as metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aws_lambda_powertools import Metrics

from shared.base import metrics, runtime

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]


def test_functions_write_metrics_only_from_the_list() -> None:
    called = {
        str(path.relative_to(ROOT))
        for folder in ("functions", "shared")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"\badd_metric\(|single_metric|log_metrics", path.read_text(encoding="utf-8"))
    }
    assert called == {"shared/base/metrics.py"}


def test_names_are_given_once() -> None:
    assert len({m.name for m in metrics.ALL}) == len(metrics.ALL)


def test_a_count_of_nothing_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="lifecycle")
    metrics.emit(emf_metrics, {metrics.REPAIRED: 0, metrics.REGISTERED: 0})
    assert capsys.readouterr().out == ""


def test_a_metric_has_the_dimensions_of_its_cluster_and_function(capsys: pytest.CaptureFixture[str]) -> None:
    emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="lifecycle")
    lines = []
    for cluster in ("blue", "green"):  # as in the local world: one process, several clusters
        with runtime.using(runtime.Runtime(environ={"TENON_CLUSTER_NAME": cluster})):
            metrics.emit(emf_metrics, {metrics.PENDING: 3})
        lines.append(json.loads(capsys.readouterr().out))
    assert [line["cluster"] for line in lines] == ["blue", "green"]
    for line in lines:
        (dimensions,) = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
        assert sorted(dimensions) == [metrics.CLUSTER, metrics.SERVICE]


def test_what_isnt_well_in_a_fleet_is_written_for_the_fleet_and_for_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for environ, dimensions in (
        ({"TENON_CLUSTER_NAME": "blue"}, [metrics.CLUSTER]),
        ({"TENON_CLUSTER_NAME": "blue", "TENON_FLEET": "prod"}, [metrics.FLEET, metrics.CLUSTER]),
        ({"TENON_FLEET": "prod"}, [metrics.FLEET]),
    ):
        with runtime.using(runtime.Runtime(environ=environ)):
            metrics.report_unwell("dead-letters", "why", weight=3)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] for line in lines] == [[[d]] for d in dimensions]
        assert {(line[metrics.UNWELL][0]) for line in lines} == {3}
        # One line says why, so that a query finds each report once.
        assert [line.get("reason") for line in lines] == ["dead-letters", *[None] * (len(lines) - 1)]


def test_a_gauge_at_zero_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    emf_metrics = Metrics(namespace=metrics.NAMESPACE, service="lifecycle")
    metrics.emit(emf_metrics, {metrics.PENDING: 0, metrics.REGISTERED: 2, metrics.REPAIRED: 0})
    line = json.loads(capsys.readouterr().out)
    names = {m["Name"] for m in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert names == {metrics.PENDING.name, metrics.REGISTERED.name}
    assert line["service"] == "lifecycle"

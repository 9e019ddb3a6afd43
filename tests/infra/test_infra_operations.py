"""The alarms and the dashboard of a synthesised stack."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra import assembly, function_sizes
from infra.cluster import resource_names
from infra.options import stack_options
from shared.base import metrics
from tests.infra.resolved_template import resolved

if TYPE_CHECKING:
    from collections.abc import Callable

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"
Resources = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def full() -> dict[str, dict[str, Any]]:
    """The resources of a stack with full observability."""
    context = {"bundle": "source", "clusterSide": "printed", "observability": "full"}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    document: dict[str, dict[str, Any]] = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    return document


@pytest.fixture
def of_type(full: dict[str, dict[str, Any]]) -> Callable[[str], Resources]:
    """The properties of all resources of a type, by logical id."""
    return lambda kind: {id_: r.get("Properties", {}) for id_, r in full.items() if r["Type"] == kind}


@pytest.fixture
def alarms(of_type: Callable[[str], Resources]) -> dict[str, dict[str, Any]]:
    resources = of_type("AWS::CloudWatch::Alarm").values()
    return {p["AlarmName"]: p for p in resources}


def test_every_alarm_links_to_an_entry_of_the_runbooks(alarms: dict[str, dict[str, Any]]) -> None:
    entries = set(re.findall(r"^## (\S+)$", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = {p["AlarmDescription"].rsplit("#", 1)[1] for p in alarms.values()}
    assert named | {"cluster-silent"} == entries  # which only a fleet's one alarm has


def test_tenon_status_knows_every_alarm_by_name(alarms: dict[str, dict[str, Any]]) -> None:
    assert {f"tenon-demo-{name}" for name in resource_names.alarms(function_sizes.FUNCTIONS)} == set(alarms)


def test_every_function_has_alarms_for_its_errors_and_its_duration(alarms: dict[str, dict[str, Any]]) -> None:
    for function in function_sizes.FUNCTIONS:
        (errors,) = (p for name, p in alarms.items() if name.endswith(f"-{function}-errors"))
        assert errors["MetricName"] == "Errors"
        if function in function_sizes.WATCHING:
            assert not [name for name in alarms if name.endswith(f"-{function}-slow")]
            continue
        (slow,) = (p for name, p in alarms.items() if name.endswith(f"-{function}-slow"))
        assert slow["Threshold"] < function_sizes.SIZES[function].timeout * 1000


def test_a_dead_letter_in_any_queue_is_an_alarm(
    alarms: dict[str, dict[str, Any]], of_type: Callable[[str], Resources]
) -> None:
    (dead,) = (p for name, p in alarms.items() if name.endswith("-dead-letters"))
    watched = {
        dimension["Value"]["Fn::GetAtt"][0]
        for part in dead["Metrics"]
        if "MetricStat" in part
        for dimension in part["MetricStat"]["Metric"]["Dimensions"]
    }
    queues = of_type("AWS::SQS::Queue")
    feeding = {id_ for id_, queue in queues.items() if "RedrivePolicy" in queue}
    assert watched == set(queues) - feeding


def test_alarms_only_use_written_metrics(alarms: dict[str, dict[str, Any]]) -> None:
    written = {(m.name, m.function) for m in metrics.ALL}
    for alarm in alarms.values():
        if alarm.get("Namespace") == metrics.NAMESPACE:
            dimensions = {d["Name"]: d["Value"] for d in alarm["Dimensions"]}
            assert (alarm["MetricName"], dimensions[metrics.SERVICE]) in written
            assert dimensions[metrics.CLUSTER] == "demo"


def test_every_metric_of_tenon_is_of_the_cluster_in_alarms_and_on_the_dashboard(
    alarms: dict[str, dict[str, Any]], of_type: Callable[[str], Resources]
) -> None:
    (page,) = of_type("AWS::CloudWatch::Dashboard").values()
    of_symptoms = [alarm for name, alarm in alarms.items() if not name.endswith("-unwell")]
    shown = json.dumps([resolved(page["DashboardBody"]), *of_symptoms])
    assert shown.count(metrics.NAMESPACE) > 10
    of_tenon = re.findall(rf'\\"{metrics.NAMESPACE}\\",\\"[a-z_]+\\",\\"cluster\\",\\"(\w+)\\"', shown)
    assert len(of_tenon) == shown.count(f'\\"{metrics.NAMESPACE}\\"')
    assert set(of_tenon) == {"demo"}


def test_the_alarm_of_a_silent_relay_needs_waiting_pods_and_no_hint_for_ten_minutes(
    alarms: dict[str, dict[str, Any]],
) -> None:
    (silent,) = (a for name, a in alarms.items() if name.endswith("-relay-silent"))
    parts = {m["Id"]: m["MetricStat"]["Metric"]["MetricName"] for m in silent["Metrics"] if "MetricStat" in m}
    assert parts == {"pending": metrics.PENDING.name, "hints": metrics.HINTS.name}
    (expression,) = (m["Expression"] for m in silent["Metrics"] if "Expression" in m)
    assert expression == "IF(FILL(pending, 0) > 0 AND FILL(hints, 0) < 1, 1, 0)"
    assert (silent["EvaluationPeriods"], silent.get("DatapointsToAlarm", 10)) == (10, 10)


def test_the_dashboard_shows_every_metric_except_failures_in_logs(
    of_type: Callable[[str], Resources],
) -> None:
    (page,) = of_type("AWS::CloudWatch::Dashboard").values()
    body = json.dumps(page["DashboardBody"])
    for metric in (metrics.PENDING, metrics.TO_CLAIM_SECONDS, metrics.NODES, metrics.COST, metrics.DISRUPTED):
        assert metric.name in body
    for function in function_sizes.FUNCTIONS:
        assert f"Functions{function.capitalize()}Logs" in body


def test_an_invalid_topic_is_rejected_before_synthesis() -> None:
    with pytest.raises(stack_options.OptionError, match="alarmTopic"):
        stack_options.parse({"alarmTopic": "arn:aws:sqs:us-east-1:123456789012:q"}, cluster="c")


def test_lean_observability_is_one_alarm_on_two_metrics(template: dict[str, Any]) -> None:
    resources = template["Resources"].values()
    assert not [r for r in resources if r["Type"] == "AWS::CloudWatch::Dashboard"]
    (alarm,) = (r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm")
    stats = {m["Id"]: m["MetricStat"]["Metric"] for m in alarm["Metrics"] if "MetricStat" in m}
    assert {id_: metric["MetricName"] for id_, metric in stats.items()} == {
        "unwell": metrics.UNWELL,
        "failures": "Errors",
    }
    assert stats["unwell"]["Dimensions"] == [{"Name": "cluster", "Value": "demo"}]
    assert {m["MetricStat"]["Period"] for m in alarm["Metrics"] if "MetricStat" in m} == {300}


def test_every_reason_to_be_unwell_is_an_entry_of_the_runbooks() -> None:
    entries = set(re.findall(r"^## (\S+)$", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    code = "".join(path.read_text() for folder in ("functions", "shared") for path in Path(folder).rglob("*.py"))
    named = set(re.findall(r'report_unwell\(\s*"([a-z-]+)"', code)) | {
        reason for _, reason, *_ in metrics.REASONS.values()
    }
    assert len(named) == 10
    assert named <= entries

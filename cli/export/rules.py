"""Alerting rules for Prometheus. Each names its entry of docs/runbooks.md, where there is one.

Thresholds are those of the CloudWatch alarms (infra/cluster/alarms.py) where both know the same.
"""

from __future__ import annotations

from typing import Any

from cli.export import families
from cli.export.queries import increase, series, total
from shared.base import metrics
from shared.base.struct import Struct

_CRITICAL, _WARNING, _INFO = "critical", "warning", "info"
_NOT_READY = ('type="Ready"', 'status="False"')


class _Alert(Struct):
    name: str
    expression: str
    for_: str
    severity: str
    summary: str
    runbook: str = ""


_USAGE, _LIMIT = series(families.POOL_USAGE), series(families.POOL_LIMIT)
_NODES_NOT_READY = total(series(families.NODES, 'state="not ready"', 'nodepool!=""'), "job", "instance", "nodepool")
_ALERTS = (
    _Alert(
        "TenonExportAbsent",
        f"absent({series(families.BUILD)})",
        "10m",
        _WARNING,
        "No export of Tenon is scraped, so the other rules see nothing.",
    ),
    _Alert(
        "TenonSourceDown",
        f"{series(families.UP)} == 0",
        "15m",
        _WARNING,
        "The export can't read {{ $labels.source }}; its log says why.",
    ),
    _Alert(
        "TenonUnwell",
        f"{increase(series(families.UNWELL), '15m')} >= {metrics.ALARMING}",
        "0m",
        _CRITICAL,
        "Tenon isn't well: the functions' logs say why.",
        "unwell",
    ),
    _Alert(
        "TenonPodsWaiting",
        f"{series(families.OLDEST_PENDING)} > {metrics.POD_WAITS_SECONDS}",
        "3m",
        _CRITICAL,
        "A pod has been unschedulable for {{ $value | humanizeDuration }}.",
        "pods-waiting",
    ),
    _Alert(
        "TenonLaunchesFail",
        f"{series(families.POOL_BREAKER)} == 1",
        "1m",
        _CRITICAL,
        "Launches of NodePool {{ $labels.nodepool }} are paused because they fail.",
        "launches-fail",
    ),
    _Alert(
        "TenonNodePoolNotReady",
        f"{series(families.POOL_CONDITIONS, *_NOT_READY)} == 1",
        "10m",
        _WARNING,
        "NodePool {{ $labels.name }} isn't ready: {{ $labels.reason }}.",
    ),
    _Alert(
        "TenonNodeClassNotReady",
        f"{series(families.CLASS_CONDITIONS, *_NOT_READY)} == 1",
        "10m",
        _WARNING,
        "EC2NodeClass {{ $labels.name }} isn't ready: {{ $labels.reason }}.",
    ),
    _Alert(
        "TenonNodesNotReady",
        f"{_NODES_NOT_READY} > 0",
        "10m",
        _WARNING,
        "{{ $value }} nodes of NodePool {{ $labels.nodepool }} aren't ready.",
    ),
    _Alert(
        "TenonNodePoolNearLimit",
        f"{_USAGE} / {_LIMIT} > 0.9",
        "10m",
        _WARNING,
        "NodePool {{ $labels.nodepool }} uses {{ $value | humanizePercentage }} of its limit of "
        "{{ $labels.resource_type }}.",
    ),
    _Alert(
        "TenonInvalidObjects",
        f"{series(families.INVALID)} > 0",
        "10m",
        _WARNING,
        "{{ $value }} objects of kind {{ $labels.kind }} can't be used; `tenon plan` says why.",
    ),
    _Alert(
        "TenonGarbageKept",
        f"{increase(series(families.of_metric(metrics.GARBAGE_KEPT)), '15m')} > 0",
        "0m",
        _WARNING,
        "More objects look like garbage than one sweep may give up.",
        "garbage-kept",
    ),
    _Alert(
        "TenonCatalogStale",
        f"{increase(series(families.of_metric(metrics.CATALOG_STALE)), '1h')} > 0",
        "0m",
        _WARNING,
        "Instance types or prices can't be refreshed, and old ones are used.",
        "catalog-stale",
    ),
    _Alert(
        "TenonPaused",
        f"{series(families.CLUSTER_PAUSED)} == 1",
        "24h",
        _INFO,
        "The cluster has been paused for a day; `tenon resume` ends that.",
    ),
)


def build() -> dict[str, Any]:
    """The file of rules as YAML values."""
    return {"groups": [{"name": "tenon", "rules": [_rule(alert) for alert in _ALERTS]}]}


def _rule(alert: _Alert) -> dict[str, Any]:
    runbook = {"runbook": f"docs/runbooks.md#{alert.runbook}"} if alert.runbook else {}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.for_,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, **runbook},
    }

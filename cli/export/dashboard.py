"""The Grafana dashboard, made from the families: Grafana 10 or newer, with a variable for the data source.

Panels are laid out in rows from left to right, so that they can't overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.export import families, queries
from shared.base import metrics
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.export.families import Family

_WIDTH = 24
_HEIGHT = 8
_STAT_HEIGHT = 4
_SCHEMA_VERSION = 39
"""Of Grafana 10.4; newer ones migrate it when they read it."""
_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_TARGETS = ('job=~"$job"', 'instance=~"$instance"')


class _Query(Struct):
    expression: str
    legend: str = ""


class _Panel(Struct):
    title: str
    queries: tuple[_Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    description: str = ""
    red_from: float | None = None
    red_below: float | None = None


class _Row(Struct):
    title: str
    panels: tuple[_Panel, ...]
    height: int = _HEIGHT


def _series(family: Family, *matchers: str, suffix: str = "") -> str:
    return queries.series(family, *_TARGETS, *matchers, suffix=suffix)


def _sum(family: Family, *by: str, legend: str = "", matchers: Sequence[str] = ()) -> _Query:
    labels = " ".join(f"{{{{{label}}}}}" for label in by)
    return _Query(queries.total(_series(family, *matchers), *by), legend or labels)


def _growth(family: Family, *by: str, legend: str = "") -> _Query:
    labels = " ".join(f"{{{{{label}}}}}" for label in by)
    inner = queries.increase(_series(family), "$__rate_interval")
    return _Query(queries.total(inner, *by), legend or labels)


def _mean(family: Family, legend: str) -> _Query:
    """The mean of a summary's values over an hour: CloudWatch's are read every few minutes."""
    growth = [queries.total(queries.increase(_series(family, suffix=s), "1h")) for s in ("_sum", "_count")]
    return _Query(f"{growth[0]} / {growth[1]}", legend)


def _counted(metric: metrics.Metric, legend: str) -> _Query:
    return _Query(queries.total(queries.increase(_series(families.of_metric(metric)), "1h")), legend)


def _share(used: Family, of: Family) -> str:
    return f"{_series(used)} / {_series(of)}"


_OVERVIEW = _Row(
    "Overview",
    (
        _Panel("Nodes", (_Query(_series(families.NODE_COUNT)),), kind="stat"),
        _Panel("USD per hour", (_sum(families.COST, legend=" ", matchers=('nodepool!=""',)),), "currencyUSD", "stat"),
        _Panel("Pending pods", (_Query(_series(families.PENDING)),), kind="stat", red_from=1),
        _Panel("Longest pending pod", (_Query(_series(families.OLDEST_PENDING)),), "s", "stat", red_from=300),
        _Panel(
            "Circuit breakers open",
            (_sum(families.POOL_BREAKER, legend=" "),),
            kind="stat",
            description="NodePools whose launches are paused because they fail.",
            red_from=1,
        ),
        _Panel(
            "Sources read",
            (_Query(f"min by (source) ({_series(families.UP)})", "{{source}}"),),
            kind="stat",
            red_below=1,
        ),
    ),
    _STAT_HEIGHT,
)
_ROWS = (
    _OVERVIEW,
    _Row(
        "Nodes and cost",
        (
            _Panel("Nodes by NodePool", (_sum(families.NODES, "nodepool"),), stacked=True),
            _Panel("Nodes by state", (_sum(families.NODES, "state"),), stacked=True),
            _Panel(
                "USD per hour by NodePool",
                (_sum(families.COST, "nodepool", matchers=('nodepool!=""',)),),
                "currencyUSD",
                stacked=True,
            ),
            _Panel(
                "USD per hour by capacity type",
                (_sum(families.COST, "capacity_type", matchers=('nodepool!=""',)),),
                "currencyUSD",
                stacked=True,
            ),
        ),
    ),
    _Row(
        "Pods",
        (
            _Panel("Pods by phase", (_sum(families.PODS, "phase"),), stacked=True),
            _Panel(
                "Pending pods",
                (
                    _Query(_series(families.PENDING), "unschedulable"),
                    _Query(_series(families.of_metric(metrics.UNSCHEDULABLE)), "without a solution"),
                ),
            ),
            _Panel(
                "Startup of pods",
                (_Query(_series(families.PODS_STARTUP, 'quantile=~"0.5|0.9|0.99"'), "p{{quantile}}"),),
                "s",
            ),
        ),
    ),
    _Row(
        "Use of capacity",
        (
            _Panel(
                "Requested share of allocatable",
                (_Query(_series(families.UTILIZATION, 'resource_type=~"cpu|memory"'), "{{resource_type}}"),),
                "percent",
            ),
            _Panel(
                "Requested CPU by NodePool",
                (
                    _Query(
                        queries.total(_series(families.NODES_POD_REQUESTS, 'resource_type="cpu"'), "nodepool"),
                        "{{nodepool}}",
                    ),
                ),
            ),
            _Panel(
                "NodePools: usage of limits",
                (
                    _Query(
                        _share(families.POOL_USAGE, families.POOL_LIMIT),
                        "{{nodepool}} {{resource_type}}",
                    ),
                ),
                "percentunit",
            ),
            _Panel(
                "Disruptions that budgets allow now",
                (_sum(families.POOL_ALLOWED, "nodepool", "reason"),),
            ),
        ),
    ),
    _Row(
        "Launches and disruption",
        (
            _Panel("NodeClaims created", (_growth(families.CLAIMS_CREATED, "nodepool", "reason"),)),
            _Panel("NodeClaims disrupted", (_growth(families.CLAIMS_DISRUPTED, "nodepool", "reason"),)),
            _Panel("NodeClaims terminated", (_growth(families.CLAIMS_TERMINATED, "nodepool", "capacity_type"),)),
            _Panel("Nodes that may be disrupted", (_sum(families.ELIGIBLE, "reason"),)),
        ),
    ),
    _Row(
        "Functions (needs -c observability=full)",
        (
            _Panel(
                "Launches in an hour",
                (_counted(metrics.LAUNCHED, "launched"), _counted(metrics.NOT_LAUNCHED, "refused by EC2")),
            ),
            _Panel(
                "Mean duration",
                (
                    _mean(families.of_metric(metrics.DECISION_SECONDS), "scheduling decision"),
                    _mean(families.of_metric(metrics.TO_CLAIM_SECONDS), "pod to NodeClaim"),
                    _mean(families.of_metric(metrics.TO_READY_SECONDS), "NodeClaim to ready"),
                ),
                "s",
            ),
            _Panel(
                "Interruptions in an hour",
                (
                    _counted(metrics.INTERRUPTED, "interrupted nodes"),
                    _counted(metrics.PROACTIVELY_REPLACED, "replaced before"),
                    _counted(metrics.INTERRUPTION_LAUNCHES, "replacements"),
                ),
            ),
            _Panel("Savings of disruption, USD per hour", (_counted(metrics.SAVED, "saved"),), "currencyUSD"),
        ),
    ),
    _Row(
        "Health",
        (
            _Panel(
                "Reported as wrong in 15 minutes",
                (_Query(queries.total(queries.increase(_series(families.UNWELL), "15m")), "weight"),),
                description="docs/runbooks.md#unwell",
            ),
            _Panel(
                "Conditions that are False",
                (
                    _sum(families.POOL_CONDITIONS, "name", "type", matchers=('status="False"',)),
                    _sum(families.CLASS_CONDITIONS, "name", "type", matchers=('status="False"',)),
                ),
            ),
            _Panel("Age of the export's sources", (_Query(_series(families.AGE), "{{source}}"),), "s"),
        ),
    ),
)


def build() -> dict[str, Any]:
    """The dashboard as JSON values, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in _ROWS:
        panels.append(_heading(row.title, id_=len(panels) + 1, y=y))
        y += 1
        width = _WIDTH // len(row.panels)
        for column, panel in enumerate(row.panels):
            position = {"x": column * width, "y": y, "w": width, "h": row.height}
            panels.append(_panel(panel, id_=len(panels) + 1, position=position))
        y += row.height
    return {
        "uid": "tenon",
        "title": "Tenon",
        "description": "Nodes, cost, pods and disruption of a cluster with Tenon; metrics are those of `tenon export`.",
        "tags": ["tenon", "kubernetes", "karpenter"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    job = f"label_values({families.BUILD.name}, job)"
    instance = f"label_values({queries.series(families.BUILD, _TARGETS[0])}, instance)"
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
        _variable("job", "Job", job),
        _variable("instance", "Cluster's export", instance),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATA_SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {},
    }


def _heading(title: str, *, id_: int, y: int) -> dict[str, Any]:
    return {
        "id": id_,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: _Panel, *, id_: int, position: dict[str, int]) -> dict[str, Any]:
    return {
        "id": id_,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATA_SOURCE,
        "gridPos": position,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _DATA_SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                "range": True,
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }


def _defaults(panel: _Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    if panel.red_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.red_below}]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        defaults["custom"] = {"drawStyle": "line", "fillOpacity": 25 if panel.stacked else 0, "stacking": stacking}
    return defaults


def _options(panel: _Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}

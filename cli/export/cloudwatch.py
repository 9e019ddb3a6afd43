"""The functions' metrics in CloudWatch as counters, summaries and gauges.

A counter is the sum since midnight UTC, which CloudWatch itself adds up: it survives restarts of the export, several
exports agree, and a read costs the same for a day as for a minute. Prometheus takes the fall at midnight for a reset.
AWS charges for each metric of a GetMetricData call (five statistics of a metric count once), so metrics that the
cluster says too are not requested, and with lean observability only the one that is written.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.base import aws, metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cli.cluster.live_reader import Deployment

_DAY = 86_400
_PERIOD = 300
"""Seconds of a gauge's values, of which the latest is shown."""
_LATE = timedelta(minutes=5)
"""CloudWatch gets values this much later: the counters of a day are complete before those of the next begin."""
_MOST_QUERIES = 500
"""Of one GetMetricData call (AWS's limit)."""
USD_PER_METRIC = 0.01 / 1000
"""Of GetMetricData (CloudWatch's price list, us-east-1)."""


class CloudWatchMetrics:
    """Reads the metrics of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.requested = 0
        """The metrics requested so far."""

    def read(self, deployment: Deployment, now: datetime) -> list[Sample]:
        """The samples now.

        Raises:
            ClientError, BotoCoreError: CloudWatch can't be read.
        """
        day = (now - _LATE).replace(hour=0, minute=0, second=0, microsecond=0)
        entries = families.FROM_CLOUDWATCH if deployment.has_all_metrics else ()
        queries = [self._unwell_query()]
        for number, entry in enumerate(entries):
            queries += [
                _query(
                    f"m{number}_{statistic.lower()}",
                    entry.metric.name,
                    statistic,
                    self._dimensions(entry, deployment),
                    period,
                )
                for statistic, period in _STATISTICS[entry.family.kind]
            ]
        self.requested += 1 + len(entries)
        values = _values(queries, day, min(day + timedelta(days=1), now))
        samples = [sample(families.UNWELL, values.get("unwell", 0.0))]
        for number, entry in enumerate(entries):
            samples += _samples(entry.family, f"m{number}", values)
        return samples

    def _dimensions(self, entry: families.CloudWatchFamily, deployment: Deployment) -> dict[str, str]:
        """As :func:`shared.base.metrics.emit` writes them."""
        is_shared = entry.metric.function == "catalog" and deployment.fleet
        owner = {metrics.FLEET: deployment.fleet} if is_shared else {metrics.CLUSTER: self._cluster}
        return {metrics.SERVICE: entry.metric.function, **owner}

    def _unwell_query(self) -> dict[str, Any]:
        return _query("unwell", metrics.UNWELL, "Sum", {metrics.CLUSTER: self._cluster}, _DAY)


_STATISTICS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "counter": (("Sum", _DAY),),
    "summary": (("Sum", _DAY), ("SampleCount", _DAY)),
    "gauge": (("Maximum", _PERIOD),),
}


def _query(id_: str, name: str, statistic: str, dimensions: Mapping[str, str], period: int) -> dict[str, Any]:
    return {
        "Id": id_,
        "MetricStat": {
            "Metric": {
                "Namespace": metrics.NAMESPACE,
                "MetricName": name,
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": period,
            "Stat": statistic,
        },
    }


def _values(queries: Sequence[dict[str, Any]], start: datetime, end: datetime) -> dict[str, float]:
    """The newest value of each query; those without data are missing."""
    values: dict[str, float] = {}
    for first in range(0, len(queries), _MOST_QUERIES):
        pages = (
            aws.cloudwatch()
            .get_paginator("get_metric_data")
            .paginate(
                MetricDataQueries=queries[first : first + _MOST_QUERIES],  # type: ignore[arg-type] # a dict is one
                StartTime=start,
                EndTime=end,
                ScanBy="TimestampDescending",
            )
        )
        for page in pages:
            for result in page["MetricDataResults"]:
                if result["Values"]:
                    values.setdefault(result["Id"], result["Values"][0])
    return values


def _samples(family: families.Family, id_: str, values: Mapping[str, float]) -> Iterable[Sample]:
    match family.kind:
        case "counter":
            # zero counts are not written
            return (sample(family, values.get(f"{id_}_sum", 0.0)),)
        case "summary":
            return (
                sample(family, values.get(f"{id_}_samplecount", 0.0), suffix="_count"),
                sample(family, values.get(f"{id_}_sum", 0.0), suffix="_sum"),
            )
    latest = values.get(f"{id_}_maximum")
    return () if latest is None else (sample(family, latest),)


def monthly_usd(interval: float, *, has_all_metrics: bool) -> float:
    """What reading costs in 30 days, in USD; ``interval`` is in seconds."""
    count = 1 + len(families.FROM_CLOUDWATCH) * has_all_metrics
    return count * USD_PER_METRIC * 30 * _DAY / interval

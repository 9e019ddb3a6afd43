"""The monthly cost of Tenon in office hours, from measurements (bench/office_hours.py) and AWS's list prices.

Processor time is measured. Waiting is calculated: each request one after the other, with the round-trip times below.
Sizes that were not measured are extrapolated linearly from the two largest measured ones.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench import list_prices as prices
from bench import office_hours
from infra import assembly, cluster_manifests, function_sizes
from shared import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.list_prices import Price

ROOT = Path(__file__).resolve().parent.parent
NODES = 100
HOURS = 730
_WORKDAYS = 22
PHASE_HOURS: Mapping[str, float] = {
    "morning": _WORKDAYS * 0.5,
    "day": _WORKDAYS * 10.0,
    "evening": _WORKDAYS * 1.0,
    "night": HOURS - _WORKDAYS * 11.5,
}
"""Hours of a month in each phase; weekends are nights."""
KUBERNETES_SECONDS = 0.010
AWS_SECONDS = 0.030
FLEET_SECONDS = 2.0
"""Round-trip times of requests to the Kubernetes API, to AWS, and of CreateFleet."""
COLD_SECONDS = 1.0
_COLD_STARTS = HOURS / 2 * len(function_sizes.FUNCTIONS)
"""One cold start of each function every two hours; Lambda charges for its initialisation."""
_SIZES = [function_sizes.SIZES[name] for name in function_sizes.FUNCTIONS]
_FULL_VCPU = 1769
_POLLS = 5 * 3 * 60 * HOURS
"""Empty receives of one queue: Lambda has five pollers, each with long polls of 20 s."""
_READ_SECONDS = 0.02
"""Processor time of the function buffers, as ``make bench ARGS=function_resources`` measures it."""
_PLATFORM_BYTES = 400
"""START, END and REPORT lines, which Lambda logs for each invocation."""
KARPENTER_REPLICAS, KARPENTER_VCPUS, KARPENTER_GIB = 2, 1.0, 1.0
_RELAY_VCPUS, _RELAY_GIB = 0.05, 0.125
_GIB = 1024**3
Row = dict[str, str]


@dataclass(frozen=True)
class BillItem:
    """One item of the bill."""

    name: str
    amount: float
    price: Price
    details: str = ""

    @property
    def usd(self) -> float:
        """USD a month."""
        return self.amount * self.price.usd


class Month:
    """The monthly bill of a cluster of that size."""

    def __init__(self, measured: Mapping[int, Mapping[str, Mapping[str, float]]], nodes: int = NODES) -> None:
        self.measured = measured
        self.nodes = nodes

    @property
    def extrapolated(self) -> list[str]:
        """The phases that were not measured at that size."""
        return [phase for phase in PHASE_HOURS if phase not in self.measured.get(self.nodes, {})]

    def count(self, name: str) -> float:
        """The count of a month."""
        return sum(
            self._in_phase(phase, name) * hours * 60 / self._in_phase(phase, "minutes")
            for phase, hours in PHASE_HOURS.items()
        )

    def seconds(self, function: str) -> float:
        """The function's duration in a month, with waiting."""
        share = min(1.0, function_sizes.SIZES[function].memory / _FULL_VCPU)
        fleets = self.count("call ec2 CreateFleet") if function == function_sizes.PROVISIONER else 0.0
        return (
            self.count(f"{function} seconds") / share
            + self.count(f"{function} kubernetes") * KUBERNETES_SECONDS
            + self.count(f"{function} aws") * AWS_SECONDS
            + self.count(f"{function} waited")
            + fleets * FLEET_SECONDS
        )

    def lines(self) -> list[BillItem]:
        """The bill."""
        return [*self._functions(), *self._messages(), *self._state(), *self._observability(), *self._relay()]

    def _in_phase(self, phase: str, name: str) -> float:
        measured_sizes = sorted(nodes for nodes, counts in self.measured.items() if phase in counts)
        if self.nodes in measured_sizes:
            return self.measured[self.nodes][phase].get(name, 0.0)
        small, large = measured_sizes[-2:]
        low, high = (self.measured[n][phase].get(name, 0.0) for n in (small, large))
        return max(high + (high - low) * (self.nodes - large) / (large - small), 0.0)

    def _functions(self) -> list[BillItem]:
        lines = []
        for name in function_sizes.FUNCTIONS:
            mib, times = function_sizes.SIZES[name].memory, self.count(f"{name} invocations")
            seconds = self.seconds(name)
            details = f"{times:,.0f} times {1000 * seconds / times:,.0f} ms at {mib} MiB" if times else "never"
            lines.append(BillItem(f"{name}: running", seconds * mib / 1024, prices.GB_SECOND, details))
        memory = sum(size.memory for size in _SIZES) / len(_SIZES) / 1024
        cold = BillItem(
            "cold starts", _COLD_STARTS * COLD_SECONDS * memory, prices.GB_SECOND, f"{_COLD_STARTS:,.0f} starts"
        )
        return [*lines, cold, BillItem("invocations", self._invocations(), prices.INVOCATION)]

    def _invocations(self) -> float:
        return sum(self.count(f"{name} invocations") for name in function_sizes.FUNCTIONS)

    def _messages(self) -> list[BillItem]:
        queues = [name for name in function_sizes.QUEUES if name in function_sizes.FUNCTIONS]
        fifo = [name for name in queues if name == function_sizes.PROVISIONER]
        standard = [name for name in queues if name not in fifo]
        sent = self.count("sent") + self.count("call sqs SendMessage")
        receives = {name: 2 * self.count(f"{name} invocations") for name in queues}
        idle = f"{_POLLS:,.0f} empty receives of each queue"
        return [
            BillItem("the FIFO queue", _POLLS + sum(receives[n] for n in fifo), prices.FIFO_REQUEST, idle),
            BillItem(
                "three standard queues",
                _POLLS * len(standard) + sum(receives[n] for n in standard) + sent,
                prices.STANDARD_REQUEST,
                idle,
            ),
            BillItem("hints and scheduled events", self.count("events") + self.count("scheduled"), prices.EVENT),
        ]

    def _state(self) -> list[BillItem]:
        reads = sum(self.count(f"call dynamodb {name}") for name in ("GetItem", "Query"))
        batches = 25 * self.count("call dynamodb BatchWriteItem")
        writes = batches + self.count("call dynamodb PutItem")
        return [
            BillItem("table, reads", reads, prices.TABLE_READ),
            BillItem("table, writes", writes, prices.TABLE_WRITE),
            BillItem("catalog, reads", self.count("call s3 GetObject"), prices.OBJECT_GET),
            BillItem("catalog, writes", self.count("call s3 PutObject"), prices.OBJECT_PUT),
        ]

    def _observability(self) -> list[BillItem]:
        logged = sum(self.count(f"{name} log bytes") for name in function_sizes.FUNCTIONS)
        logged = (logged + _PLATFORM_BYTES * self._invocations()) / _GIB
        return [
            BillItem("logs, ingested", logged, prices.LOG_GB),
            BillItem("logs, stored 30 days", logged, prices.LOG_GB_MONTH),
            BillItem(
                "metrics",
                self._metric_months(),
                prices.METRIC,
                f"{len(metrics.ALL)} metrics, by the hours in which they are written",
            ),
            BillItem("alarms", _alarm_metrics(), prices.ALARM),
            BillItem("dashboard", 1, prices.DASHBOARD),
        ]

    def _metric_months(self) -> float:
        """CloudWatch charges a metric by the hours in which it is written, which don't depend on the cluster's size."""
        smallest = self.measured[min(self.measured)]
        hours = sum(
            PHASE_HOURS[phase]
            for metric in metrics.ALL
            for phase, counts in smallest.items()
            if counts.get(f"metric {metric.name}")
        )
        return hours / HOURS

    def _relay(self) -> list[BillItem]:
        share = cluster_manifests.RELAY_REPLICAS * _share(_RELAY_VCPUS, _RELAY_GIB)
        return [BillItem("the relay's pods", share * HOURS, prices.NODE_HOUR, f"{share:.1%} of an existing node")]


def karpenter() -> list[BillItem]:
    """Karpenter's two replicas, sized as in its guide: on Fargate, or their share of a node."""
    gib = math.ceil(KARPENTER_GIB + 0.25)  # Fargate adds 256 MiB for the kubelet, and rounds up
    share = _share(KARPENTER_VCPUS, KARPENTER_GIB) * KARPENTER_REPLICAS
    return [
        BillItem("on Fargate: vCPUs", KARPENTER_REPLICAS * KARPENTER_VCPUS * HOURS, prices.FARGATE_VCPU),
        BillItem("on Fargate: memory", KARPENTER_REPLICAS * gib * HOURS, prices.FARGATE_GB),
        BillItem("on existing nodes", share * HOURS, prices.NODE_HOUR, f"{share:.0%} of one"),
    ]


def run() -> list[Row]:
    """The rows of this part, from the saved measurement (``python -m bench.office_hours``)."""
    month = Month(office_hours.saved_results())
    extrapolated = ", ".join(month.extrapolated) or "nothing"
    method = f"extrapolated from smaller sizes: {extrapolated}; the rest was measured with {NODES} nodes"
    rows = [
        _row(
            f"a month with {NODES} nodes",
            "compare with Karpenter's replicas",
            sum(line.usd for line in month.lines()),
            method,
        )
    ]
    rows += [_row(f"{line.name}, a month", "-", line.usd, line.details) for line in month.lines() if line.usd >= 0.1]
    fargate, node = _karpenter_totals()
    rows.append(_row("Karpenter's two replicas on Fargate", "-", fargate, "1 vCPU and 1 GiB each"))
    rows.append(_row("Karpenter's two replicas on nodes", "-", node, "their share of a c7g.large"))
    return rows


def page() -> str:
    """docs/cost-model.md."""
    month = Month(office_hours.saved_results())
    lines = month.lines()
    total = sum(line.usd for line in lines)
    fargate, node = _karpenter_totals()
    night = max(NODES // 5, 1)
    node_counts = ", ".join(f"{c['nodes']:.0f} in the {phase}" for phase, c in month.measured.get(NODES, {}).items())
    smaller = ", ".join(str(size) for size in sorted(month.measured) if size != NODES)
    basis = f"The measured cluster had {NODES} nodes (exactly: {node_counts})."
    if month.extrapolated:
        basis += f" Not measured at that size: {', '.join(month.extrapolated)}. "
        basis += f"Its counts are extrapolated linearly from the two largest measured clusters (of {smaller} nodes)."
    return f"""# Cost model

The monthly cost of Tenon itself in {prices.REGION}, at list prices ({prices.AS_OF}) without free tiers, for a cluster \
with {night} nodes and {night * office_hours.PODS_A_NODE:,} pods at night and on weekends, and {NODES} nodes and \
{NODES * office_hours.PODS_A_NODE:,} pods for ten hours on {_WORKDAYS} workdays: **USD {total:.2f}**. Karpenter's two \
replicas cost USD {node:.2f} (their share of on-demand nodes) or {fargate:.2f} (Fargate).

| item | details | amount | USD |
|---|---|---|---|
{_table(lines)}
| **total** | | | **{total:.2f}** |

## Karpenter for comparison

Two replicas with 1 vCPU and 1 GiB each, as its guide installs them. Its queue and rules cost next to nothing; its \
logs and metrics are not counted here.

| item | details | amount | USD |
|---|---|---|---|
{_table(karpenter())}

## CapacityBuffers that follow a queue and an alarm

The function `buffers` is only deployed where queues, alarms or events are named (`-c bufferQueues=…`). It reads \
twice a minute; more queues add a request each to every read.

| item | details | amount | USD |
|---|---|---|---|
{_table(following())}
| **total** | | | **{sum(item.usd for item in following()):.2f}** |

## Method

The month is composed of measured phases. `bench/office_hours.py` measures four phases of one working day in the local \
world, for each cluster size, and each phase is scaled to its hours of the month:

{_phase_table()}

The phases follow one another in that order. Before the first, the cluster is filled and runs for three minutes that \
are not counted. Between day and evening the cluster's clock advances by nine hours in which nothing happens: no sweep \
runs and no price is refreshed; then three more minutes are not counted. That gives nodes the age that they have at \
the end of a day, which determines the expected savings. Within the phases waiting is skipped, and work takes its \
processor time. {basis} `python -m bench.office_hours` repeats the measurement.

- Invocations, messages, requests and log bytes are counted. Processor time is measured on this project's machine and \
taken as that of one vCPU; functions with less than {_FULL_VCPU} MiB get their share of one.
- Waiting is calculated: {1000 * KUBERNETES_SECONDS:.0f} ms for a request to the Kubernetes API, \
{1000 * AWS_SECONDS:.0f} ms for one to AWS, {FLEET_SECONDS:.0f} s for CreateFleet, one after the other. The local \
world's API server is a single process, so real values differ.
- Lambda's five pollers of each queue poll every 20 s, which SQS charges.
- A public cluster endpoint needs no NAT gateway. With a private one (`-c subnets=…`), the functions need access to \
AWS's APIs: an existing NAT gateway or interface endpoints of the VPC, or about USD 33 a month for a new gateway.
- Nodes, and those for a cluster's system pods, cost the same with either and are not counted.

## Possible savings

- **Metrics and alarms** are charged by their number. Zero counts are not written, because a metric is charged by the \
hours in which it is written. Alarms on sums of metrics are charged for each metric.
- **Empty receives** cost the same for any cluster size. Queues that don't need an immediate response could be polled \
each minute.
- **The dashboard** is free in accounts with fewer than four.

## Prices

AWS's page for each price, and the page with the figure, because most of AWS's pages fill their tables in the browser. \
Prices without such a page are not verified.

| price, USD | unit | AWS's page | source |
|---|---|---|---|
{_price_table()}
"""


def _phase_table() -> str:
    load = {
        "night": "nothing changes",
        "morning": "pods are added in ten steps within the first 15 minutes",
        "day": "every five minutes one deployment is scaled down by a tenth and another one up",
        "evening": "pods are removed in ten steps within the first 15 minutes",
    }
    lines = [
        f"| {name} | {lasts.total_seconds() / 60:.0f} min | {load[name]} | {PHASE_HOURS[name]:.0f} h |"
        for name, lasts in office_hours.PHASES.items()
    ]
    return "\n".join(["| phase | measured | load | hours of the month |", "|---|---|---|---|", *lines])


def following() -> list[BillItem]:
    """The monthly cost of the function buffers with one queue and one alarm, which CapacityBuffers follow."""
    reads = 2 * 60 * HOURS
    size = function_sizes.SIZES[function_sizes.BUFFERS]
    each = _READ_SECONDS * _FULL_VCPU / size.memory + KUBERNETES_SECONDS + 2 * AWS_SECONDS
    requests = 2 * _POLLS + 4 * reads  # sent, received and deleted; and the read
    alarms = _alarm_metrics({"bufferQueues": "q", "bufferAlarms": "a"}) - _alarm_metrics()
    details = f"{reads:,} times {1000 * each:.0f} ms at {size.memory} MiB"
    return [
        BillItem("buffers: running", reads * each * size.memory / 1024, prices.GB_SECOND, details),
        BillItem("invocations", reads, prices.INVOCATION),
        BillItem("two standard queues, and the queue that is read", requests, prices.STANDARD_REQUEST),
        BillItem("scheduled events", reads, prices.EVENT),
        BillItem("DescribeAlarms", reads, prices.CLOUDWATCH_REQUEST),
        BillItem("alarms", alarms, prices.ALARM),
    ]


def snapshots() -> list[BillItem]:
    """The monthly cost of SnapStart for one published version of each function, and its savings.

    Snapshots are priced by the function's memory; a restore replaces a cold start.
    """
    gib = sum(size.memory for size in _SIZES) / 1024
    restores = _COLD_STARTS / len(function_sizes.FUNCTIONS) * gib
    return [
        BillItem("snapshots cached", gib * HOURS * 3600, prices.SNAPSHOT_GB_SECOND, f"{gib:.2f} GiB, all month"),
        BillItem("snapshots restored", restores, prices.SNAPSHOT_RESTORED_GB, f"{_COLD_STARTS:,.0f} cold starts"),
        BillItem("initialisation saved", -restores * COLD_SECONDS, prices.GB_SECOND, f"{COLD_SECONDS:.0f} s each"),
    ]


def _table(lines: list[BillItem]) -> str:
    return "\n".join(f"| {x.name} | {x.details} | {x.amount:,.2f} × {x.price.unit} | {x.usd:.2f} |" for x in lines)


def _price_table() -> str:
    return "\n".join(
        f"| {p.usd:.10f}".rstrip("0").rstrip(".") + f" | {p.unit} | {p.page} | {p.seen or 'not verified'} |"
        for p in prices.ALL
    )


def _karpenter_totals() -> tuple[float, float]:
    """USD a month on Fargate, and on nodes."""
    vcpus, memory, node = karpenter()
    return vcpus.usd + memory.usd, node.usd


def _share(vcpus: float, gib: float) -> float:
    """The share of a node that a pod takes, by its larger share of vCPUs or memory."""
    return max(vcpus / prices.NODE_VCPUS, gib / prices.NODE_GIB)


def _alarm_metrics(options: Mapping[str, str] = MappingProxyType({})) -> int:
    """The number of metrics in the stack's alarms, with these context keys."""
    folder = assembly.cached(cluster="NAME", root=ROOT, context={"bundle": "source", **options})
    template = json.loads(next(folder.glob("*.template.json")).read_text(encoding="utf-8"))
    alarms = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::CloudWatch::Alarm"]
    return sum(sum("MetricStat" in part for part in a["Metrics"]) if "Metrics" in a else 1 for a in alarms)


def _row(measurement: str, target: str, usd: float, method: str) -> Row:
    return {"measurement": measurement, "target": target, "result": f"${usd:.2f}", "method": method}

"""The monthly cost of Tenon in office hours, from measurements (bench/office_hours.py) and AWS's list prices.

Processor time is measured. Waiting is calculated: each request one after the other, with the round-trip times below.
Sizes that were not measured are extrapolated linearly from the two largest measured ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench import list_prices as prices
from bench import office_hours
from infra import assembly, function_sizes
from shared.base import metrics
from shared.base.struct import Struct

if TYPE_CHECKING:
    from bench.list_prices import Price

ROOT = Path(__file__).resolve().parent.parent
NODES = 100
HOURS = 730
WORKDAYS = 22
PHASE_HOURS: Mapping[str, float] = {
    "morning": WORKDAYS * 0.5,
    "day": WORKDAYS * 10.0,
    "evening": WORKDAYS * 1.0,
    "night": HOURS - WORKDAYS * 11.5,
}
"""Hours of a month in each phase; weekends are nights."""
KUBERNETES_SECONDS = 0.010
AWS_SECONDS = 0.030
FLEET_SECONDS = 2.0
"""Round-trip times of requests to the Kubernetes API, to AWS, and of CreateFleet."""
COLD_SECONDS = 1.0
MEASURED = tuple(name for name in function_sizes.FUNCTIONS if name != function_sizes.RELAY)
"""The functions that are measured; the relay function runs all the time."""
COLD_STARTS = HOURS / 2 * len(MEASURED)
"""One cold start of each function every two hours; Lambda charges for its initialisation."""
_SIZES = [function_sizes.SIZES[name] for name in MEASURED]
FULL_VCPU = 1769
_POLLS_OF_A_POLLER = 3 * 60 * HOURS
_FIFO_POLLS, _STANDARD_POLLS = 5 * _POLLS_OF_A_POLLER, 2 * _POLLS_OF_A_POLLER
"""Empty receives of one queue, by long polls of 20 s. Lambda has five pollers; as few as two for a standard queue with
little traffic whose mapping has no maximum concurrency (Lambda's guide, "Configuring scaling behavior")."""
POLLERS_SAVING = (_FIFO_POLLS - _STANDARD_POLLS) * 3 * prices.STANDARD_REQUEST.usd
"""USD a month that two pollers instead of five save for the three standard queues."""
_SWEEPS = 60 * HOURS
_DEAD_LETTER_READS = 12 * HOURS * (len([q for q in function_sizes.QUEUES if q in function_sizes.FUNCTIONS]) + 1)
_READ_SECONDS = 0.02
"""Processor time of the function buffers, as ``make bench ARGS=function_resources`` measures it."""
_PLATFORM_BYTES = 400
"""START, END and REPORT lines, which Lambda logs for each invocation."""
KARPENTER_REPLICAS, KARPENTER_VCPUS, KARPENTER_GIB = 2, 1.0, 1.0
_RELAY_CHECK_SECONDS = 0.5
"""An invocation of the relay function that finds the watch held: it reads a Lease, at a share of a vCPU."""
_GIB = 1024**3
Row = dict[str, str]
Measured = Mapping[int, Mapping[str, Mapping[str, float]]]
"""The counts by size, phase and name (bench/office_hours.py)."""


class BillItem(Struct):
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

    def __init__(self, measured: Measured, nodes: int = NODES) -> None:
        self.measured = measured
        self.nodes = nodes

    @property
    def extrapolated(self) -> list[str]:
        """The phases that were not measured at that size."""
        return [phase for phase in PHASE_HOURS if phase not in self.measured.get(self.nodes, {})]

    def memory(self, function: str) -> int:
        """MiB of the function in a cluster of that size."""
        return function_sizes.memory(function, self.nodes)

    def count(self, name: str) -> float:
        """The count of a month."""
        return sum(
            self._in_phase(phase, name) * hours * 60 / self._in_phase(phase, "minutes")
            for phase, hours in PHASE_HOURS.items()
        )

    def seconds(self, function: str) -> float:
        """The function's duration in a month, with waiting."""
        share = min(1.0, self.memory(function) / FULL_VCPU)
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
        for name in MEASURED:
            mib, times = self.memory(name), self.count(f"{name} invocations")
            seconds = self.seconds(name)
            details = f"{times:,.0f} times {1000 * seconds / times:,.0f} ms at {mib} MiB" if times else "never"
            lines.append(BillItem(f"{name}: running", seconds * mib / 1024, prices.GB_SECOND, details))
        memory = sum(self.memory(name) for name in MEASURED) / len(MEASURED) / 1024
        cold = BillItem(
            "cold starts", COLD_STARTS * COLD_SECONDS * memory, prices.GB_SECOND, f"{COLD_STARTS:,.0f} starts"
        )
        return [*lines, cold, BillItem("invocations", self._invocations(), prices.INVOCATION)]

    def _invocations(self) -> float:
        return sum(self.count(f"{name} invocations") for name in MEASURED)

    def _messages(self) -> list[BillItem]:
        queues = [name for name in function_sizes.QUEUES if name in MEASURED]
        fifo = [name for name in queues if name == function_sizes.PROVISIONER]
        standard = [name for name in queues if name not in fifo]
        sent = self.count("sent") + self.count("call sqs SendMessage")
        # Sweeps of these functions are no messages.
        invoked = {n: self.count(f"{n} invocations") - _SWEEPS * (n in function_sizes.SWEPT) for n in queues}
        receives = {name: 2 * max(count, 0) for name, count in invoked.items()}
        idle = "{:,.0f} empty receives of each queue"
        return [
            BillItem(
                "the FIFO queue",
                _FIFO_POLLS + sum(receives[n] for n in fifo),
                prices.FIFO_REQUEST,
                idle.format(_FIFO_POLLS),
            ),
            BillItem(
                "three standard queues",
                _STANDARD_POLLS * len(standard) + sum(receives[n] for n in standard) + sent,
                prices.STANDARD_REQUEST,
                idle.format(_STANDARD_POLLS),
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
        logged = sum(self.count(f"{name} log bytes") for name in MEASURED)
        logged = (logged + _PLATFORM_BYTES * self._invocations()) / _GIB
        return [
            BillItem("logs, ingested", logged, prices.LOG_GB),
            BillItem("logs, stored 30 days", logged, prices.LOG_GB_MONTH),
            BillItem("dead-letter queues", _DEAD_LETTER_READS, prices.STANDARD_REQUEST, "looked at every five minutes"),
            BillItem("alarm", _alarm_metrics(), prices.ALARM, f"on {_alarm_metrics()} metrics"),
        ]

    def full_observability(self) -> list[BillItem]:
        """What ``-c observability=full`` costs besides."""
        full = {"observability": "full"}
        return [
            BillItem(
                "metrics",
                self._metric_months(),
                prices.METRIC,
                f"{len(metrics.ALL)} metrics, by the hours in which they are written",
            ),
            BillItem("alarms", _alarm_metrics(full) - _alarm_metrics(), prices.ALARM, "one for each symptom"),
            BillItem("dashboard", 1, prices.DASHBOARD, "free in accounts with fewer than four"),
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
        mib, checks = self.memory(function_sizes.RELAY), HOURS * 60
        watching = BillItem(
            "relay: watching", HOURS * 3600 * mib / 1024, prices.GB_SECOND, f"around the clock at {mib} MiB"
        )
        details = f"{checks:,.0f} times {1000 * _RELAY_CHECK_SECONDS:,.0f} ms at {mib} MiB"
        return [
            watching,
            BillItem("relay: checks", checks * _RELAY_CHECK_SECONDS * mib / 1024, prices.GB_SECOND, details),
            BillItem("relay: invocations and scheduled events", checks, prices.INVOCATION),
        ]


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
    fargate, node = karpenter_totals()
    rows.append(_row("Karpenter's two replicas on Fargate", "-", fargate, "1 vCPU and 1 GiB each"))
    rows.append(_row("Karpenter's two replicas on nodes", "-", node, "their share of a c7g.large"))
    return rows


def following() -> list[BillItem]:
    """The monthly cost of the function buffers with one queue and one alarm, which CapacityBuffers follow."""
    reads = 2 * 60 * HOURS
    size = function_sizes.SIZES[function_sizes.BUFFERS]
    each = _READ_SECONDS * FULL_VCPU / size.memory + KUBERNETES_SECONDS + 2 * AWS_SECONDS
    requests = 2 * _STANDARD_POLLS + 4 * reads  # sent, received and deleted; and the read
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
    restores = COLD_STARTS / len(MEASURED) * gib
    return [
        BillItem("snapshots cached", gib * HOURS * 3600, prices.SNAPSHOT_GB_SECOND, f"{gib:.2f} GiB, all month"),
        BillItem("snapshots restored", restores, prices.SNAPSHOT_RESTORED_GB, f"{COLD_STARTS:,.0f} cold starts"),
        BillItem("initialisation saved", -restores * COLD_SECONDS, prices.GB_SECOND, f"{COLD_SECONDS:.0f} s each"),
    ]


def karpenter_totals() -> tuple[float, float]:
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

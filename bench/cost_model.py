"""What Tenon costs in a month of office hours, from what was measured (bench/office_hours.py) and AWS's list prices.

Processor time is measured; the time that a function waits for others is reckoned: each request one after the other, at
a round trip that is said here. Sizes that were not measured lie on the line through the two largest that were.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
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
STRETCH_HOURS: Mapping[str, float] = {
    "morning": _WORKDAYS * 0.5,
    "day": _WORKDAYS * 10.0,
    "evening": _WORKDAYS * 1.0,
    "night": HOURS - _WORKDAYS * 11.5,
}
"""Hours of a month in each stretch; weekends are nights."""
KUBERNETES_SECONDS = 0.010
AWS_SECONDS = 0.030
FLEET_SECONDS = 2.0
"""What a request to the Kubernetes API, to AWS, and a CreateFleet are waited for."""
COLD_SECONDS = 1.0
_COLD_STARTS = HOURS / 2 * len(function_sizes.FUNCTIONS)
"""A start each two hours for each function, whose initialisation is paid for too."""
_FULL_VCPU = 1769
_POLLS = 5 * 3 * 60 * HOURS
"""Empty receives of one queue: Lambda keeps five pollers, and each asks again after 20 s."""
_PLATFORM_BYTES = 400
"""START, END and REPORT, which Lambda itself logs for each invocation."""
KARPENTER_REPLICAS, KARPENTER_VCPUS, KARPENTER_GIB = 2, 1.0, 1.0
_RELAY_VCPUS, _RELAY_GIB = 0.05, 0.125
_GIB = 1024**3
Row = dict[str, str]


@dataclass(frozen=True)
class Line:
    """One line of the bill: how much of what, and USD a month."""

    what: str
    amount: float
    price: Price
    how: str = ""

    @property
    def usd(self) -> float:
        """For the month."""
        return self.amount * self.price.usd


class Month:
    """What a month of a cluster of that size comes to."""

    def __init__(self, measured: Mapping[int, Mapping[str, Mapping[str, float]]], nodes: int = NODES) -> None:
        self.measured = measured
        self.nodes = nodes

    @property
    def reckoned(self) -> list[str]:
        """The stretches that were not measured at that size."""
        return [stretch for stretch in STRETCH_HOURS if stretch not in self.measured.get(self.nodes, {})]

    def count(self, what: str) -> float:
        """So many in the month."""
        return sum(
            self._in_stretch(stretch, what) * hours * 60 / self._in_stretch(stretch, "minutes")
            for stretch, hours in STRETCH_HOURS.items()
        )

    def seconds(self, function: str) -> float:
        """How long the function runs in the month, waiting included."""
        share = min(1.0, function_sizes.SIZES[function].memory / _FULL_VCPU)
        fleets = self.count("call ec2 CreateFleet") if function == function_sizes.PROVISIONER else 0.0
        return (
            self.count(f"{function} seconds") / share
            + self.count(f"{function} kubernetes") * KUBERNETES_SECONDS
            + self.count(f"{function} aws") * AWS_SECONDS
            + self.count(f"{function} waited")
            + fleets * FLEET_SECONDS
        )

    def lines(self) -> list[Line]:
        """The bill."""
        return [*self._functions(), *self._messages(), *self._state(), *self._watching(), *self._relay()]

    def _in_stretch(self, stretch: str, what: str) -> float:
        sizes_of_it = sorted(nodes for nodes, found in self.measured.items() if stretch in found)
        if self.nodes in sizes_of_it:
            return self.measured[self.nodes][stretch].get(what, 0.0)
        small, large = sizes_of_it[-2:]
        low, high = (self.measured[n][stretch].get(what, 0.0) for n in (small, large))
        return max(high + (high - low) * (self.nodes - large) / (large - small), 0.0)

    def _functions(self) -> list[Line]:
        lines = []
        for name in function_sizes.FUNCTIONS:
            mib, times = function_sizes.SIZES[name].memory, self.count(f"{name} invocations")
            seconds = self.seconds(name)
            how = f"{times:,.0f} times {1000 * seconds / times:,.0f} ms at {mib} MiB" if times else "never"
            lines.append(Line(f"{name}: running", seconds * mib / 1024, prices.GB_SECOND, how))
        memory = sum(size.memory for size in function_sizes.SIZES.values()) / len(function_sizes.SIZES) / 1024
        cold = Line(
            "cold starts", _COLD_STARTS * COLD_SECONDS * memory, prices.GB_SECOND, f"{_COLD_STARTS:,.0f} starts"
        )
        return [*lines, cold, Line("invocations", self._invocations(), prices.INVOCATION)]

    def _invocations(self) -> float:
        return sum(self.count(f"{name} invocations") for name in function_sizes.FUNCTIONS)

    def _messages(self) -> list[Line]:
        fifo = [name for name in function_sizes.QUEUES if name == function_sizes.PROVISIONER]
        standard = [name for name in function_sizes.QUEUES if name not in fifo]
        sent = self.count("sent") + self.count("call sqs SendMessage")
        taken = {name: 2 * self.count(f"{name} invocations") for name in function_sizes.QUEUES}
        idle = f"{_POLLS:,.0f} empty receives a queue"
        return [
            Line("the FIFO queue", _POLLS + sum(taken[n] for n in fifo), prices.FIFO_REQUEST, idle),
            Line(
                "three standard queues",
                _POLLS * len(standard) + sum(taken[n] for n in standard) + sent,
                prices.STANDARD_REQUEST,
                idle,
            ),
            Line("hints and schedules", self.count("events") + self.count("scheduled"), prices.EVENT),
        ]

    def _state(self) -> list[Line]:
        reads = sum(self.count(f"call dynamodb {name}") for name in ("GetItem", "Query"))
        batches = 25 * self.count("call dynamodb BatchWriteItem")
        writes = batches + self.count("call dynamodb PutItem")
        return [
            Line("table, reads", reads, prices.TABLE_READ),
            Line("table, writes", writes, prices.TABLE_WRITE),
            Line("catalog, reads", self.count("call s3 GetObject"), prices.OBJECT_GET),
            Line("catalog, writes", self.count("call s3 PutObject"), prices.OBJECT_PUT),
        ]

    def _watching(self) -> list[Line]:
        logged = sum(self.count(f"{name} log bytes") for name in function_sizes.FUNCTIONS)
        logged = (logged + _PLATFORM_BYTES * self._invocations()) / _GIB
        return [
            Line("logs, taken in", logged, prices.LOG_GB),
            Line("logs, kept 30 days", logged, prices.LOG_GB_MONTH),
            Line(
                "metrics", self._metric_months(), prices.METRIC, f"{len(metrics.ALL)} metrics, by the hours they have"
            ),
            Line("alarms", _alarmed(), prices.ALARM),
            Line("dashboard", 1, prices.DASHBOARD),
        ]

    def _metric_months(self) -> float:
        """A metric is paid for by the hours in which it is written; which those are doesn't depend on the size."""
        smallest = self.measured[min(self.measured)]
        hours = sum(
            STRETCH_HOURS[stretch]
            for metric in metrics.ALL
            for stretch, counts in smallest.items()
            if counts.get(f"metric {metric.name}")
        )
        return hours / HOURS

    def _relay(self) -> list[Line]:
        share = cluster_manifests.RELAY_REPLICAS * _share(_RELAY_VCPUS, _RELAY_GIB)
        return [Line("the relay's pods", share * HOURS, prices.NODE_HOUR, f"{share:.1%} of a node there is anyway")]


def karpenter() -> list[Line]:
    """Its two replicas, as its guide sizes them: on Fargate, or their share of a node."""
    gib = math.ceil(KARPENTER_GIB + 0.25)  # Fargate adds 256 MiB for the kubelet, and rounds up
    share = _share(KARPENTER_VCPUS, KARPENTER_GIB) * KARPENTER_REPLICAS
    return [
        Line("on Fargate: vCPUs", KARPENTER_REPLICAS * KARPENTER_VCPUS * HOURS, prices.FARGATE_VCPU),
        Line("on Fargate: memory", KARPENTER_REPLICAS * gib * HOURS, prices.FARGATE_GB),
        Line("on nodes there are anyway", share * HOURS, prices.NODE_HOUR, f"{share:.0%} of one"),
    ]


def run() -> list[Row]:
    """What the model comes to, from what is kept of the last measurement (``python -m bench.office_hours``)."""
    month = Month(office_hours.kept_results())
    how = (
        f"reckoned from smaller sizes: {', '.join(month.reckoned) or 'nothing'}; the rest is measured at {NODES} nodes"
    )
    rows = [
        _row(
            f"a month of {NODES} nodes", "Karpenter's replicas beside it", sum(line.usd for line in month.lines()), how
        )
    ]
    rows += [_row(f"{line.what}, a month", "-", line.usd, line.how) for line in month.lines() if line.usd >= 0.1]
    fargate, node = _karpenter_totals()
    rows.append(_row("Karpenter's two replicas on Fargate", "-", fargate, "1 vCPU and 1 GiB each"))
    rows.append(_row("Karpenter's two replicas on nodes", "-", node, "their share of a c7g.large"))
    return rows


def page() -> str:
    """docs/cost-model.md."""
    month = Month(office_hours.kept_results())
    lines = month.lines()
    total = sum(line.usd for line in lines)
    fargate, node = _karpenter_totals()
    night = max(NODES // 5, 1)
    there = ", ".join(f"{found['nodes']:.0f} in the {s}" for s, found in month.measured.get(NODES, {}).items())
    smaller = ", ".join(str(size) for size in sorted(month.measured) if size != NODES)
    basis = f"A world of {NODES} nodes was measured (in fact {there})."
    if month.reckoned:
        basis = f"Measured with {NODES} nodes (in fact {there}), but for: {', '.join(month.reckoned)}. "
        basis += "That lies, count by count, on the "
        basis += f"line through the two largest worlds that were measured (of {smaller} nodes)."
    return f"""# Cost model

What Tenon itself costs in a month in {prices.REGION}, at list prices ({prices.AS_OF}), with no free tier: a \
cluster of \
{night} nodes and {night * office_hours.PODS_A_NODE:,} pods at night and on weekends, and {NODES} nodes and \
{NODES * office_hours.PODS_A_NODE:,} pods for ten hours on {_WORKDAYS} workdays. **USD {total:.2f}**, beside USD \
{node:.2f} \
(their share of on-demand nodes) or {fargate:.2f} (Fargate) for Karpenter's two replicas.

| what | how much | a month | USD |
|---|---|---|---|
{_table(lines)}
| **all of it** | | | **{total:.2f}** |

## Karpenter beside it

Two replicas with 1 vCPU and 1 GiB each, as its guide installs them; its queue and rules cost next to nothing, its \
logs \
and metrics are not counted here.

| what | how much | a month | USD |
|---|---|---|---|
{_table(karpenter())}

## How it was found

The month is composed, not lived through. Work is counted in four stretches of one working day in the local world \
(`bench/office_hours.py`), once for each size, and each stretch is scaled to its hours of the month:

{_stretch_table()}

They follow one another in that order. Before the first, the world is filled and has three minutes to come to rest, \
which aren't counted. Between day and evening the cluster's clock is turned forward by nine hours in which nothing \
happens: no sweep runs and no price is refreshed in them; then three minutes of rest, not counted either. That makes \
nodes as old as they are at the end of a day, by which savings are judged. Within the stretches waiting is skipped, \
and work takes its processor time. {basis} `python -m bench.office_hours` measures anew.

- Invocations, messages, requests and log bytes are counted. Processor time is measured on this project's own \
machine \
and taken as that of one vCPU; functions with less than {_FULL_VCPU} MiB get their share of one.
- Waiting is reckoned: {1000 * KUBERNETES_SECONDS:.0f} ms for a request to the Kubernetes API, \
{1000 * AWS_SECONDS:.0f} ms for one to AWS, {FLEET_SECONDS:.0f} s for CreateFleet, one after the other. The local \
world's \
API server answers as one process does, so real figures will differ.
- Lambda's five pollers of each queue ask again after 20 s, which SQS charges.
- No NAT gateway is needed for a public endpoint. With a private one (`-c subnets=…`), functions need a way to AWS's \
APIs: a NAT gateway or interface endpoints that the VPC has already, or about USD 33 a month for one.
- The machine that runs a cluster's system pods is there with either, and so is what nodes themselves cost.

## What could be less

- **Metrics and alarms** cost by their number. Counts of nothing are not written, because a metric is paid for by \
the \
hours that have it. Alarms that add up several metrics are paid for each.
- **Empty receives** cost the same at any size. Queues that need no second's answer could be read each minute.
- **The dashboard** is free where an account has fewer than four.

## Prices

AWS's page for each, and the page on which the figure was found; AWS's own pages mostly fill their tables in the \
browser. Those without one rest on nothing but this project's word.

| price, USD | for one | AWS's page | found at |
|---|---|---|---|
{_price_table()}
"""


def _stretch_table() -> str:
    what = {
        "night": "nothing happens",
        "morning": "pods come in ten steps within the first quarter",
        "day": "deployments sway by a tenth, one down and one up every five minutes",
        "evening": "pods go in ten steps within the first quarter",
    }
    lines = [
        f"| {name} | {lasts.total_seconds() / 60:.0f} min | {what[name]} | {STRETCH_HOURS[name]:.0f} h |"
        for name, lasts in office_hours.STRETCHES.items()
    ]
    return "\n".join(["| stretch | measured | what happens | stands for |", "|---|---|---|---|", *lines])


def snapshots() -> list[Line]:
    """What SnapStart would add in a month, for one published version of each function, and what it could save.

    Snapshots are priced by the function's memory; a restore takes the place of a cold start.
    """
    gib = sum(size.memory for size in function_sizes.SIZES.values()) / 1024
    restores = _COLD_STARTS / len(function_sizes.FUNCTIONS) * gib
    return [
        Line("snapshots kept", gib * HOURS * 3600, prices.SNAPSHOT_GB_SECOND, f"{gib:.2f} GiB, all month"),
        Line("snapshots restored", restores, prices.SNAPSHOT_RESTORED_GB, f"{_COLD_STARTS:,.0f} cold starts"),
        Line("initialisation saved", -restores * COLD_SECONDS, prices.GB_SECOND, f"{COLD_SECONDS:.0f} s each"),
    ]


def _table(lines: list[Line]) -> str:
    return "\n".join(f"| {x.what} | {x.how} | {x.amount:,.2f} × {x.price.unit} | {x.usd:.2f} |" for x in lines)


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
    """Of a node, by what a pod takes most of."""
    return max(vcpus / prices.NODE_VCPUS, gib / prices.NODE_GIB)


def _alarmed() -> int:
    """The metrics that the stack's alarms look at."""
    kept = assembly.cached(cluster="NAME", root=ROOT, context={"bundle": "source"})
    template = json.loads(next(kept.glob("*.template.json")).read_text(encoding="utf-8"))
    alarms = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::CloudWatch::Alarm"]
    return sum(sum("MetricStat" in part for part in a["Metrics"]) if "Metrics" in a else 1 for a in alarms)


def _row(figure: str, asked: str, usd: float, how: str) -> Row:
    return {"figure": figure, "asked": asked, "measured": f"${usd:.2f}", "how": how}

"""docs/cost-model.md: the monthly cost, item by item, and how it is measured."""

from __future__ import annotations

from bench import fleet_cost, office_hours, webhook_cost
from bench import list_prices as prices
from bench.cost_model import (
    AWS_SECONDS,
    FLEET_SECONDS,
    FULL_VCPU,
    KUBERNETES_SECONDS,
    NODES,
    PHASE_HOURS,
    POLLERS_SAVING,
    WORKDAYS,
    BillItem,
    Month,
    following,
    karpenter,
    karpenter_totals,
)


def page() -> str:
    """docs/cost-model.md."""
    month = Month(office_hours.saved_results())
    lines = month.lines()
    total = sum(line.usd for line in lines)
    fargate, node = karpenter_totals()
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
{NODES * office_hours.PODS_A_NODE:,} pods for ten hours on {WORKDAYS} workdays: **USD {total:.2f}**. Karpenter's two \
replicas cost USD {node:.2f} (their share of on-demand nodes) or {fargate:.2f} (Fargate).

| item | details | amount | USD |
|---|---|---|---|
{_table(lines)}
| **total** | | | **{total:.2f}** |

## Full observability

`-c observability=full` has an alarm for each symptom, all metrics and a dashboard. Without it one alarm says that \
something is wrong, and logs say what ([runbooks.md](runbooks.md#unwell)); figures by node and NodePool are in the \
logs, and `tenon nodes`, `tenon status` and `tenon report` show the present.

| item | details | amount | USD |
|---|---|---|---|
{_table(month.full_observability())}
| **total** | | | **{sum(item.usd for item in month.full_observability()):.2f}** |

{fleet_cost.section(month.measured)}
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

{webhook_cost.section()}
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
taken as that of one vCPU; functions with less than {FULL_VCPU} MiB get their share of one.
- Waiting is calculated: {1000 * KUBERNETES_SECONDS:.0f} ms for a request to the Kubernetes API, \
{1000 * AWS_SECONDS:.0f} ms for one to AWS, {FLEET_SECONDS:.0f} s for CreateFleet, one after the other. The local \
world's API server is a single process, so real values differ.
- Lambda's pollers poll every 20 s, which SQS charges: five for the FIFO queue, and two for each standard queue, which \
is what [AWS names](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html) for little traffic where \
no maximum concurrency is set. If they were five, and with `-c reservedConcurrency=true`, it is USD \
{POLLERS_SAVING:.2f} more.
- A public cluster endpoint needs no NAT gateway. With a private one (`-c subnets=…`), the functions need access to \
AWS's APIs: an existing NAT gateway or interface endpoints of the VPC, or about USD 33 a month for a new gateway.
- Nodes, and those for a cluster's system pods, cost the same with either and are not counted.

## What savings cost

| saving | costs |
|---|---|
| one alarm instead of one for each symptom, and no metrics and dashboard | insight: the alarm says that something is \
wrong, and a log line what |
| half a processor for lifecycle and disruption | a joining node waits 0.1 s longer in a cluster of 100 nodes, \
more than a second in one of 1,000; `-c sweepMemory=1769` |
| node classes are looked up every five minutes | a new image or subnet is found up to four minutes later |
| a warm process asks for a newer catalog every five minutes | prices are up to 20 minutes old instead of 15 |
| consolidation isn't searched again until a set of nodes can pay back | nothing: nothing was to be found |
| the provisioner's sweep looks first whether anything is to do | nothing |
| one rule for all sweeps, which invoke functions without a message | nothing |
| no maximum concurrency of queues | hundreds of drains or warnings at once are handled by more functions at once, \
which wait for one another; `-c reservedConcurrency=true` sets the maximum |
| `-c relay=webhook` | nodes are launched two seconds later, join a minute later, and all else waits for the sweep \
of the minute ([webhook](architecture.md#the-webhook)) |
| `-c fleet=NAME` | alarms by symptom ([fleets](fleets.md)) |

The largest items that are left besides the relay are disruption, and **empty receives** of the four queues, which \
cost the same for any cluster size. Fewer queues would need functions with the rights of several.

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


def _table(lines: list[BillItem]) -> str:
    return "\n".join(f"| {x.name} | {x.details} | {x.amount:,.2f} × {x.price.unit} | {x.usd:.2f} |" for x in lines)


def _price_table() -> str:
    return "\n".join(
        f"| {p.usd:.10f}".rstrip("0").rstrip(".") + f" | {p.unit} | {p.page} | {p.seen or 'not verified'} |"
        for p in prices.ALL
    )

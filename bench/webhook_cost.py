"""The monthly cost of ``-c relay=webhook``, by the pods that are created; it takes the place of the relay's."""

from __future__ import annotations

from bench import list_prices as prices
from bench import office_hours
from bench.cost_model import HOURS, KUBERNETES_SECONDS, NODES, PHASE_HOURS, WORKDAYS, BillItem
from functions.webhook.handler import BATCH_SECONDS
from infra import function_sizes

CHURN = (10_000, 100_000, 1_000_000, 10_000_000)
"""Pods created in a month."""
_REVIEW_SECONDS = 0.010
"""An invocation's duration; its processor time is less than a millisecond (``make bench ARGS=webhook``)."""
_EARLY_SECONDS = 0.05
"""An invocation of the provisioner that finds a hint early, or lists the pods without a node."""
_FIFO_REQUESTS = 6
"""For each message: it is sent, received twice, made visible later, deleted, and its duplicate is dropped."""
_INTERVALS = HOURS * 3600 / BATCH_SECONDS
"""The most messages of a month."""


def office_hours_month() -> tuple[float, float]:
    """The pods created in the month of the cost model, and the messages about them, from the loads of its phases.

    Each morning the pods of the day are added in ten steps, every five minutes of the day a tenth of a deployment (of
    ten), and in the evening those that stay are moved once, when nodes go. The pods of a step come within three
    intervals.
    """
    day = NODES * office_hours.PODS_A_NODE
    night_nodes = max(NODES // 5, 1)
    in_day = PHASE_HOURS["day"] * 12
    pods = WORKDAYS * day + in_day * day / 100
    return pods, 3 * (WORKDAYS * (10 + NODES - night_nodes) + in_day)


def items(pods: float, messages: float) -> list[BillItem]:
    """The bill of these pods and messages a month."""
    size = function_sizes.SIZES[function_sizes.WEBHOOK]
    each = _EARLY_SECONDS + KUBERNETES_SECONDS
    provisioner = function_sizes.SIZES[function_sizes.PROVISIONER].memory / 1024
    details = f"{pods:,.0f} times {1000 * _REVIEW_SECONDS:.0f} ms at {size.memory} MiB"
    receives = 2 * messages
    return [
        BillItem("webhook: running", pods * _REVIEW_SECONDS * size.memory / 1024, prices.GB_SECOND, details),
        BillItem("webhook: invocations", pods, prices.INVOCATION),
        BillItem("hints", messages * _FIFO_REQUESTS, prices.FIFO_REQUEST, f"{messages:,.0f} messages"),
        BillItem("provisioner: looking", receives * each * provisioner, prices.GB_SECOND, f"{1000 * each:.0f} ms each"),
        BillItem("provisioner: invocations", receives, prices.INVOCATION),
    ]


def _total(pods: float, messages: float) -> float:
    return sum(item.usd for item in items(pods, messages))


def section() -> str:
    """The section of docs/cost-model.md."""
    pods, messages = office_hours_month()
    lines = "\n".join(
        f"| {x.name} | {x.details} | {x.amount:,.2f} × {x.price.unit} | {x.usd:.2f} |" for x in items(pods, messages)
    )
    churn = "\n".join(
        f"| {count:,} | {_total(count, count / 50):.2f} | {_total(count, min(count, _INTERVALS)):.2f} |"
        for count in CHURN
    )
    return f"""## The webhook instead of the relay

With `-c relay=webhook` nothing watches the cluster, so the relay's items above go. Each created pod is an invocation, \
and the pods of {BATCH_SECONDS} seconds share a message, for which the provisioner looks twice. The month has \
{pods:,.0f} new pods: each morning those of the day, every five minutes of the day a tenth of a deployment, and in the \
evening those that stay are moved once. Decisions cost the same as with the relay.

| item | details | amount | USD |
|---|---|---|---|
{lines}
| **total** | | | **{_total(pods, messages):.2f}** |

| pods created in a month | USD if they come by fifties | USD if each comes alone |
|---|---|---|
{churn}
"""

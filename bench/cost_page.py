"""docs/cost-model.md: the monthly cost, item by item, and how it is measured. Its text is cost_page.md."""

from __future__ import annotations

from pathlib import Path
from string import Template

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

TEMPLATE = Path(__file__).with_suffix(".md")


def page() -> str:
    """docs/cost-model.md."""
    month = Month(office_hours.saved_results())
    lines = month.lines()
    fargate, node = karpenter_totals()
    night = max(NODES // 5, 1)
    parts = {
        "region": prices.REGION,
        "as_of": prices.AS_OF,
        "nodes": NODES,
        "pods": f"{NODES * office_hours.PODS_A_NODE:,}",
        "night_nodes": night,
        "night_pods": f"{night * office_hours.PODS_A_NODE:,}",
        "workdays": WORKDAYS,
        "items": _table(lines),
        "total": _total(lines),
        "observability_items": _table(month.full_observability()),
        "observability_total": _total(month.full_observability()),
        "fleets": fleet_cost.section(month.measured),
        "karpenter_items": _table(karpenter()),
        "karpenter_on_nodes": f"{node:.2f}",
        "karpenter_on_fargate": f"{fargate:.2f}",
        "buffer_items": _table(following()),
        "buffer_total": _total(following()),
        "webhook": webhook_cost.section(),
        "phases": _phase_table(),
        "measured_sizes": _measured_sizes(month),
        "full_vcpu": FULL_VCPU,
        "kubernetes_ms": f"{1000 * KUBERNETES_SECONDS:.0f}",
        "aws_ms": f"{1000 * AWS_SECONDS:.0f}",
        "fleet_seconds": f"{FLEET_SECONDS:.0f}",
        "pollers_saving": f"{POLLERS_SAVING:.2f}",
        "price_items": _price_table(),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(parts)


def _measured_sizes(month: Month) -> str:
    """Which sizes of clusters were measured, and what is extrapolated from them."""
    node_counts = ", ".join(f"{c['nodes']:.0f} in the {phase}" for phase, c in month.measured.get(NODES, {}).items())
    text = f"The measured cluster had {NODES} nodes (exactly: {node_counts})."
    if month.extrapolated:
        smaller = ", ".join(str(size) for size in sorted(month.measured) if size != NODES)
        text += f" Not measured at that size: {', '.join(month.extrapolated)}. "
        text += f"Its counts are extrapolated linearly from the two largest measured clusters (of {smaller} nodes)."
    return text


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


def _total(lines: list[BillItem]) -> str:
    return f"{fleet_cost.usd(lines):.2f}"


def _price_table() -> str:
    return "\n".join(
        f"| {p.usd:.10f}".rstrip("0").rstrip(".") + f" | {p.unit} | {p.page} | {p.seen or 'not verified'} |"
        for p in prices.ALL
    )

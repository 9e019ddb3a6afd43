"""``tenon plan``: asks for the facts, makes the plan and shows it; nothing is ever written."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.cluster import source
from cli.errors import UsageError, one_line

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import Facts
    from cli.plan.planning import Plan


def plan(
    file: source.File = None,
    what_if_changes: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            help="deployment/web=50 (statefulset/… too; NAMESPACE/NAME or --namespace) or nodepool=FILE; may be given "
            "again.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CAPACITY",
            help="As if there were none of it, and its nodes lost: spot, a zone, an instance type or a family; may be "
            "given again.",
        ),
    ] = None,
    namespace: source.Namespace = "default",
    search: Annotated[float, typer.Option(min=0, help="Seconds to look for savings.")] = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show what would be launched now, what disruption would do then, and the cost per hour before and after.

    Asks the cluster of your kubeconfig and AWS, or files; it only ever reads.

    For example:

      tenon plan

      tenon plan --what-if deployment/web=50 --what-if nodepool=pools.yaml

      tenon plan --without spot

      tenon plan --without us-east-1a --json

      kubectl get pods,nodes,nodeclaims,nodepools,ec2nodeclasses,daemonsets,pdb,pv,pvc,sc -A -o json | tenon plan -f -
    """
    with one_line("plan"), source.facts(file, context=context, cluster=cluster, region=region, aws=aws) as facts:
        from cli import terminal  # noqa: PLC0415 (slow to import)
        from cli.plan import summary, what_if  # noqa: PLC0415 (slow to import)

        changes = [what_if.parse(text, namespace=namespace) for text in what_if_changes or ()]
        asked = what_if.apply(facts, changes)
        made = _made(facts, asked, tuple(without or ()), search)
        if as_json:
            typer.echo(json.dumps(answer(asked, made)))
            return
        question = [*(what_if_changes or ()), *(f"without {what}" for what in without or ())]
        summary.show(terminal.console(), asked, made, question=", ".join(question))


def _made(before: Facts, facts: Facts, without: tuple[str, ...], search: float) -> Plan:
    from dataclasses import replace  # noqa: PLC0415 (beside the others)

    from cli.cluster import offerings  # noqa: PLC0415 (slow to import)
    from cli.cluster.observed_cluster import running_cost  # noqa: PLC0415 (the same)
    from cli.plan import (  # noqa: PLC0415 (slow to import)
        planning,
        what_if,
    )

    resolved_pools = facts.stock.offers(facts.snapshot)
    lost = what_if.nodes_of(facts.snapshot, without)
    if without:
        _known(facts, resolved_pools, without)
        resolved_pools = offerings.without(resolved_pools, without)
    end = time.monotonic() + search
    made = planning.make(facts, resolved_pools, lost=lost, should_stop=lambda: time.monotonic() >= end)
    cost, unpriced = running_cost(before.snapshot, resolved_pools)
    return replace(made, before=cost, unpriced=unpriced)


def _known(facts: Facts, resolved_pools: Any, without: tuple[str, ...]) -> None:  # noqa: ANN401 (a ResolvedNodePools, whose module is slow to import)
    """Refuse words that mean nothing here, rather than answer as if all were well."""
    words = {
        word
        for types in resolved_pools.instance_types.values()
        for t in types
        for o in t.offerings
        for word in (t.name, t.name.partition(".")[0], o.zone, o.capacity_type)
    }
    unknown = [w for w in without if w not in words]
    if unknown and facts.snapshot.node_pools:
        raise UsageError(
            f'--without "{unknown[0]}" is no capacity type, zone, instance type or family that a NodePool here '
            "could buy"
        )


def answer(facts: Facts, made: Plan) -> dict[str, Any]:
    """The plan as plain JSON values; USD per hour, times in UTC."""
    from cli.cluster.observed_cluster import prices_of  # noqa: PLC0415 (slow to import)
    from cli.simulate import decision_output  # noqa: PLC0415 (the same)

    after = made.after(prices_of(made.resolved_pools))
    return {
        "cluster": facts.name,
        "at": facts.now.isoformat(),
        "notes": list(facts.notes),
        "invalid": [{"object": str(i.ref), "problems": list(i.problems)} for i in made.snapshot.invalid],
        "costPerHour": {
            "before": round(made.before, 6),
            "after": round(after, 6),
            "launches": round(made.bought, 6),
            "savings": round(made.disruption.savings, 6),
            "unpricedNodes": made.unpriced,
        },
        "lostNodes": list(made.lost),
        "launches": decision_output.as_json(made.launches, {}),
        "disruption": {
            "actions": [
                {
                    "reason": a.reason,
                    "message": a.message,
                    "nodes": list(a.nodes),
                    "podsToMove": sorted(key for r in a.removals for key in r.pods),
                    "savings": round(a.savings, 6),
                    "replacements": [
                        {
                            "nodePool": c.node_pool,
                            "instanceType": c.cheapest.instance_type,
                            "zone": c.cheapest.zone,
                            "capacityType": c.cheapest.capacity_type,
                            "price": c.cheapest.price,
                        }
                        for c in a.replacements
                    ],
                }
                for a in made.disruption.actions
            ],
            "kept": [
                {"node": r.node, "nodeClaim": r.claim, "reason": r.reason, "message": r.message}
                for r in made.disruption.refused
            ],
            "waiting": [
                {"node": w.node, "reason": w.reason, "due": w.due.isoformat()} for w in made.disruption.waiting
            ],
            "searchEnded": made.disruption.ended,
        },
    }

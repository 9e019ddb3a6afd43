"""``tenon plan``: reads a cluster, computes the plan and prints it. It writes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from cli.cluster.observed_cluster import ObservedCluster
    from cli.plan.planning import Plan
    from shared.cloud_provider import ResolvedNodePools


def plan(
    file: source.File = None,
    what_if_changes: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="CHANGE",
            help="Plan for another number of replicas, deployment/web=50 (also statefulset/, replicaset/; "
            "NAMESPACE/NAME or --namespace), or with a file's NodePools or NodeOverlays, nodepool=FILE or "
            "nodeoverlay=FILE; repeatable.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CAPACITY",
            help="Plan without this capacity and without its nodes: spot, a zone, an instance type or a family; "
            "repeatable.",
        ),
    ] = None,
    namespace: source.Namespace = "default",
    search: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Time limit of the consolidation search.")
    ] = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show what Tenon would launch now, what it would disrupt then, and the cost per hour before and after.

    Reads the cluster of your kubeconfig and AWS, or files. It never writes.

    For example:

      tenon plan
      tenon plan --what-if deployment/web=50 --what-if nodepool=pools.yaml
      tenon plan --without spot
      tenon plan --without us-east-1a --json

    From files:

      kubectl get pods,nodes,nodeclaims,nodepools,ec2nodeclasses -Ao json >1.json
      kubectl get daemonsets,services,pdb,pv,pvc,sc -Ao json >2.json
      tenon plan --file 1.json --file 2.json
    """
    with (
        errors_as_one_line("plan"),
        source.open_cluster(file, context=context, cluster=cluster, region=region, aws=aws) as observed,
    ):
        with progress("Planning"):
            from cli import json_output, terminal  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster.observed_cluster import as_decided  # noqa: PLC0415 (the same)
            from cli.plan import json_plan, output, what_if  # noqa: PLC0415 (the same)

            current = as_decided(observed)
            changes = [what_if.parse(text, namespace=namespace) for text in what_if_changes or ()]
            changed = what_if.apply(current, changes)
            computed = _compute(current, changed, tuple(without or ()), search)
        if as_json:
            typer.echo(json_output.text("plan", json_plan.output(changed, computed)))
            return
        assumptions = [*(what_if_changes or ()), *(f"without {word}" for word in without or ())]
        output.show(terminal.console(), changed, computed, assumptions=", ".join(assumptions))


def _compute(before: ObservedCluster, changed: ObservedCluster, without: tuple[str, ...], search: float) -> Plan:
    from dataclasses import replace  # noqa: PLC0415 (next to the others)

    from cli.cluster import offerings  # noqa: PLC0415 (slow to import)
    from cli.cluster.pricing import cluster_cost  # noqa: PLC0415 (the same)
    from cli.plan import planned_pods, planning, what_if  # noqa: PLC0415 (the same)

    resolved_pools = changed.offerings.resolve_pools(changed.snapshot)
    lost = what_if.nodes_of(changed.snapshot, without)
    if without:
        _validate(changed, resolved_pools, without)
        resolved_pools = offerings.without(resolved_pools, without)
    end = time.monotonic() + search
    computed = planning.make_plan(changed, resolved_pools, lost=lost, should_stop=lambda: time.monotonic() >= end)
    cost, unpriced = cluster_cost(before.snapshot, resolved_pools)
    traffic = planned_pods.planned_traffic(before.services(), before.snapshot, computed)
    return replace(computed, cost_before=cost, unpriced=unpriced, traffic=traffic)


def _validate(observed: ObservedCluster, resolved_pools: ResolvedNodePools, without: tuple[str, ...]) -> None:
    """Refuse words that name no offering: the plan would silently ignore them."""
    words = {
        word
        for types in resolved_pools.instance_types.values()
        for t in types
        for o in t.offerings
        for word in (t.name, t.name.partition(".")[0], o.zone, o.capacity_type)
    }
    unknown = [w for w in without if w not in words]
    if unknown and observed.snapshot.node_pools:
        raise UsageError(
            f'--without "{unknown[0]}" is no capacity type, zone, instance type or family that a NodePool of this '
            "cluster can launch"
        )

"""``tenon plan``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.cluster import completion, source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.progress import progress

WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="CHANGE",
        help="Plan for another number of replicas, deployment/web=50 (also statefulset/, replicaset/; "
        "NAMESPACE/NAME or --namespace), or with a file's NodePools or NodeOverlays, nodepool=FILE or "
        "nodeoverlay=FILE; repeatable.",
        autocompletion=completion.changes,
    ),
]
Add = Annotated[
    list[Path] | None,
    typer.Option(
        "--add",
        metavar="FILE",
        help="Plan with the objects of a file too, such as a new Deployment, as if they were applied; repeatable.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CAPACITY",
        help="Plan without this capacity and without its nodes: spot, a zone, an instance type or a family; "
        "repeatable.",
    ),
]
Search = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Time limit of the consolidation search.")]


@examples(
    "kubectl get pods,nodes,nodeclaims,nodepools,ec2nodeclasses -Ao json >1.json",
    "kubectl get daemonsets,services,pdb,pv,pvc,sc -Ao json >2.json",
    "tenon plan --file 1.json --file 2.json",
    title="From files",
)
@examples(
    "tenon plan",
    "tenon plan --what-if deployment/web=50 --what-if nodepool=pools.yaml",
    "tenon plan --add deployment.yaml -n shop",
    "tenon plan --without spot",
    "tenon plan --without us-east-1a --json",
)
def plan(
    file: source.File = None,
    what_if_changes: WhatIf = None,
    without: Without = None,
    namespace: source.Namespace = "default",
    search: Search = 2.0,
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    add: Add = None,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Show what Tenon would launch now, what it would disrupt then, and the cost per hour before and after.

    Reads the cluster of your kubeconfig and AWS, or files. It never writes.
    """
    with errors_as_one_line("plan"):
        with progress(source.reading(file)):
            from cli.plan.run import Assumptions, run

        assumptions = Assumptions(what_if_changes or (), without or (), add or (), namespace=namespace)
        run(
            file,
            ClusterReference(context=context, cluster=cluster, region=region),
            assumptions,
            search=search,
            aws=aws,
            as_json=as_json,
        )

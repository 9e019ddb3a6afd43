"""``tenon explain``: why a pod is pending, a node kept, a NodePool or NodeClaim without a node, a buffer not whole."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

_KINDS = {
    "pod": "pod", "pods": "pod", "po": "pod",
    "node": "node", "nodes": "node", "no": "node",
    "nodepool": "nodepool", "nodepools": "nodepool", "np": "nodepool", "provisioner": "nodepool",
    "nodeclaim": "nodeclaim", "nodeclaims": "nodeclaim", "nc": "nodeclaim",
    "nodegroup": "nodegroup", "nodegroups": "nodegroup", "ng": "nodegroup",
    "nodeoverlay": "nodeoverlay", "nodeoverlays": "nodeoverlay", "overlay": "nodeoverlay", "overlays": "nodeoverlay",
    "buffer": "buffer", "capacitybuffer": "buffer", "capacitybuffers": "buffer", "cb": "buffer",
}  # fmt: skip


def _complete_kind(incomplete: str) -> list[str]:
    kinds = ("pod", "node", "nodepool", "nodeclaim", "nodegroup", "nodeoverlay", "buffer")
    return [k for k in kinds if k.startswith(incomplete)]


def explain(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pod, node, nodepool, nodeclaim, nodegroup, nodeoverlay or buffer; or KIND/NAME.",
            autocompletion=_complete_kind,
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The object's name; for a pod or buffer also NAMESPACE/NAME.")
    ] = "",
    file: source.File = None,
    namespace: source.Namespace = "default",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Explain why a pod is pending, a node is kept, a NodePool or NodeClaim has no node, or a buffer isn't whole.

    For a NodeOverlay: which prices and resources it sets.

    Prints the reason first, then changes that would help, each check with its result, and past events and decisions.

    For example:

      tenon explain pod web-7d9f8-x2kq -n shop
      tenon explain node ip-10-0-1-17.ec2.internal
      tenon explain nodepool default
      tenon explain nodeclaim/default-x7k2p --json
      tenon explain nodegroup system
      tenon explain nodeoverlay discount
      tenon explain buffer web -n shop
    """
    with errors_as_one_line("explain"):
        if not name:
            kind, _, name = kind.partition("/")
        resource = _KINDS.get(kind.lower())
        if resource is None or not name:
            kinds = "pod, node, nodepool, nodeclaim, nodegroup, nodeoverlay or buffer"
            raise UsageError(f'"{kind} {name}" is not {kinds} with a name')
        with source.open_cluster(file, context=context, cluster=cluster, region=region, aws=aws) as observed:
            with progress("Explaining"):
                from cli import json_output, terminal  # noqa: PLC0415 (slow to import, and --help doesn't need it)
                from cli.cluster.observed_cluster import as_decided  # noqa: PLC0415 (the same)
                from cli.explain import (  # noqa: PLC0415 (the same)
                    capacity_buffers,
                    explanation,
                    json_explanation,
                    node_claims,
                    node_groups,
                    node_overlays,
                    node_pools,
                    nodes,
                    pods,
                )

                deciding = as_decided(observed)
                match resource:
                    case "pod":
                        result = pods.explain(deciding, name if "/" in name else f"{namespace}/{name}")
                    case "buffer":
                        result = capacity_buffers.explain(deciding, name if "/" in name else f"{namespace}/{name}")
                    case "node":
                        result = nodes.explain(observed, name)
                    case "nodepool":
                        result = node_pools.explain(deciding, name)
                    case "nodeoverlay":
                        result = node_overlays.explain(deciding, name)
                    case "nodegroup":
                        result = node_groups.explain(deciding, name)
                    case _:
                        result = node_claims.explain(observed, name)
            if as_json:
                typer.echo(json_output.text("explain", json_explanation.output(result)))
            else:
                explanation.show(
                    terminal.console(), result, now=observed.now, notes=(*observed.pauses, *observed.notes)
                )

"""``tenon explain``: which object, and what is said of it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cli.cluster import source
from cli.errors import UsageError, errors_as_one_line

_KINDS = {
    "pod": "pod", "pods": "pod", "po": "pod",
    "node": "node", "nodes": "node", "no": "node",
    "nodepool": "nodepool", "nodepools": "nodepool", "np": "nodepool", "provisioner": "nodepool",
    "nodeclaim": "nodeclaim", "nodeclaims": "nodeclaim", "nc": "nodeclaim",
}  # fmt: skip


def _complete_kind(incomplete: str) -> list[str]:
    return [k for k in ("pod", "node", "nodepool", "nodeclaim") if k.startswith(incomplete)]


def explain(
    kind: Annotated[
        str, typer.Argument(help="pod, node, nodepool or nodeclaim; or KIND/NAME.", autocompletion=_complete_kind)
    ],
    name: Annotated[str, typer.Argument(help="Its name; NAMESPACE/NAME for a pod.")] = "",
    file: source.File = None,
    namespace: source.Namespace = "default",
    context: source.Context = "",
    cluster: source.Cluster = "",
    region: source.Region = "",
    *,
    aws: source.Aws = False,
    as_json: source.Json = False,
) -> None:
    """Say why a pod waits, a node is kept, or a pool or claim doesn't launch.

    The reason first, then each constraint with its answer, the nearest miss, and what the decision log and events say.

    For example:

      tenon explain pod web-7d9f8-x2kq -n shop

      tenon explain node ip-10-0-1-17.ec2.internal

      tenon explain nodepool default

      tenon explain nodeclaim/default-x7k2p --json
    """
    with errors_as_one_line("explain"):
        if not name:
            kind, _, name = kind.partition("/")
        what = _KINDS.get(kind.lower())
        if what is None or not name:
            raise UsageError(f'"{kind} {name}" is not pod, node, nodepool or nodeclaim with a name')
        with source.open_cluster(file, context=context, cluster=cluster, region=region, aws=aws) as observed:
            from cli import terminal  # noqa: PLC0415 (slow to import)
            from cli.explain import explanation, node_claims, node_pools, nodes, pods  # noqa: PLC0415

            match what:
                case "pod":
                    found = pods.explain(observed, name if "/" in name else f"{namespace}/{name}")
                case "node":
                    found = nodes.explain(observed, name)
                case "nodepool":
                    found = node_pools.explain(observed, name)
                case _:
                    found = node_claims.explain(observed, name)
            if as_json:
                typer.echo(json.dumps(explanation.as_json(found)))
            else:
                explanation.show(terminal.console(), found, now=observed.now, notes=observed.notes)

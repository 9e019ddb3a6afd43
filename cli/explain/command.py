"""``tenon explain``: why a pod is pending, a node kept, a NodePool or NodeClaim without a node, a buffer not whole."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.cluster import completion, source
from cli.cluster.cluster_reference import ClusterReference
from cli.command_help import examples
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
_NAMESPACED = {"pod", "buffer"}


def _complete_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    kind, slash, name = incomplete.partition("/")
    if slash:
        return [f"{kind}/{word}" for word in _names(ctx, kind, name)]
    kinds = ("pod", "node", "nodepool", "nodeclaim", "nodegroup", "nodeoverlay", "buffer")
    return [k for k in kinds if k.startswith(incomplete)]


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, str(ctx.params.get("kind") or ""), incomplete)


def _names(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    namespace, slash, name = incomplete.rpartition("/")
    words = completion.objects_of(ctx, _KINDS.get(kind.lower(), ""), namespace=namespace)
    return [f"{namespace}{slash}{word}" for word in words if word.startswith(name)]


Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="pod, node, nodepool, nodeclaim, nodegroup, nodeoverlay or buffer; or KIND/NAME.",
        autocompletion=_complete_kind,
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The object's name; for a pod or buffer also NAMESPACE/NAME.",
        autocompletion=_complete_name,
    ),
]


@examples(
    "tenon explain pod web-7d9f8-x2kq -n shop",
    "tenon explain node ip-10-0-1-17.ec2.internal",
    "tenon explain nodepool default",
    "tenon explain nodeclaim/default-x7k2p --json",
    "tenon explain nodegroup system",
    "tenon explain nodeoverlay discount",
    "tenon explain buffer web -n shop",
)
def explain(
    kind: Kind,
    name: Name = "",
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
    """
    with errors_as_one_line("explain"):
        resource, name = _resource(kind, name)
        with progress(source.reading(file)):
            from cli.explain.run import run

        run(
            resource,
            name if "/" in name or resource not in _NAMESPACED else f"{namespace}/{name}",
            file,
            ClusterReference(context=context, cluster=cluster, region=region),
            aws=aws,
            as_json=as_json,
        )


def _resource(kind: str, name: str) -> tuple[str, str]:
    """The kind in its first form, and the name, which may have been given as KIND/NAME.

    Raises:
        UsageError: there is no such kind, or no name.
    """
    if not name:
        kind, _, name = kind.partition("/")
    resource = _KINDS.get(kind.lower())
    if resource is None or not name:
        kinds = "pod, node, nodepool, nodeclaim, nodegroup, nodeoverlay or buffer"
        raise UsageError(f'"{kind} {name}" is not {kinds} with a name')
    return resource, name

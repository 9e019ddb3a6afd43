"""Words that complete arguments and options at a Tab: names of the cluster's objects, namespaces and contexts.

The cluster is asked once, for one kind, with the options that are typed already. If it can't be read, nothing is
completed: a message would be in the middle of the line that is typed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.cluster.resources import Resource

_MAX_PAGES = 10
"""Pages of 500 objects that are looked through: a second in a large cluster."""


def contexts(incomplete: str) -> list[str]:
    """The contexts of the kubeconfig."""
    from cli.cluster.kubeconfig_context import context_names

    return _beginning(incomplete, context_names())


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """The cluster's namespaces."""
    from shared.cluster import resources

    return _beginning(incomplete, _names(ctx, resources.NAMESPACES))


def node_pools(ctx: typer.Context, incomplete: str) -> list[str]:
    """The cluster's NodePools; the last of several that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, objects_of(ctx, "nodepool"))]


def changes(ctx: typer.Context, incomplete: str) -> list[str]:
    """``deployment/NAME=`` and the like, for ``tenon plan --what-if``."""
    from shared.cluster import resources

    scaled = {"deployment": resources.DEPLOYMENTS, "statefulset": resources.STATEFUL_SETS}
    kind, slash, name = incomplete.partition("/")
    if not slash or kind not in scaled:
        return _beginning(incomplete, (f"{kind}/" for kind in (*scaled, "replicaset")))
    return [f"{kind}/{workload}=" for workload in _beginning(name, _names(ctx, scaled[kind]))]


def objects_of(ctx: typer.Context, kind: str, *, namespace: str = "") -> list[str]:
    """The names of the cluster's objects of a kind that ``tenon explain`` knows.

    Pods and buffers are those of the namespace, or of the one that the options name.
    """
    from shared.cluster import resources

    by_kind: dict[str, tuple[Resource, ...]] = {
        "pod": (resources.PODS,),
        "node": (resources.NODES,),
        "nodepool": (resources.NODE_POOLS, resources.PROVISIONERS),
        "nodeclaim": (resources.NODE_CLAIMS,),
        "nodeoverlay": (resources.NODE_OVERLAYS,),
        "buffer": (resources.CAPACITY_BUFFERS,),
    }
    return [name for resource in by_kind.get(kind, ()) for name in _names(ctx, resource, namespace)]


def _names(ctx: typer.Context, resource: Resource, namespace: str = "") -> list[str]:
    """The names of the objects in the cluster that the options choose."""
    import contextlib
    import itertools
    import os

    import msgspec

    from shared.cluster import kubeconfig
    from shared.cluster.errors import ApiError
    from shared.cluster.kubeconfig import KubeconfigError

    options: dict[str, Any] = ctx.params
    if options.get("file"):
        return []
    environ = dict(os.environ)
    if options.get("kubeconfig"):
        environ["KUBECONFIG"] = str(options["kubeconfig"])
    namespace = (namespace or options.get("namespace") or "default") if resource.namespaced else ""
    named: list[str] = []
    with contextlib.suppress(ApiError, KubeconfigError):
        client = kubeconfig.client(environ, context=options.get("context") or "", attempts=1, user_agent="tenon-cli")
        pages = client.list_pages(resource.path(namespace=namespace))
        for page in itertools.islice(pages, _MAX_PAGES):
            named += [item["metadata"]["name"] for item in msgspec.json.decode(page)["items"]]
    return sorted(named)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]

"""Pods with the zones of their nodes: the clients and the endpoints of Services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import is_true
from shared.api.pods import is_daemon, is_terminal, is_terminating
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.kubernetes import Pod
    from shared.snapshot import Snapshot

_READY = "Ready"


class PlacedPod(Struct, kw_only=True):
    """A pod on a node of a known zone.

    ``is_client``: it counts where clients are. DaemonSets' pods don't: there are as many in a zone as nodes.
    """

    namespace: str
    labels: Mapping[str, str]
    zone: str
    is_ready: bool = True
    is_client: bool = True


def running_pods(snapshot: Snapshot) -> Iterator[PlacedPod]:
    """The pods on nodes; without those that have ended or are being deleted, and those in no known zone."""
    zones = node_zones(snapshot)
    for pod in snapshot.pods:
        if zone := zones.get(pod.spec.node_name, ""):
            yield from placed(pod, zone, is_ready=is_ready(pod))


def placed(pod: Pod, zone: str, *, is_ready: bool) -> Iterator[PlacedPod]:
    """The pod in a zone; nothing if it has ended or is being deleted."""
    if not (is_terminal(pod) or is_terminating(pod)):
        yield PlacedPod(
            namespace=pod.metadata.namespace or "default",
            labels=pod.metadata.labels,
            zone=zone,
            is_ready=is_ready,
            is_client=not is_daemon(pod),
        )


def is_ready(pod: Pod) -> bool:
    """Whether the pod is ready, so that it is an endpoint of the Services that select it."""
    return is_true(pod.status.conditions, _READY)


def node_zones(snapshot: Snapshot) -> dict[str, str]:
    """The zone by node, and by NodeClaim, whose node may not have joined yet."""
    claims = {c.name: c.metadata.labels.get(names.ZONE, "") for c in snapshot.node_claims}
    return claims | {n.metadata.name: n.metadata.labels.get(names.ZONE, "") for n in snapshot.nodes}

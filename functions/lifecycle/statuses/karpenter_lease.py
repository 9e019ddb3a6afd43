"""Pauses the cluster while Karpenter runs in it: two that decide launch twice, and disrupt each other's nodes.

Karpenter's replicas elect a leader by a Lease, which its holder renews every two seconds. While somebody does, the
cluster is paused for three minutes at a time, as by ``tenon pause``: it says so wherever a pause is shown, and ends by
itself once Karpenter has stopped. A pause that somebody else has set stays as it is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api.pause import BY_TENON, pause_annotations, read_pause
from shared.cluster import cluster_pause
from shared.cluster.lease import KARPENTER_LEASE, NAMESPACE, is_recent, read_lease

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext

KARPENTER_NAMESPACES = (NAMESPACE, "karpenter")
"""Where Karpenter's documentation has installed it: kube-system, and before 0.33 karpenter."""
_RENEWED_WITHIN = timedelta(minutes=1)
_PAUSED_FOR = timedelta(minutes=3)


def pause_while_held(context: ReconcileContext) -> None:
    """Pause the cluster if Karpenter's Lease is being renewed, unless somebody else has paused it."""
    namespace, holder = next(((n, h) for n in KARPENTER_NAMESPACES if (h := _holder(context, n))), ("", ""))
    if not holder:
        return
    cluster, now = context.settings.cluster_name, context.now
    pause = read_pause(cluster_pause.lease_annotations(context.client, cluster=cluster), now=now)
    if pause is not None and pause.by != BY_TENON:
        return
    annotations = pause_annotations(
        since=pause.since if pause is not None and pause.since is not None else now,
        until=now + _PAUSED_FOR,
        by=BY_TENON,
        reason=f"Karpenter runs in the cluster: {holder} holds Lease {namespace}/{KARPENTER_LEASE}",
    )
    cluster_pause.write_annotations(context.client, annotations, cluster=cluster)
    context.logger.warning("Paused, because Karpenter runs in the cluster", extra={"holder": holder})


def _holder(context: ReconcileContext, namespace: str) -> str:
    """Who holds Karpenter's Lease there; "" if nobody has renewed it within a minute."""
    lease = read_lease(context.client, KARPENTER_LEASE, namespace=namespace)
    renewed = lease.spec.renew_time if lease is not None else None
    if lease is None or renewed is None or not is_recent(renewed, now=context.now, within=_RENEWED_WITHIN):
        return ""
    return lease.spec.holder_identity or ""

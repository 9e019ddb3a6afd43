"""Reads from the Kubernetes API what the metrics need, and nothing else, so that few rights suffice.

The order of the lists is that of :mod:`shared.cluster.snapshot_reader`. In a large cluster pods and nodes are updated
by a watch instead of a list each time (:mod:`shared.cluster.watched_objects`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.base.struct import Struct, with_fields
from shared.cluster import kubeconfig, node_class_groups, resources
from shared.cluster.cluster_pause import stored_pause
from shared.cluster.errors import ApiError, ForbiddenError
from shared.cluster.snapshot_reader import (
    SnapshotReader,
    convert_node_classes,
    convert_node_overlays,
    convert_node_pools,
    list_raw,
)
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from cli.cluster.cluster_reference import ClusterReference
    from infra.cluster.kubernetes.cluster_manifests import Rule

RULES: tuple[Rule, ...] = (
    # Those of large clusters are watched from the last resourceVersion instead of listing all of them again.
    ("", ("nodes", "pods"), ("list", "watch")),
    ("karpenter.sh", ("nodeclaims", "nodeoverlays", "nodepools", "provisioners"), ("list",)),
    ("karpenter.k8s.aws", ("awsnodetemplates", "ec2nodeclasses"), ("list",)),
)
"""What a ClusterRole must allow."""
LEASE_RULES: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("get",)),)
"""What a Role in kube-system must allow for the cluster's Lease, which says whether the cluster is paused."""


class ClusterState(Struct, kw_only=True):
    """The objects, and whether the cluster's pause is known: few users may read Leases of kube-system."""

    snapshot: Snapshot
    is_pause_known: bool = True


class ClusterReader:
    """Reads one cluster again and again. Not thread-safe.

    After an error it connects again: credentials, certificate or address may have changed since.
    """

    def __init__(self, reference: ClusterReference) -> None:
        self._reference = reference
        self._reader: SnapshotReader | None = None

    def read(self, now: datetime) -> ClusterState:
        """Pods that haven't ended, NodeClaims, nodes, NodePools, node classes and the pause.

        Raises:
            ApiError: the cluster can't be read.
            KubeconfigError: no kubeconfig can be used.
        """
        reader = self._reader or self.connect()
        try:
            return self._snapshot(reader, now)
        except ApiError:
            self._reader = None
            raise

    def connect(self) -> SnapshotReader:
        """A new connection by the kubeconfig, or in a pod by the service account.

        Raises:
            KubeconfigError: there is none, or it can't be used.
        """
        client = kubeconfig.client(os.environ, context=self._reference.context, attempts=2, user_agent="tenon-export")
        self._reader = SnapshotReader(client)
        return self._reader

    def _snapshot(self, reader: SnapshotReader, now: datetime) -> ClusterState:
        client = reader.client
        pods = reader.pods.read()
        claims = reader.node_claims()
        nodes = reader.nodes.read()
        pools, invalid_pools = convert_node_pools(list_raw(client, resources.NODE_POOLS, resources.PROVISIONERS))
        classes, invalid_classes = convert_node_classes(
            list_raw(client, resources.NODE_CLASSES, resources.NODE_TEMPLATES)
        )
        overlays, invalid_overlays = convert_node_overlays(list_raw(client, resources.NODE_OVERLAYS))
        snapshot = Snapshot(
            taken_at=now,
            pods=pods.objects,
            node_claims=claims.own.objects,
            nodes=node_class_groups.unmanaged(nodes.objects, claims.foreign_provider_ids),
            node_pools=pools,
            node_classes=classes,
            node_overlays=overlays,
            invalid=(
                *pods.invalid,
                *claims.own.invalid,
                *nodes.invalid,
                *invalid_pools,
                *invalid_classes,
                *invalid_overlays,
            ),
        )
        try:
            pause = stored_pause(client, cluster=self._reference.cluster, now=now)
        except ForbiddenError:
            return ClusterState(snapshot=snapshot, is_pause_known=False)
        return ClusterState(snapshot=with_fields(snapshot, pause=pause))

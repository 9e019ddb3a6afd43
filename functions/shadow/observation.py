"""Reads what a run decides from: the cluster (list and get only), EC2's descriptions, and the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.shadow.autoscalers import KARPENTER, autoscalers, scaled_instances
from functions.shadow.default_pools import DerivedPools, derived_pools
from functions.shadow.observed import Observed
from functions.shadow.real_fleet import changed_instances, lifetimes
from shared.api import labels as names
from shared.api.meta import condition
from shared.api.nodeclass import READY
from shared.base import aws, runtime
from shared.base.plurals import plural
from shared.base.struct import with_fields
from shared.cluster.connect import connect, describe
from shared.cluster.snapshot_reader import convert_node_classes, convert_node_pools, read_snapshot
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.node_class.status import NodeClassResolver
from shared.launch.resolved_node_pools import LaunchConditions, current_node_classes, resolve_node_pools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from functions.shadow.settings import ShadowSettings
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.shadow.record import Record
    from shared.snapshot import Snapshot

_ANY_PROFILE = "shadow"
"""Stands for nodes' instance profile: virtual nodes have none."""


def observe(settings: ShadowSettings, record: Record, catalog: InstanceTypeCatalog, *, now: datetime) -> Observed:
    """What there is now.

    Raises:
        ApiError: the API server can't be read.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    client = connect(settings)
    snapshot = read_snapshot(client, now=now, leaving=None)
    owners = autoscalers(snapshot, scaled_instances(client, settings.cluster_name, now=now))
    snapshot, derived = with_pools(snapshot, owners, settings, catalog, record)
    resolver = NodeClassResolver(
        clients=aws,
        runtime=runtime.current(),
        cluster=describe(aws.eks(), settings.cluster_name),
        default_instance_profile=_ANY_PROFILE,
        catalog=catalog,
    )
    node_classes = current_node_classes(resolver, map(_without_profile, snapshot.node_classes), now=now)
    cache = InstanceTypeCache.of(resolver.runtime)
    resolved = resolve_node_pools(snapshot, node_classes, catalog, LaunchConditions(), cache=cache, now=now)
    return Observed(
        snapshot=snapshot,
        autoscalers=owners,
        pools={**_own_pools(snapshot), **derived.by_node},
        derived=derived,
        resolved_pools=resolved,
        catalog=catalog,
        lifetimes=lifetimes(changed_instances(record, snapshot)),
        notes=tuple(_notes(owners, derived, resolved, catalog)),
    )


def with_pools(
    snapshot: Snapshot,
    owners: Mapping[str, str],
    settings: ShadowSettings,
    catalog: InstanceTypeCatalog,
    record: Record,
) -> tuple[Snapshot, DerivedPools]:
    """The snapshot with the NodePools to decide with: the deployment's, else the cluster's own and derived ones."""
    given = settings.pools
    if given:
        pools, classes = convert_node_pools(given)[0], convert_node_classes(given)[0]
        return with_fields(snapshot, node_pools=pools, node_classes=classes), DerivedPools()
    nodes = [node for node in snapshot.nodes if owners[node.metadata.name] not in {"", KARPENTER}]
    derived = derived_pools(nodes, snapshot.pods, catalog, before=record.derived)
    snapshot = with_fields(
        snapshot,
        node_pools=(*snapshot.node_pools, *derived.pools),
        node_classes=(*snapshot.node_classes, *derived.node_classes),
    )
    return snapshot, derived


def _own_pools(snapshot: Snapshot) -> dict[str, str]:
    """The NodePool that each node's label names, by the node's name."""
    return {
        node.metadata.name: value
        for node in snapshot.nodes
        for key, value in node.metadata.labels.items()
        if names.normalize_key(key) == names.NODEPOOL
    }


def _without_profile(node_class: EC2NodeClass) -> EC2NodeClass:
    """The class without its role and profile, which virtual nodes don't need, unless its status is known already."""
    ready = condition(node_class.status.conditions, READY)
    if ready is not None and ready.status == "True":
        return node_class
    return with_fields(node_class, spec=with_fields(node_class.spec, role="", instance_profile=""))


def _notes(
    owners: Mapping[str, str], derived: DerivedPools, resolved: ResolvedNodePools, catalog: InstanceTypeCatalog
) -> Iterator[str]:
    """What the report has to say about the input."""
    scaling = sorted({owner for owner in owners.values() if owner})
    if not scaling:
        yield "No node is scaled by Karpenter, EKS Auto Mode or Cluster Autoscaler: there is nothing to compare with."
    if derived.pools:
        are = "is" if len(derived.pools) == 1 else "are"
        yield (
            f"{plural(len(derived.pools), 'NodePool')} {are} derived from the nodes of {' and '.join(scaling)}; "
            "name your own by -c shadowPools=FILE."
        )
    for pool, why in sorted(resolved.not_ready.items()):
        yield f"NodePool {pool} can't launch: {why}"
    if catalog.price_source != "aws":
        yield "On-demand prices are not those of AWS's price list: it could not be read."

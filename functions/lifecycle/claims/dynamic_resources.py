"""NodeClaims whose extended resources drivers of dynamic resource allocation provide.

A node whose kubelet never reports a resource that its pods requested would never be initialized. Where a DeviceClass
provides the resource, the node has it once its driver has published a complete pool of devices. An annotation on the
NodeClaim says so, from which every decision knows. DeviceClasses and ResourceSlices are read only while a node lacks
nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from functions.lifecycle.claims.initialization import missing_resources
from shared.api.dynamic_resources import DeviceClass, ResourceSlice, dynamic_resources, has_complete_pool, provides
from shared.api.labels import DYNAMIC_RESOURCES
from shared.api.meta import annotated
from shared.base.struct import with_fields
from shared.cluster import listing, resources
from shared.cluster.errors import ForbiddenError
from shared.cluster.snapshot_reader import list_if_kind_exists

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim


def annotate(
    context: ReconcileContext, pairs: Sequence[tuple[NodeClaim, Node]], waiting: Collection[str]
) -> list[tuple[NodeClaim, Node]]:
    """The pairs, with the annotation on NodeClaims whose missing resources drivers provide.

    ``waiting`` are the names of those that lack nothing but such resources.
    """
    try:
        classes = list_if_kind_exists(context.client, resources.DEVICE_CLASSES, DeviceClass).objects
    except ForbiddenError as error:
        context.logger.warning("DeviceClasses can't be listed", extra={"why": str(error)})
        return list(pairs)
    after: list[tuple[NodeClaim, Node]] = []
    for claim, node in pairs:
        written: list[NodeClaim] = []
        if classes and claim.name in waiting:
            context.attempt(claim.ref, partial(_annotate, context, claim, node, classes, written))
        after.append((written[0] if written else claim, node))
    return after


def _annotate(
    context: ReconcileContext,
    claim: NodeClaim,
    node: Node,
    classes: Sequence[DeviceClass],
    written: list[NodeClaim],
) -> None:
    """Annotate the NodeClaim, and add it to ``written``, if drivers provide every resource that its node lacks."""
    missing = missing_resources(node, claim)
    if not all(provides(classes, name) for name in missing):
        return
    fields = f"spec.nodeName={node.metadata.name}"
    slices = listing.list_objects(context.client, resources.RESOURCE_SLICES, ResourceSlice, fields=fields).objects
    if not has_complete_pool(slices):
        return
    names = ",".join(sorted({*missing, *dynamic_resources(claim)}))
    context.client.patch(
        resources.NODE_CLAIMS.path(claim.name), {"metadata": {"annotations": {DYNAMIC_RESOURCES: names}}}
    )
    written.append(with_fields(claim, metadata=annotated(claim.metadata, {DYNAMIC_RESOURCES: names})))
    context.logger.info("Drivers provide resources of a node", extra={"node": node.metadata.name, "resources": names})

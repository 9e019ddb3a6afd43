"""What real nodes said of their memory: better than any estimate of what the hypervisor takes.

Karpenter's idea: the first node of a type with an image teaches its true capacity. It is read from the nodes that are
there, so nothing is stored; of several nodes the smallest counts, because a pod must fit on the next one too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.quantity import MEMORY, QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass


def memory(nodes: Iterable[Node], claims: Iterable[NodeClaim], node_class: EC2NodeClass) -> dict[str, int]:
    """By instance type: the memory capacity in bytes that registered nodes of the class reported.

    Only nodes that booted from one of the class's images of today count: another kernel takes another share.
    """
    images = {ami.id for ami in node_class.status.amis}
    current = {c.status.provider_id for c in claims if c.status.provider_id and c.status.image_id in images}
    found: dict[str, int] = {}
    for node in nodes:
        own = node.metadata.labels
        instance_type = own.get(labels.INSTANCE_TYPE, "")
        if (
            node.spec.provider_id not in current
            or own.get(labels.REGISTERED) != "true"
            or own.get(labels.NODECLASS) != node_class.name
            or not instance_type
        ):
            continue
        amount = _reported(node)
        if amount > 0:
            found[instance_type] = min(amount, found.get(instance_type, amount))
    return found


def _reported(node: Node) -> int:
    """Bytes; 0 while the kubelet hasn't said, or says something that is no quantity."""
    try:
        return parse_quantity(MEMORY, node.status.capacity.get(MEMORY, 0))
    except QuantityError:
        return 0

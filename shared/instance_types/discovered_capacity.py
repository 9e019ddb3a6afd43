"""The memory capacity that registered nodes report: more exact than the estimate of the hypervisor's overhead.

Karpenter does the same: the first node of an instance type and AMI shows the type's capacity. It is read from the
existing nodes, so nothing is stored. Of several nodes the smallest counts, because a pod must fit on the next one too.
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

    Only nodes with one of the class's current AMIs count, because another kernel reserves another amount.
    """
    amis = {ami.id for ami in node_class.status.amis}
    provider_ids = {c.status.provider_id for c in claims if c.status.provider_id and c.status.image_id in amis}
    smallest: dict[str, int] = {}
    for node in nodes:
        instance_type = node.metadata.labels.get(labels.INSTANCE_TYPE, "")
        if node.spec.provider_id not in provider_ids or not instance_type or not _is_registered(node, node_class):
            continue
        reported = _reported(node)
        if reported > 0:
            smallest[instance_type] = min(reported, smallest.get(instance_type, reported))
    return smallest


def _is_registered(node: Node, node_class: EC2NodeClass) -> bool:
    node_labels = node.metadata.labels
    return node_labels.get(labels.REGISTERED) == "true" and node_labels.get(labels.NODECLASS) == node_class.name


def _reported(node: Node) -> int:
    """Bytes; 0 if the kubelet has reported nothing yet, or an invalid quantity."""
    try:
        return parse_quantity(MEMORY, node.status.capacity.get(MEMORY, 0))
    except QuantityError:
        return 0

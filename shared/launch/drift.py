"""Whether an instance has drifted from its EC2NodeClass: its static fields, AMI, subnet, security groups, reservation.

Pure. The rules are Karpenter's (docs/facts/karpenter.md, section 5). Drift from the NodePool is in
``shared.disruption.drift``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.hash import NODECLASS_HASH_VERSION, hash_node_class
from shared.api.nodeclass import EC2NodeClass

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import InstanceNetwork, NodeClass


def node_class_drift(claim: NodeClaim, node_class: NodeClass, network: InstanceNetwork | None) -> str:
    """How the instance differs from what the class selects now, in words; empty if it doesn't.

    Hashes of another version say nothing: the NodeClaim gets a new one. ``network`` None: not known, and not compared.
    """
    assert isinstance(node_class, EC2NodeClass)  # the NodeClaim is this cloud's
    annotations, status = claim.metadata.annotations, node_class.status
    same_version = annotations.get(labels.NODECLASS_HASH_VERSION) == NODECLASS_HASH_VERSION
    if same_version and annotations.get(labels.NODECLASS_HASH) != hash_node_class(node_class):
        return f"{node_class.ref} has changed"
    if status.amis and claim.status.image_id and claim.status.image_id not in {a.id for a in status.amis}:
        return f"AMI {claim.status.image_id} is no longer selected by {node_class.ref}"
    if network is not None and (message := _network_drift(network, node_class)):
        return message
    return ""


def _network_drift(network: InstanceNetwork, node_class: EC2NodeClass) -> str:
    status = node_class.status
    if status.subnets and network.subnet and network.subnet not in {s.id for s in status.subnets}:
        return f"subnet {network.subnet} is no longer selected by {node_class.ref}"
    selected = {g.id for g in status.security_groups}
    if selected and network.security_groups and selected != network.security_groups:
        actual, expected = ", ".join(sorted(network.security_groups)), ", ".join(sorted(selected))
        return f"the instance has security groups {actual}; {node_class.ref} selects {expected}"
    # An instance whose reservation has ended has none: it runs on, on-demand.
    reservation = network.capacity_reservation
    if reservation and reservation not in {r.id for r in status.capacity_reservations}:
        return f"capacity reservation {reservation} is no longer selected by {node_class.ref}"
    return ""

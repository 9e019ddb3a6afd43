"""Nodes that are no longer what their pool and class say: replaced, within budgets.

Compared by fingerprints of the template and the class, where both are of the same version (another version says
nothing, the object is stamped anew), and by what requirements and selectors select now. Rules: Karpenter's drift
(reference: karpenter.md, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import NODECLASS_HASH_VERSION, NODEPOOL_HASH_VERSION, hash_node_class, hash_node_pool
from shared.api.meta import is_true, with_condition
from shared.disruption import candidates, graceful_replacement
from shared.disruption.command import DRIFTED, MethodResult
from shared.scheduling.rules.requirements import RequirementError, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.candidates import Candidate
    from shared.disruption.cluster_state import ClusterState, InstanceNetwork
    from shared.disruption.command import Command

REASON = DRIFTED


def disruption_message(view: ClusterState, candidate: Candidate) -> str:
    """How the node has drifted, in words; empty when it has not."""
    node_class = view.node_classes.get(candidate.pool.name)
    return (
        _template(candidate.claim, candidate.pool)
        or _requirements(candidate)
        or (
            ""
            if node_class is None
            else _class(candidate, node_class, view.instance_networks.get(candidate.claim.status.provider_id))
        )
    )


def find_candidates(view: ClusterState) -> tuple[Candidate, ...]:
    """The nodes that have drifted, by claim, those of static pools too."""
    return tuple(c for c in candidates.all_candidates(view) if disruption_message(view, c))


def compute(view: ClusterState, slots: BudgetTracker, _should_stop: Callable[[], bool] = bool) -> MethodResult:
    """The first that budgets allow, replaced together (static pools have a way of their own)."""
    wanted = [(c, said) for c in candidates.dynamic_candidates(view) if (said := disruption_message(view, c))]
    return graceful_replacement.compute(view, slots, wanted, reason=DRIFTED)


def validate(action: Command, view: ClusterState, _slots: BudgetTracker) -> str:
    """Why it can't go after all; empty when it can."""
    return graceful_replacement.validate(action, view)


def with_drifted_condition(claim: NodeClaim, message: str, *, now: datetime) -> NodeClaim:
    """The claim with its ``Drifted`` condition as it should be."""
    if not message and not is_true(claim.status.conditions, nodeclaim.DRIFTED):
        return claim
    conditions = with_condition(
        claim.status.conditions,
        nodeclaim.DRIFTED,
        status=bool(message),
        reason="Drifted" if message else "AsAsked",
        message=message,
        now=now,
    )
    return replace(claim, status=replace(claim.status, conditions=conditions))


def _template(claim: NodeClaim, pool: NodePool) -> str:
    annotations = claim.metadata.annotations
    if annotations.get(names.NODEPOOL_HASH_VERSION) != NODEPOOL_HASH_VERSION:
        return ""
    if annotations.get(names.NODEPOOL_HASH) == hash_node_pool(pool):
        return ""
    return f"the template of NodePool {pool.name} has changed"


def _requirements(candidate: Candidate) -> str:
    labels = {**candidate.node.metadata.labels, **candidate.claim.metadata.labels}
    try:
        wanted = parse(candidate.pool.spec.template.spec.requirements)
    except RequirementError:
        return ""
    for key, allowed in sorted(wanted.items()):
        value = labels.get(key)
        if not allowed.has(value):
            said = f"is {value}" if value is not None else "is missing"
            return f"label {key} {said}, which NodePool {candidate.pool.name} no longer allows"
    return ""


def _class(candidate: Candidate, node_class: EC2NodeClass, network: InstanceNetwork | None) -> str:
    claim = candidate.claim
    annotations, status = claim.metadata.annotations, node_class.status
    if annotations.get(names.NODECLASS_HASH_VERSION) == NODECLASS_HASH_VERSION and annotations.get(
        names.NODECLASS_HASH
    ) != hash_node_class(node_class):
        return f"{node_class.ref} has changed"
    if status.amis and claim.status.image_id and claim.status.image_id not in {a.id for a in status.amis}:
        return f"image {claim.status.image_id} is no longer one of {node_class.ref}"
    moved = _network(network, node_class) if network is not None else ""
    if moved:
        return moved
    reservation = claim.metadata.labels.get(names.RESERVATION_LABELS[0])
    reserved = claim.metadata.labels.get(names.CAPACITY_TYPE) == names.RESERVED
    if reserved and reservation and reservation not in {r.id for r in status.capacity_reservations}:
        return f"capacity reservation {reservation} is no longer one of {node_class.ref}"
    return ""


def _network(network: InstanceNetwork, node_class: EC2NodeClass) -> str:
    """How the instance's place in the network differs from what the class selects, in words; empty when not."""
    status = node_class.status
    if status.subnets and network.subnet and network.subnet not in {s.id for s in status.subnets}:
        return f"subnet {network.subnet} is no longer one of {node_class.ref}"
    groups = {g.id for g in status.security_groups}
    if groups and network.security_groups and groups != network.security_groups:
        has, wants = ", ".join(sorted(network.security_groups)), ", ".join(sorted(groups))
        return f"it has security groups {has}, and {node_class.ref} selects {wants}"
    return ""

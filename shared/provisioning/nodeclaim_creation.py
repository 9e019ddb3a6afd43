"""NodeClaims of planned nodes: names, labels, hashes and launch groups (Karpenter's NodeClaimTemplate.ToNodeClaim).

A NodeClaim is written before its instance is launched: if the function dies in between, the next one launches it, and
no instance exists without a NodeClaim. NodeClaims that one CreateFleet call may launch share a launch group, which is
written with them, so that a replay groups them in the same way.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.hash import NODECLASS_HASH_VERSION, hash_node_class, hash_node_pool, node_pool_hash_version
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta, OwnerReference, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, ResourceRequests
from shared.api.nodeclass import EC2NodeClass
from shared.api.pod_references import POD_SET_MARK
from shared.api.quantity import add, format_resources, largest, parse_resources
from shared.api.standby import WARMING
from shared.api.taints import PODS_NOT_NOMINATED
from shared.base.runtime import KUBERNETES_THREADS, in_threads
from shared.base.struct import with_fields
from shared.cluster import resources, writes
from shared.scheduling.nominations import planned_pods

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aws_lambda_powertools import Logger

    from shared.api.nodepool import NodePool
    from shared.api.quantity import Resources
    from shared.cloud_provider import NodeClass, ResolvedNodePools
    from shared.cluster.client import Client
    from shared.scheduling.decision import Decision, PlannedNodeClaim
    from shared.snapshot import Snapshot

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of Kubernetes' generateName."""


def new_node_claims(
    planned: Sequence[PlannedNodeClaim],
    snapshot: Snapshot,
    resolved_pools: ResolvedNodePools,
    *,
    decision: str,
    prices: Mapping[tuple[str, ...], float] | None = None,
    nominate: bool = False,
    standby: bool = False,
) -> tuple[NodeClaim, ...]:
    """The NodeClaims of planned nodes, not written yet; their names follow from the decision's id.

    ``prices`` are those that the nodes were planned with, in USD per hour by their pods and chunks.
    ``nominate``: nodes that pending pods are planned for take no pods until these are nominated for them; so do
    ``standby`` nodes, which get their pods when they are started.
    """
    pools = {p.name: p for p in snapshot.node_pools}
    pending = {pod.key for pod in snapshot.pods if not pod.spec.node_name} if nominate else set()
    return tuple(
        _new_node_claim(
            plan,
            pools[plan.node_pool],
            resolved_pools.node_classes[plan.node_pool],
            decision=decision,
            price=(prices or {}).get(plan.pods + plan.chunks, plan.cheapest.price),
            name=f"{plan.node_pool}-{_suffix(decision, i)}",
            nominate=not pending.isdisjoint(plan.pods) or (nominate and standby),
            standby=standby,
        )
        for i, plan in enumerate(planned)
    )


def create_node_claims(
    client: Client, claims: Sequence[NodeClaim], planned: Sequence[PlannedNodeClaim], *, logger: Logger
) -> tuple[NodeClaim, ...]:
    """Write the NodeClaims of these planned nodes; returns them as they are stored."""

    def create(item: tuple[PlannedNodeClaim, NodeClaim]) -> NodeClaim:
        planned_claim, claim = item
        stored = writes.create(client, resources.NODE_CLAIMS, claim)
        logger.info(
            "Created a NodeClaim",
            extra={
                "nodeclaim": stored.name,
                "nodepool": planned_claim.node_pool,
                "pods": len(planned_claim.pods),
                "chunks": len(planned_claim.chunks),
                "expected_pods": planned_claim.expected,
                "cheapest": msgspec.structs.asdict(planned_claim.cheapest),
                "instance_types": len(planned_claim.instance_types),
            },
        )
        return stored

    return tuple(in_threads(create, zip(planned, claims, strict=True), threads=KUBERNETES_THREADS))


def batch_launches(
    decision: Decision, snapshot: Snapshot, resolved_pools: ResolvedNodePools
) -> tuple[PlannedNodeClaim, ...]:
    """The decision's planned NodeClaims in their order, merged into few launch groups.

    Those of NodePools that the merge would take past their limits stay as planned.
    """
    if len(decision.new_node_claims) <= 1:
        return decision.new_node_claims
    from shared.launch.fleet.batching import (  # noqa: PLC0415 (most decisions plan one NodeClaim or none)
        exceed_cluster_limits,
        merge_launch_groups,
        pools_past_limits,
    )

    usage: dict[str, Resources] = {}
    capacity = {pool: {t.name: t.capacity for t in types} for pool, types in resolved_pools.instance_types.items()}
    for claim in snapshot.node_claims:
        pool = claim.metadata.labels.get(names.NODEPOOL, "")
        usage[pool] = add(usage.get(pool, {}), _capacity_of(claim, capacity.get(pool, {})))
    merged = merge_launch_groups(decision.new_node_claims)
    types = resolved_pools.instance_types
    limited = pools_past_limits(merged, snapshot.node_pools, held=usage, instance_types=types)
    cluster_limits = snapshot.cluster_limits
    if cluster_limits and exceed_cluster_limits(merged, cluster_limits, held=usage, instance_types=types):
        limited |= {claim.node_pool for claim in merged}
    return merge_launch_groups(decision.new_node_claims, limited=limited) if limited else merged


def instance_types(claim: NodeClaim) -> frozenset[str]:
    """The instance types that the NodeClaim may be launched as; empty if it has no such requirement."""
    return frozenset(
        value
        for r in claim.spec.requirements
        if r.key == names.INSTANCE_TYPE and r.operator == "In"
        for value in r.values
    )


def _new_node_claim(
    planned: PlannedNodeClaim,
    pool: NodePool,
    node_class: NodeClass,
    *,
    decision: str,
    price: float,
    name: str,
    nominate: bool,
    standby: bool,
) -> NodeClaim:
    """The NodeClaim of a planned node. NodeClaims of two decisions never share a launch group."""
    spec = _spec(planned, pool, nominate=nominate)
    labels = {
        **pool.spec.template.metadata.labels,
        **_single_values(spec.requirements),
        **planned.labels,
        names.NODEPOOL: pool.name,
        names.NODECLASS: node_class.name,
    }
    # It doesn't block its owner's deletion: where admission plugin OwnerReferencesPermissionEnforcement is on, that
    # needs the right to update finalizers of NodePools.
    owner = OwnerReference(api_version=pool.api_version, kind=pool.kind, name=pool.name, uid=pool.metadata.uid)
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels=labels,
            annotations={
                **_annotations(planned, pool, node_class, _launch_group(spec, labels, decision)),
                names.PLANNED_PRICE: f"{price:.6f}",
                names.DECISION: decision,
                **({names.EXPECTED_PODS: str(planned.expected)} if planned.expected else {}),
                **({names.STANDBY: WARMING} if standby else {}),
            },
            finalizers=[names.TERMINATION_FINALIZER],
            owner_references=[owner],
        ),
        spec=spec,
        kind=nodeclaim.KIND,
        api_version=nodeclaim.API_VERSION,
    )


def _spec(planned: PlannedNodeClaim, pool: NodePool, *, nominate: bool) -> NodeClaimSpec:
    """The planned requirements, with the instance types in one requirement, and what the NodePool's template says."""
    template = pool.spec.template.spec
    instance_type_requirement = NodeSelectorRequirement(
        key=names.INSTANCE_TYPE,
        operator="In",
        values=list(planned.instance_types),
        min_values=next(
            (r.min_values for r in planned.requirements if r.key == names.INSTANCE_TYPE and r.min_values), None
        ),
    )
    return NodeClaimSpec(
        node_class_ref=template.node_class_ref,
        requirements=[
            *(_with_possible_min_values(r) for r in planned.requirements if r.key != names.INSTANCE_TYPE),
            _with_possible_min_values(instance_type_requirement),
        ],
        resources=ResourceRequests(requests={**format_resources(planned.requests)}),
        taints=list(planned.taints),
        startup_taints=[*template.startup_taints, PODS_NOT_NOMINATED] if nominate else template.startup_taints,
        expire_after=template.expire_after,
        termination_grace_period=template.termination_grace_period,
    )


def _with_possible_min_values(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
    """The requirement with minValues of at most its values, as the API server demands; relaxed ones exceed them."""
    least, values = requirement.min_values, len(requirement.values)
    if requirement.operator != "In" or least is None or least <= values:
        return requirement
    return with_fields(requirement, min_values=values)


def _annotations(planned: PlannedNodeClaim, pool: NodePool, node_class: NodeClass, launch_group: str) -> dict[str, str]:
    assert isinstance(node_class, EC2NodeClass)  # only its hash is Karpenter's
    annotations = {
        **{key: value for key, value in pool.spec.template.metadata.annotations.items() if key != names.STANDBY},
        names.NODEPOOL_HASH: hash_node_pool(pool),
        names.NODEPOOL_HASH_VERSION: node_pool_hash_version(pool),
        names.NODEPOOL_GENERATION: str(pool.metadata.generation),
        names.NODECLASS_HASH: hash_node_class(node_class),
        names.NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        names.LAUNCH_GROUP: launch_group,
        names.PLANNED_PODS: planned_pods.planned_pods_annotation((*planned.pods, *_requested(planned.chunks))),
    }
    if planned.min_values_relaxed:
        annotations[names.MIN_VALUES_RELAXED] = "true"
    return annotations


def _requested(chunks: Iterable[str]) -> Iterator[str]:
    """The chunks that are pods of a ProvisioningRequest: nodes for a part of it are given back."""
    return (chunk for chunk in chunks if POD_SET_MARK in chunk)


def _single_values(requirements: Iterable[NodeSelectorRequirement]) -> dict[str, str]:
    """The labels that requirements restrict to one value each."""
    return {r.key: r.values[0] for r in requirements if r.operator == "In" and len(r.values) == 1}


def _launch_group(spec: NodeClaimSpec, labels: Mapping[str, str], decision: str) -> str:
    """A hash, equal for NodeClaims of one decision that differ only in the pods that they are for."""
    without_requests = with_fields(spec, resources=ResourceRequests())
    content = msgspec.json.encode([decision, msgspec.to_builtins(without_requests), dict(sorted(labels.items()))])
    return hashlib.sha256(content).hexdigest()[:20]


def _suffix(decision: str, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same decision."""
    digest = hashlib.sha256(f"{decision}/{index}".encode()).digest()
    return "".join(_NAME_LETTERS[b % len(_NAME_LETTERS)] for b in digest[:5])


def _capacity_of(claim: NodeClaim, capacity: Mapping[str, Resources]) -> Resources:
    """The capacity of the NodeClaim's instance; before its launch, of the largest type that it may be."""
    if claim.status.capacity:
        return parse_resources(claim.status.capacity)
    return largest(*(capacity[name] for name in instance_types(claim) if name in capacity))


def one_on_trial(
    planned: Sequence[PlannedNodeClaim], claims: Iterable[NodeClaim], resolved_pools: ResolvedNodePools
) -> tuple[PlannedNodeClaim, ...]:
    """The planned NodeClaims, at most one of each NodePool on trial, and none while another has not registered.

    At most one of all NodePools if the trial is the cluster's.
    """
    on_trial = resolved_pools.on_trial

    def trial(pool: str) -> str:
        return "" if resolved_pools.trial_in_cluster else pool

    taken = {
        trial(c.metadata.labels.get(names.NODEPOOL, ""))
        for c in claims
        if on_trial and c.metadata.deletion_timestamp is None and not is_true(c.status.conditions, nodeclaim.REGISTERED)
    }
    kept = []
    for claim in planned:
        if claim.node_pool in on_trial:
            if trial(claim.node_pool) in taken:
                continue
            taken.add(trial(claim.node_pool))
        kept.append(claim)
    return tuple(kept)

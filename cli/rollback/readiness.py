"""Which nodes are newer than the version that a control plane is to go back to, and what each of them waits for. Pure.

EKS refuses to roll a control plane back while a node is newer, but for those of EKS Auto Mode, which it replaces
when the rollback begins (EKS user guide, "Rollback EKS Auto Mode clusters"). Nodes of node classes with the annotation
follow by drift; others are their owner's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cli import program
from cli.json_output import Output
from shared.api import labels, nodeclaim
from shared.api.meta import condition, is_true
from shared.api.nodeclass import KUBERNETES_VERSION_HELD
from shared.api.standby import standby_state
from shared.base.struct import Struct
from shared.launch.node_class import kubernetes_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass

_NODE_GROUP = "eks.amazonaws.com/nodegroup"
_COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
_AUTO_MODE, _FARGATE = "auto", "fargate"
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


class NewerNode(Output, frozen=True, kw_only=True):
    """A node, or a NodeClaim without one, that is newer. ``version`` is its kubelet's, "" while it hasn't joined."""

    name: str
    version: str
    pool: str
    why: str


class RollbackReadiness(Output, frozen=True, kw_only=True):
    """Whether the control plane may go back to ``target``. ``controlPlane`` is its version now.

    ``nodes`` counts those that were compared, ``newer`` are the ones in the way, ``next`` is what to do.
    """

    cluster: str
    control_plane: str
    target: str
    ready: bool
    nodes: int
    newer: list[NewerNode]
    next: str


class Observed(Struct, kw_only=True):
    """The nodes, NodeClaims and node classes of a cluster, whose control plane has a version ("1.37")."""

    cluster: str
    control_plane: str
    nodes: Sequence[Node]
    claims: Sequence[NodeClaim]
    node_classes: Mapping[str, EC2NodeClass]


def readiness(observed: Observed, target: str) -> RollbackReadiness:
    """What is in the way of the version "1.36", and what to do next."""
    newer = sorted(_newer(observed, target), key=lambda n: (n.pool, n.name))
    registered = {n.spec.provider_id for n in observed.nodes}
    joining = [c for c in observed.claims if c.status.provider_id not in registered]
    return RollbackReadiness(
        cluster=observed.cluster,
        control_plane=observed.control_plane,
        target=target,
        ready=not newer,
        nodes=len(observed.nodes) + len(joining),
        newer=newer,
        next=_next(observed, target, newer),
    )


def minor(version: str) -> tuple[int, int]:
    """Major and minor of "1.36" or "v1.36.2-eks-1"; (0, 0) of anything else.

    >>> minor("v1.36.2-eks-1")
    (1, 36)
    """
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _newer(observed: Observed, target: str) -> Iterable[NewerNode]:
    claims = {c.status.provider_id: c for c in observed.claims if c.status.provider_id}
    for node in observed.nodes:
        claim = claims.pop(node.spec.provider_id, None)
        version = node.status.node_info.kubelet_version
        if minor(version) > minor(target) and node.metadata.labels.get(_COMPUTE_TYPE) != _AUTO_MODE:
            why = _owner(node) if claim is None else _waits_for(observed, claim, target)
            pool = node.metadata.labels.get(labels.NODEPOOL, "")
            yield NewerNode(name=node.metadata.name, version=version, pool=pool, why=why)
    unlaunched = [c for c in observed.claims if not c.status.provider_id]
    for claim in (*claims.values(), *unlaunched):
        node_class = observed.node_classes.get(claim.spec.node_class_ref.name)
        images = {ami.id for ami in node_class.status.amis} if node_class is not None else set()
        image = claim.status.image_id
        if not _is_held(node_class, observed, target) or (image and image not in images):
            pool, why = claim.metadata.labels.get(labels.NODEPOOL, ""), _waits_for(observed, claim, target)
            yield NewerNode(name=claim.name, version="", pool=pool, why=why)


def _is_held(node_class: EC2NodeClass | None, observed: Observed, target: str) -> bool:
    """Whether the class's selected images are those of the target, by what Tenon has written."""
    if node_class is None:
        return False
    if minor(observed.control_plane) <= minor(target):
        return True
    stated = condition(node_class.status.conditions, KUBERNETES_VERSION_HELD)
    wanted = node_class.metadata.annotations.get(labels.KUBERNETES_VERSION, "").strip()
    return stated is not None and stated.status == "True" and minor(wanted) <= minor(target)


def _waits_for(observed: Observed, claim: NodeClaim, target: str) -> str:
    """What a node of a NodeClaim that is newer waits for."""
    if claim.metadata.deletion_timestamp is not None:
        return "it is being drained"
    if problem := _class_problem(observed, claim.spec.node_class_ref.name, target):
        return problem
    if standby_state(claim):
        return "a standby node: it is replaced while it is stopped"
    if is_true(claim.status.conditions, nodeclaim.DRIFTED):
        return f"drifted; what it waits for: {program.name()} explain node {claim.status.node_name or claim.name}"
    return "it will be drifted within minutes"


def _class_problem(observed: Observed, name: str, target: str) -> str:
    """Why the node class of that name doesn't select the target's images; "" if it does."""
    node_class = observed.node_classes.get(name)
    if node_class is None:
        return f"EC2NodeClass {name} doesn't exist"
    if not kubernetes_version.follows_version(node_class):
        return f"EC2NodeClass {name} selects images by other than an alias: let spec.amiSelectorTerms select older ones"
    if labels.KUBERNETES_VERSION not in node_class.metadata.annotations:
        return f"EC2NodeClass {name} has no annotation {labels.KUBERNETES_VERSION}"
    if _is_held(node_class, observed, target):
        return ""
    stated = condition(node_class.status.conditions, KUBERNETES_VERSION_HELD)
    detail = stated.message if stated is not None and stated.status != "True" else "wait two minutes"
    return f"EC2NodeClass {name} doesn't select images of {target}: {detail}"


def _owner(node: Node) -> str:
    """Who must replace a node without a NodeClaim."""
    if group := node.metadata.labels.get(_NODE_GROUP):
        return f"managed node group {group}: roll it back by UpdateNodegroupVersion"
    if node.metadata.labels.get(_COMPUTE_TYPE) == _FARGATE:
        return "a node of Fargate, which Tenon can't replace"
    return "not a node of Tenon's: replace it yourself"


def _next(observed: Observed, target: str, newer: Sequence[NewerNode]) -> str:
    unannotated = any(labels.KUBERNETES_VERSION not in c.metadata.annotations for c in observed.node_classes.values())
    kubectl = "kubectl annotate ec2nodeclass --all"
    if minor(observed.control_plane) <= minor(target):
        if any(labels.KUBERNETES_VERSION in c.metadata.annotations for c in observed.node_classes.values()):
            return f"the control plane has {target}: {kubectl} {labels.KUBERNETES_VERSION}-"
        return "nothing: the control plane has this version"
    if unannotated:
        return f"{kubectl} --overwrite {labels.KUBERNETES_VERSION}={target}"
    if newer:
        return "wait for the nodes above, and look again"
    name = observed.cluster or "NAME"
    return f"aws eks update-cluster-version --name {name} --kubernetes-version {target}"

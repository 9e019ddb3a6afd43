"""`tenon rollback`: which nodes are in the way of an older control plane, and what each waits for."""

from __future__ import annotations

import pytest

from cli.rollback.readiness import Observed, readiness
from shared.api.kubernetes import Node, NodeSpec, NodeStatus, NodeSystemInfo
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, ResolvedAMI
from shared.api.nodepool import NodeClassRef

ANNOTATION = "tenon.sh/kubernetes-version"
OLD, NEW = "ami-136", "ami-137"


def node(name: str, version: str, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(provider_id=f"aws:///{name}"),
        status=NodeStatus(node_info=NodeSystemInfo(kubelet_version=version)),
    )


def claim(name: str, *, image: str = NEW, launched: bool = True, conditions: tuple[str, ...] = ()) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name=name, labels={"karpenter.sh/nodepool": "default"}),
        spec=NodeClaimSpec(node_class_ref=NodeClassRef(name="default")),
        status=NodeClaimStatus(
            provider_id=f"aws:///{name}" if launched else "",
            image_id=image if launched else "",
            node_name=name,
            conditions=[Condition(type=c, status="True") for c in conditions],
        ),
    )


def node_class(*, annotation: str = "1.36", held: bool = True, terms: tuple[AMISelectorTerm, ...] = ()) -> EC2NodeClass:
    status = "True" if held else "False"
    message = "" if held else "it is too old"
    return EC2NodeClass(
        metadata=ObjectMeta(name="default", annotations={ANNOTATION: annotation} if annotation else {}),
        spec=EC2NodeClassSpec(ami_selector_terms=list(terms)),
        status=EC2NodeClassStatus(
            amis=[ResolvedAMI(id=OLD)],
            conditions=[Condition(type="KubernetesVersionHeld", status=status, message=message)] if annotation else [],
        ),
    )


def observed(
    nodes: list[Node], claims: list[NodeClaim], a_class: EC2NodeClass | None = None, *, control_plane: str = "1.37"
) -> Observed:
    a_class = a_class or node_class()
    return Observed(
        cluster="demo", control_plane=control_plane, nodes=nodes, claims=claims, node_classes={a_class.name: a_class}
    )


def test_the_control_plane_may_go_back_once_no_node_is_newer() -> None:
    nodes = [node("a", "v1.36.2-eks-1"), node("b", "v1.35.9-eks-2")]
    outcome = readiness(observed(nodes, [claim("a", image=OLD)]), "1.36")
    assert (outcome.ready, outcome.nodes, outcome.newer) == (True, 2, [])
    assert outcome.next == "aws eks update-cluster-version --name demo --kubernetes-version 1.36"


def test_the_annotation_is_the_first_step_and_its_removal_the_last() -> None:
    not_begun = readiness(observed([node("a", "v1.37.0")], [claim("a")], node_class(annotation="")), "1.36")
    assert not_begun.next == f"kubectl annotate ec2nodeclass --all --overwrite {ANNOTATION}=1.36"
    assert [n.why for n in not_begun.newer] == [f"EC2NodeClass default has no annotation {ANNOTATION}"]
    back = readiness(observed([node("a", "v1.36.1")], [claim("a", image=OLD)], control_plane="1.36"), "1.36")
    assert back.ready
    assert back.next == f"the control plane has 1.36: kubectl annotate ec2nodeclass --all {ANNOTATION}-"
    done = readiness(observed([node("a", "v1.36.1")], [], node_class(annotation=""), control_plane="1.36"), "1.36")
    assert done.next == "nothing: the control plane has this version"


@pytest.mark.parametrize(
    ("a_claim", "a_class", "why"),
    [
        (claim("a"), node_class(), "it will be drifted within minutes"),
        (claim("a", conditions=("Drifted",)), node_class(), "drifted; what it waits for: tenon explain node a"),
        (claim("a"), node_class(held=False), "EC2NodeClass default doesn't select images of 1.36: it is too old"),
        (
            claim("a"),
            node_class(terms=(AMISelectorTerm(id=NEW),), held=False),
            "EC2NodeClass default selects images by other than an alias: let spec.amiSelectorTerms select older ones",
        ),
    ],
)
def test_a_node_that_is_newer_says_what_it_waits_for(a_claim: NodeClaim, a_class: EC2NodeClass, why: str) -> None:
    outcome = readiness(observed([node("a", "v1.37.0")], [a_claim], a_class), "1.36")
    assert not outcome.ready
    assert [(n.name, n.version, n.why) for n in outcome.newer] == [("a", "v1.37.0", why)]


def test_nodes_that_are_not_tenons_name_who_replaces_them_but_for_those_that_eks_replaces_itself() -> None:
    nodes = [
        node("a", "v1.37.0", **{"eks.amazonaws.com/nodegroup": "system"}),
        node("b", "v1.37.0", **{"eks.amazonaws.com/compute-type": "fargate"}),
        node("c", "v1.37.0", **{"eks.amazonaws.com/compute-type": "auto"}),
        node("d", "v1.37.0"),
    ]
    outcome = readiness(observed(nodes, []), "1.36")
    assert [n.why for n in outcome.newer] == [
        "managed node group system: roll it back by UpdateNodegroupVersion",
        "a node of Fargate, which Tenon can't replace",
        "not a node of Tenon's: replace it yourself",
    ]
    assert outcome.next == "wait for the nodes above, and look again"


def test_a_machine_that_has_not_joined_counts_by_its_image() -> None:
    joining = [claim("a", image=NEW), claim("b", image=OLD), claim("c", launched=False)]
    outcome = readiness(observed([], joining), "1.36")
    assert (outcome.nodes, [(n.name, n.version) for n in outcome.newer]) == (3, [("a", "")])
    before = readiness(observed([], joining, node_class(annotation="")), "1.36")
    assert [n.name for n in before.newer] == ["a", "b", "c"]

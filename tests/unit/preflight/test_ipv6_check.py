"""In an IPv6 cluster, the VPC CNI needs a role of its own that may assign addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.preflight import ipv6_check

if TYPE_CHECKING:
    from collections.abc import Callable

ROLE, OTHER = "arn:aws:iam::123456789012:role/cni", "arn:aws:iam::123456789012:role/old"
DESCRIPTION: dict[str, Any] = {"name": "demo", "kubernetesNetworkConfig": {"ipFamily": "ipv6"}}


def account(*, associated: str = "", allowed: str = "") -> Callable[[str], Any]:
    """Clients of an account: the role that EKS Pod Identity gives ``aws-node``, and the role that has the policy."""
    keys: dict[str, Any] = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    eks, iam = boto3.client("eks", **keys), boto3.client("iam", **keys)
    of_eks, of_iam = Stubber(eks), Stubber(iam)
    aws_node = {"clusterName": "demo", "namespace": "kube-system", "serviceAccount": "aws-node"}
    associations = [{"associationId": "a-1"}] if associated else []
    of_eks.add_response("list_pod_identity_associations", {"associations": associations}, aws_node)
    if associated:
        answer = {"association": {"roleArn": associated}}
        of_eks.add_response(
            "describe_pod_identity_association", answer, {"clusterName": "demo", "associationId": "a-1"}
        )
    for role in (ROLE, OTHER):
        decision = "allowed" if role == allowed else "implicitDeny"
        result = {"EvalActionName": "ec2:AssignIpv6Addresses", "EvalDecision": decision}
        parameters = {"PolicySourceArn": role, "ActionNames": ["ec2:AssignIpv6Addresses"]}
        if role == (associated or OTHER):
            of_iam.add_response("simulate_principal_policy", {"EvaluationResults": [result]}, parameters)
    of_eks.activate()
    of_iam.activate()
    return {"eks": eks, "iam": iam}.__getitem__


@pytest.mark.parametrize(
    ("annotated", "associated", "allowed", "status", "summary"),
    [
        ("", "", "", "failed", "kube-system/aws-node has no role of its own"),
        ("", ROLE, ROLE, "passed", f"{ROLE} may assign IPv6 addresses"),
        ("", ROLE, "", "failed", f"{ROLE} may not call ec2:AssignIpv6Addresses"),
        (OTHER, "", OTHER, "passed", f"{OTHER} may assign IPv6 addresses"),
        (OTHER, ROLE, ROLE, "passed", f"{ROLE} may assign IPv6 addresses"),
    ],
)
def test_the_role_that_the_cni_gets_must_be_allowed_to_assign_addresses(
    annotated: str, associated: str, allowed: str, status: str, summary: str
) -> None:
    clients = account(associated=associated, allowed=allowed)
    (finding,) = ipv6_check.cni_role(annotated, DESCRIPTION, client=clients)
    assert finding.status == status
    assert summary in finding.summary
    assert ("AmazonEKS_CNI_IPv6_Policy" in finding.action) == (status == "failed")


def test_only_an_ipv6_cluster_is_checked() -> None:
    assert ipv6_check.is_ipv6(DESCRIPTION)
    assert not ipv6_check.is_ipv6({"name": "demo", "kubernetesNetworkConfig": {"ipFamily": "ipv4"}})
    assert not ipv6_check.is_ipv6({"name": "demo"})

"""In an IPv6 cluster: whether the VPC CNI may give pods addresses.

The policy that AWS manages for the CNI (AmazonEKS_CNI_Policy, which node roles have) is about IPv4. For IPv6, users
create one and give it to the CNI's own role ("Configure Amazon VPC CNI plugin to use IRSA",
docs.aws.amazon.com/eks/latest/userguide/cni-iam-role.html). Without it nodes join and never become ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.preflight.finding import failed, passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cli.preflight.finding import Finding
    from shared.base.aws import UntypedClient

CNI_ROLE = "VPC CNI's role"
NAMESPACE, SERVICE_ACCOUNT = "kube-system", "aws-node"
ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
_ACTION = "ec2:AssignIpv6Addresses"
_PAGE = "docs.aws.amazon.com/eks/latest/userguide/cni-iam-role.html"


def is_ipv6(description: Mapping[str, Any]) -> bool:
    """Whether pods of the cluster have IPv6 addresses, by EKS's description of it."""
    family: str = description.get("kubernetesNetworkConfig", {}).get("ipFamily", "")
    return family == "ipv6"


def cni_role(annotated: str, description: Mapping[str, Any], *, client: Callable[[str], Any]) -> Iterator[Finding]:
    """Whether the CNI has a role of its own that may assign IPv6 addresses.

    ``annotated`` is the role on its ServiceAccount, "" for none.
    """
    role = _by_pod_identity(client("eks"), str(description["name"])) or annotated
    if not role:
        yield failed(
            CNI_ROLE,
            f"{NAMESPACE}/{SERVICE_ACCOUNT} has no role of its own, and that of Tenon's nodes is for IPv4 addresses",
            f"create the policy AmazonEKS_CNI_IPv6_Policy and a role with it for {SERVICE_ACCOUNT} ({_PAGE})",
        )
        return
    simulated = client("iam").simulate_principal_policy(PolicySourceArn=role, ActionNames=[_ACTION])
    if all(result["EvalDecision"] == "allowed" for result in simulated["EvaluationResults"]):
        yield passed(CNI_ROLE, f"{role} may assign IPv6 addresses")
    else:
        yield failed(
            CNI_ROLE, f"{role} may not call {_ACTION}", f"attach the policy AmazonEKS_CNI_IPv6_Policy ({_PAGE})"
        )


def _by_pod_identity(eks: UntypedClient, cluster: str) -> str:
    """The role that EKS Pod Identity gives the CNI, which takes precedence over an annotation; "" for none."""
    answer = eks.list_pod_identity_associations(
        clusterName=cluster, namespace=NAMESPACE, serviceAccount=SERVICE_ACCOUNT
    )
    for association in answer["associations"]:
        described = eks.describe_pod_identity_association(
            clusterName=cluster, associationId=association["associationId"]
        )
        return str(described["association"]["roleArn"])
    return ""

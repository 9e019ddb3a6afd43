"""Checks of the cluster's objects: who else launches nodes, where the relay can run, and how it gets its role."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cli.preflight import ipv6_check
from cli.preflight.finding import failed, passed
from infra.cluster.kubernetes import cluster_manifests, kinds_check
from shared.api import labels
from shared.api.kubernetes import Node
from shared.api.meta import ApiStruct, ObjectMeta
from shared.base.struct import Struct
from shared.cluster import listing, resources
from shared.cluster.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cli.preflight.finding import Finding
    from shared.api.kubernetes import Taint
    from shared.cluster.client import Client

RELAY_IDENTITY, AUTOSCALERS, RELAY_NODES = "relay's role", "other autoscalers", "relay's nodes"
DEFINITIONS = "definitions of kinds"
_POD_IDENTITY_AGENT = "eks-pod-identity-agent"
_AUTOSCALERS = {
    "karpenter": "Karpenter",
    "cluster-autoscaler": "Cluster Autoscaler",
    "aws-cluster-autoscaler": "Cluster Autoscaler",
}
_NAME_LABEL = "app.kubernetes.io/name"
_SERVICE_ACCOUNTS = Resource(group="", plural="serviceaccounts", kind="ServiceAccount", namespaced=True)
_DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment", namespaced=True)
_DEFINITIONS = Resource(
    group="apiextensions.k8s.io", plural="customresourcedefinitions", kind="CustomResourceDefinition"
)
_COMPUTE_TYPE, _AUTO, _FARGATE = "eks.amazonaws.com/compute-type", "auto", "fargate"
_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})


class _DeploymentSpec(ApiStruct):
    replicas: int = 1


class _Deployment(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _DeploymentSpec = _DeploymentSpec()


class _DaemonSet(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()


class _Definition(ApiStruct):
    metadata: dict[str, Any] = {}


class _ServiceAccount(ApiStruct):
    metadata: ObjectMeta = ObjectMeta()


class ClusterObjects(Struct, kw_only=True):
    """What the checks read of the cluster."""

    nodes: tuple[Node, ...]
    deployments: tuple[_Deployment, ...]
    daemon_sets: tuple[str, ...]
    definitions: tuple[_Definition, ...]
    cni_role: str
    """By the annotation of the VPC CNI's ServiceAccount."""


def read(client: Client) -> ClusterObjects:
    """The cluster's nodes, Deployments, DaemonSets, CustomResourceDefinitions, and the VPC CNI's ServiceAccount.

    Raises:
        ApiError: they can't be read.
    """
    daemon_sets = listing.list_objects(client, resources.DAEMON_SETS, _DaemonSet).objects
    named = f"metadata.name={ipv6_check.SERVICE_ACCOUNT}"
    accounts = listing.list_objects(
        client, _SERVICE_ACCOUNTS, _ServiceAccount, fields=named, namespace=ipv6_check.NAMESPACE
    ).objects
    return ClusterObjects(
        nodes=listing.list_objects(client, resources.NODES, Node).objects,
        deployments=listing.list_objects(client, _DEPLOYMENTS, _Deployment).objects,
        daemon_sets=tuple(d.metadata.name for d in daemon_sets),
        definitions=listing.list_objects(client, _DEFINITIONS, _Definition).objects,
        cni_role=next((a.metadata.annotations.get(ipv6_check.ROLE_ANNOTATION, "") for a in accounts), ""),
    )


def definitions(objects: ClusterObjects, description: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the stack may apply its CustomResourceDefinitions, as its own check during the deployment decides."""
    applied = {crd["metadata"]["name"] for crd in cluster_manifests.kinds()}
    existing = [{"metadata": d.metadata} for d in objects.definitions if d.metadata["name"] in applied]
    auto_mode = kinds_check.has_auto_mode(description)
    errors = list(kinds_check.ownership_errors(existing, auto_mode=auto_mode))
    if errors:
        option = kinds_check.keeping_option(existing, auto_mode=auto_mode)
        yield failed(DEFINITIONS, "; ".join(errors), f"deploy with {option} (docs/migration.md)")
    else:
        yield passed(DEFINITIONS, "Tenon's or Karpenter's" if existing else "there are none yet")


def other_autoscalers(objects: ClusterObjects, description: Mapping[str, Any]) -> Iterator[Finding]:
    """Who else launches and removes nodes of this cluster."""
    running = {
        f"{product} (Deployment {d.metadata.namespace}/{d.metadata.name})": f"kubectl -n {d.metadata.namespace} scale "
        f"deployment {d.metadata.name} --replicas=0"
        for d in objects.deployments
        if (product := _autoscaler(d)) and d.spec.replicas > 0
    }
    if description.get("computeConfig", {}).get("enabled"):
        running["EKS Auto Mode"] = "give its NodePools requirements or taints that no NodePool of Tenon's has"
    if running:
        yield failed(
            AUTOSCALERS,
            f"{', '.join(running)} also launches nodes for pending pods",
            f"{'; '.join(running.values())} (docs/migration.md)",
        )
    else:
        yield passed(AUTOSCALERS, "none is running")


def _autoscaler(deployment: _Deployment) -> str:
    name = deployment.metadata.labels.get(_NAME_LABEL, deployment.metadata.name)
    return _AUTOSCALERS.get(name, "")


def relay_nodes(objects: ClusterObjects) -> Iterator[Finding]:
    """Whether the relay has a node that Tenon doesn't launch, and of which architecture."""
    unmanaged = [
        n
        for n in objects.nodes
        if not n.metadata.labels.get(labels.NODEPOOL) and n.metadata.labels.get(labels.OS, "linux") == "linux"
    ]
    if not unmanaged:
        yield failed(
            RELAY_NODES,
            "the cluster has no Linux node besides those of NodePools: the relay would run on nodes that Tenon removes",
            "add a small managed node group, or a Fargate profile for namespace tenon",
        )
        return
    open_nodes = [n for n in unmanaged if not any(_keeps_out(taint) for taint in n.spec.taints)]
    if not open_nodes:
        taints = sorted({f"{t.key}={t.value}:{t.effect}" for n in unmanaged for t in n.spec.taints if _keeps_out(t)})
        yield failed(
            RELAY_NODES,
            f"every node besides those of NodePools is tainted: {', '.join(taints)}",
            f"deploy with -c relayTolerations={taints[0]}",
        )
        return
    counts = Counter(n.metadata.labels.get(labels.ARCH, "unknown") for n in open_nodes)
    of_architectures = ", ".join(f"{count} {architecture}" for architecture, count in sorted(counts.items()))
    yield passed(RELAY_NODES, f"{of_architectures}, without taints")


def _keeps_out(taint: Taint) -> bool:
    """Whether a taint keeps the relay out for good; Kubernetes' own taints follow the node's conditions."""
    return taint.effect in _KEEPS_OUT and not taint.key.startswith("node.kubernetes.io/")


def relay_identity(
    objects: ClusterObjects, description: Mapping[str, Any], *, region: str, client: Callable[[str], Any]
) -> Iterator[Finding]:
    """Whether the relay can get its role: by EKS Pod Identity, or by IRSA with the cluster's OIDC provider."""
    issuer = str(description.get("identity", {}).get("oidc", {}).get("issuer", "")).removeprefix("https://")
    is_china = region.startswith("cn-")
    if _POD_IDENTITY_AGENT in objects.daemon_sets and not is_china:
        yield passed(RELAY_IDENTITY, "by the EKS Pod Identity agent")
        return
    providers = client("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"]
    if issuer and any(str(p["Arn"]).endswith(f":oidc-provider/{issuer}") for p in providers):
        yield passed(RELAY_IDENTITY, f"by IRSA: deploy with -c oidcProvider={issuer}")
        return
    name = description["name"]
    create = f"eksctl utils associate-iam-oidc-provider --cluster {name} --approve, then -c oidcProvider={issuer}"
    addon = f"aws eks create-addon --cluster-name {name} --addon-name {_POD_IDENTITY_AGENT}"
    yield failed(
        RELAY_IDENTITY,
        "the cluster has no EKS Pod Identity agent, and IAM no provider of its OIDC issuer",
        create if is_china else f"{addon}; or {create}",
    )

"""The RBAC of each function and the relay, checked with the embedded Kubernetes API by tokens."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import pytest

from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.aws.iam_enforcement import credentials
from local.kubernetes import kinds
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import Server
from local.kubernetes.kinds import Kind
from local.kubernetes.registry.store import Store
from local.world.authentication import RELAY_TOKEN, TokenAuthenticator
from shared.cluster.connect import to_server
from shared.cluster.eks_token import presign
from shared.cluster.errors import ApiError
from shared.cluster.lease import KARPENTER_LEASE
from tests.integration.least_privilege.calls import (
    ALL,
    LAUNCHES,
    NOBODY,
    READS_CLUSTER,
    RESOLVES_NODE_CLASSES,
    SCALES_NODE_GROUPS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.apiserver.auth import User
    from tests.integration.least_privilege.conftest import Targets

CLAIMS = Kind("karpenter.sh", "v1", "nodeclaims", "NodeClaim")
POOLS = Kind("karpenter.sh", "v1", "nodepools", "NodePool")
CLASSES = Kind("karpenter.k8s.aws", "v1", "ec2nodeclasses", "EC2NodeClass")
OVERLAYS = Kind("karpenter.sh", "v1alpha1", "nodeoverlays", "NodeOverlay", namespaced=False)
BUFFERS = Kind("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer")
STATUS = "cluster-autoscaler-status"
WATCHES = READS_CLUSTER | {"relay"}
CLUSTER = READS_CLUSTER | {"termination"}
HOLD_LEASES = LAUNCHES | {"lifecycle", "nodegroups"}


class Right(NamedTuple):
    """A verb on a kind, or on what is below it, in a namespace, and who may."""

    verb: str
    kind: Kind
    below: str = ""
    namespace: str = ""
    may: frozenset[str] = NOBODY
    name: str = "x"

    def __str__(self) -> str:
        return f"{self.verb} {self.kind.plural}{self.below and '/'}{self.below} {self.namespace} {self.name}".strip()


RIGHTS = (
    Right("list", kinds.PODS, may=CLUSTER | {"relay"}),
    Right("watch", kinds.PODS, may=WATCHES),
    Right("delete", kinds.PODS, namespace="default", may=frozenset({"termination", "nodegroups"})),
    Right("get", kinds.PODS),
    Right("list", kinds.POD_DISRUPTION_BUDGETS, may=WATCHES | {"termination"}),
    Right("watch", kinds.POD_DISRUPTION_BUDGETS, may=frozenset({"relay"})),
    Right("get", kinds.POD_DISRUPTION_BUDGETS),
    Right("list", kinds.LIMIT_RANGES, may=READS_CLUSTER),
    Right("watch", kinds.LIMIT_RANGES),
    Right("patch", kinds.LIMIT_RANGES, namespace="default"),
    Right("patch", kinds.POD_DISRUPTION_BUDGETS, namespace="default"),
    Right("patch", kinds.POD_DISRUPTION_BUDGETS, "status", "default"),
    Right("create", kinds.PODS, "eviction", "default", may=frozenset({"termination", "nodegroups", "lifecycle"})),
    Right("create", kinds.PODS, "binding", "default"),
    Right("create", kinds.PODS, "exec", "default"),
    Right("create", kinds.PODS, namespace="default"),
    Right("patch", kinds.PODS, namespace="default"),
    Right("patch", kinds.NODES, may=CLUSTER - {"provisioner"}),
    Right("delete", kinds.NODES, may=frozenset({"termination"})),
    Right("create", kinds.NODES),
    Right("watch", kinds.NODES, may=WATCHES),
    Right("list", CLAIMS, may=CLUSTER | {"relay"}),
    Right("watch", CLAIMS, may=frozenset({"relay"})),
    Right("create", CLAIMS, may=LAUNCHES | {"lifecycle"}),
    Right("delete", CLAIMS, may=RESOLVES_NODE_CLASSES | {"termination"}),
    Right("update", CLAIMS),
    Right("watch", POOLS, may=frozenset({"relay"})),
    Right("get", POOLS, may=frozenset({"lifecycle", "termination"})),
    Right("create", POOLS),
    Right("patch", POOLS, may=frozenset({"lifecycle"})),
    Right("delete", POOLS),
    Right("patch", POOLS, "status", may=frozenset({"lifecycle"})),
    Right("patch", CLASSES, may=frozenset({"lifecycle"})),
    Right("delete", CLASSES),
    Right("patch", CLASSES, "status", may=frozenset({"lifecycle"})),
    Right("list", OVERLAYS, may=WATCHES),
    Right("watch", OVERLAYS, may=frozenset({"relay"})),
    Right("get", OVERLAYS, may=frozenset({"lifecycle"})),
    Right("patch", OVERLAYS, "status", may=frozenset({"lifecycle"})),
    *(Right(verb, OVERLAYS) for verb in ("create", "update", "patch", "delete")),
    Right("list", BUFFERS, may=WATCHES | {"buffers"}),
    Right("watch", BUFFERS, may=frozenset({"relay"})),
    Right("get", BUFFERS, namespace="default", may=frozenset({"lifecycle", "buffers"})),
    Right("patch", BUFFERS, namespace="default", may=frozenset({"buffers"})),
    Right("patch", BUFFERS, "status", "default", may=frozenset({"lifecycle"})),
    *(Right(verb, BUFFERS, namespace="default") for verb in ("create", "update", "delete")),
    *(
        right
        for kind in (kinds.POD_TEMPLATES, kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.REPLICA_SETS)
        for right in (
            Right("get", kind, namespace="default", may=READS_CLUSTER),
            *(Right(verb, kind) for verb in ("list", "watch", "patch")),
        )
    ),
    Right("create", kinds.EVENTS, namespace="default", may=CLUSTER | {"buffers"}),
    Right("list", kinds.EVENTS, namespace="default", may=frozenset({"provisioner", "interruption"})),
    Right("watch", kinds.EVENTS, namespace="default"),
    Right("patch", kinds.LEASES, namespace="kube-system", may=HOLD_LEASES),
    *(
        Right(verb, kinds.LEASES, namespace="kube-system", name="tenon-relay", may=HOLD_LEASES | {"relay"})
        for verb in ("get", "patch")
    ),
    Right("create", kinds.LEASES, namespace="kube-system", may=HOLD_LEASES | {"relay"}),
    Right("patch", kinds.LEASES, namespace="default"),
    # Whether Karpenter runs, in whichever namespace; nothing else by that name.
    Right("get", kinds.LEASES, namespace="karpenter", name=KARPENTER_LEASE, may=frozenset({"lifecycle"})),
    Right("patch", kinds.LEASES, namespace="karpenter", name=KARPENTER_LEASE),
    Right("get", kinds.LEASES, namespace="karpenter"),
    Right("get", Kind("coordination.k8s.io", "v1", "others", "Other"), namespace="karpenter", name=KARPENTER_LEASE),
    Right("delete", kinds.LEASES, namespace="kube-node-lease", may=frozenset({"lifecycle"})),
    Right("delete", kinds.LEASES, namespace="kube-system"),
    Right("list", kinds.CONFIG_MAPS, namespace="kube-system"),
    Right("get", kinds.CONFIG_MAPS, namespace="kube-system"),
    Right("get", kinds.CONFIG_MAPS, namespace="kube-system", name="tenon-node-groups", may=SCALES_NODE_GROUPS),
    Right("patch", kinds.CONFIG_MAPS, namespace="kube-system", name="tenon-node-groups"),
    Right("patch", kinds.CONFIG_MAPS, namespace="kube-system"),
    Right("delete", kinds.CONFIG_MAPS, namespace="kube-system", name=STATUS),
    Right("create", kinds.CONFIG_MAPS, namespace="kube-system", may=frozenset({"nodegroups"})),
    *(
        Right(verb, kinds.CONFIG_MAPS, namespace="kube-system", name=STATUS, may=frozenset({"nodegroups"}))
        for verb in ("get", "patch")
    ),
    Right("get", kinds.SECRETS, namespace="kube-system", name="tenon-node-groups"),
    Right("get", kinds.SECRETS, namespace="kube-system", name=STATUS),
    Right("create", kinds.SECRETS, namespace="kube-system"),
    *(
        Right(verb, kind, namespace="default")
        for kind in (kinds.SECRETS, kinds.CONFIG_MAPS, kinds.SERVICE_ACCOUNTS)
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *(
        Right(verb, kind)
        for kind in (kinds.CLUSTER_ROLES, kinds.CLUSTER_ROLE_BINDINGS, kinds.CUSTOM_RESOURCE_DEFINITIONS)
        for verb in ("create", "patch", "delete", "escalate", "bind")
    ),
    *(Right(verb, kinds.DEPLOYMENTS, namespace="default") for verb in ("create", "patch", "delete")),
    *(Right(verb, kinds.POD_DISRUPTION_BUDGETS, namespace="default") for verb in ("create", "patch", "delete")),
)


ACCESS = [
    *cluster_manifests.access(function_sizes.ALL, node_groups=True, reboot=True)[1:],
    *cluster_manifests.relay_access(),
]
GIVEN = {
    (group, resource, obj["metadata"].get("namespace", ""))
    for obj in ACCESS
    for rule in obj.get("rules", [])
    for group in rule["apiGroups"]
    for resource in rule["resources"]
}
NEVER = (
    # In each group that anything is given in: everything else there, and the verb that nobody ever needs.
    *(
        Right(verb, Kind(group, "v1", "others", "Other"), namespace=namespace)
        for group, namespace in sorted({(group, namespace) for group, _, namespace in GIVEN})
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    ),
    *(
        Right("deletecollection", Kind(group, "v1", resource, "Any"), namespace=namespace)
        for group, resource, namespace in sorted(GIVEN)
    ),
)


class Cluster(NamedTuple):
    server: Server
    identities: TokenAuthenticator
    rbac: Rbac


@pytest.fixture(scope="module")
def cluster(targets: Targets) -> Iterator[Cluster]:
    store = Store(now=lambda: datetime.now(UTC))
    identities, rbac = TokenAuthenticator(), Rbac(store)
    identities.register(targets.cloud.deployed)
    store.create(kinds.NAMESPACES, {"metadata": {"name": cluster_manifests.NAMESPACE}})
    for obj in (
        *cluster_manifests.kinds(),
        *cluster_manifests.access(function_sizes.ALL, node_groups=True, reboot=True)[1:],
        *cluster_manifests.relay_access(),
    ):
        kind = store.kind(obj["apiVersion"], obj["kind"])
        store.create(kind, obj, namespace=obj["metadata"].get("namespace", ""))
    with Server(store, authenticate=identities, authorize=rbac) as server:
        yield Cluster(server, identities, rbac)


def token(caller: str) -> str:
    return presign(credentials(caller), region="us-east-1", cluster="demo")


def allows(rbac: Rbac, user: User | None, right: Right) -> bool:
    plural = f"{right.kind.plural}/{right.below}" if right.below else right.kind.plural
    kind = Kind(right.kind.group, right.kind.version, plural, right.kind.kind)
    return user is not None and rbac(user, right.verb, kind, right.namespace, right.name)


@pytest.mark.parametrize("right", [*RIGHTS, *NEVER], ids=str)
def test_a_verb_is_only_allowed_to_functions_that_need_it(right: Right, cluster: Cluster) -> None:
    may = {caller for caller in ALL if allows(cluster.rbac, cluster.identities(token(caller)), right)}
    assert may == right.may
    # The relay has the same rights as a pod, without the function's Lease.
    pod = allows(cluster.rbac, cluster.identities(RELAY_TOKEN), right)
    assert pod == ("relay" in right.may and right.kind != kinds.LEASES)


RULES = [
    (obj["metadata"]["name"], index, part)
    for obj in ACCESS
    for index in range(len(obj.get("rules", [])))
    for part in ("resources", "verbs")
]


@pytest.mark.parametrize(("name", "index", "part"), RULES)
def test_any_widened_rule_is_detected(name: str, index: int, part: str, cluster: Cluster) -> None:
    store = Store(now=lambda: datetime.now(UTC))
    store.create(kinds.NAMESPACES, {"metadata": {"name": cluster_manifests.NAMESPACE}})
    for obj in copy.deepcopy(ACCESS):
        if obj["metadata"]["name"] == name and len(obj.get("rules", [])) > index:
            obj["rules"][index][part] = ["*"]
        store.create(store.kind(obj["apiVersion"], obj["kind"]), obj, namespace=obj["metadata"].get("namespace", ""))
    users = [(caller, cluster.identities(token(caller))) for caller in ALL]
    users.append(("relay", cluster.identities(RELAY_TOKEN)))
    rbac = Rbac(store)
    assert [r for r in (*RIGHTS, *NEVER) for caller, user in users if caller not in r.may and allows(rbac, user, r)]


def test_the_catalog_function_has_no_access_to_the_cluster(cluster: Cluster) -> None:
    assert cluster.identities(token("catalog")) is None
    client = to_server(cluster.server.url, cluster.server.ca_pem, lambda: token("catalog"))
    with pytest.raises(ApiError) as refused:
        client.get("/api/v1/nodes/x")
    client.close()
    assert refused.value.status == 401


def test_missing_verbs_are_forbidden_over_https_with_the_reason(cluster: Cluster) -> None:
    client = to_server(cluster.server.url, cluster.server.ca_pem, lambda: token("provisioner"))
    with pytest.raises(ApiError) as refused:
        client.get("/api/v1/namespaces/kube-system/secrets/x")
    client.close()
    assert refused.value.status == 403
    assert 'cannot get resource "secrets"' in str(refused.value)


def test_an_unknown_token_is_rejected(cluster: Cluster) -> None:
    stranger = presign(credentials("stranger"), region="us-east-1", cluster="demo")
    assert cluster.identities(stranger) is None
    assert cluster.identities("k8s-aws-v1.x") is None
    assert cluster.identities(None) is None

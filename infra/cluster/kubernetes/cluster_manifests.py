"""The objects that Tenon needs in the cluster: CustomResourceDefinitions, RBAC of each function, and the relay.

The stack applies them (kubectl_apply.py), or ``tenon manifests`` prints them. Each function is a Kubernetes group, so
that cluster administrators review and change its permissions with kubectl. The relay is a function like the others, or
(``-c relay=pod``) a Deployment, which needs a node: while there is none, the provisioner's sweep each minute finds it
pending and launches one. With ``-c relay=webhook`` there is a ValidatingWebhookConfiguration instead, whose URL is a
secret: the stack's own function applies it (webhook_configuration.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infra import function_sizes
from infra.cluster.kubernetes import kinds_check
from shared.api import crds
from shared.api.yaml_documents import writer
from shared.cluster.lease import KARPENTER_LEASE, RELAY_LEASE
from shared.node_groups.expander import PRIORITIES
from shared.node_groups.options import CONFIG_MAP
from shared.node_groups.status import CONFIG_MAP as STATUS_CONFIG_MAP
from shared.node_groups.stored_options import CLUSTER_AUTOSCALER as CLUSTER_AUTOSCALER_LEASE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from infra.options.stack_options import StackOptions

Obj = dict[str, Any]

NAMESPACE = "tenon"
RELAY = "tenon-relay"
RELAY_FUNCTION = "tenon-relay-function"
"""The names of the relay's RBAC as a pod and as a function: deleting one of them can't delete the other."""
LEASE_NAMESPACE = "kube-system"
RELAY_REPLICAS = 2
_RELAY_LABELS = {"app.kubernetes.io/name": RELAY, "app.kubernetes.io/part-of": "tenon"}
HEALTH_PORT = 8080  # RelaySettings.health_port
TOKEN_AUDIENCE = "sts.amazonaws.com"  # noqa: S105 (no secret: the audience of IRSA's tokens, in every partition)

# --- rules: (API group, resources, verbs) ---
Rule = tuple[str, tuple[str, ...], tuple[str, ...]]

_SNAPSHOT: tuple[Rule, ...] = (
    # The input of decisions (shared/snapshot.py), without Secrets and ConfigMaps. Warm functions watch pods and nodes
    # from the last resourceVersion instead of listing all of them again.
    ("", ("nodes", "pods"), ("list", "watch")),
    ("", ("namespaces", "persistentvolumeclaims", "persistentvolumes"), ("list",)),
    # The requests that DaemonSets' pods get by default.
    ("", ("limitranges",), ("list",)),
    ("apps", ("daemonsets",), ("list",)),
    ("policy", ("poddisruptionbudgets",), ("list",)),
    ("storage.k8s.io", ("csidrivers", "csinodes", "storageclasses", "volumeattachments"), ("list",)),
    ("karpenter.sh", ("nodeclaims", "nodeoverlays", "nodepools", "provisioners"), ("list",)),
    ("karpenter.k8s.aws", ("awsnodetemplates", "ec2nodeclasses"), ("list",)),
    # CapacityBuffers and ProvisioningRequests, and by name the pod templates and workloads that they refer to.
    ("autoscaling.x-k8s.io", ("capacitybuffers", "provisioningrequests"), ("list",)),
    ("", ("podtemplates",), ("get",)),
    ("apps", ("deployments", "replicasets", "statefulsets"), ("get",)),
    # The PodGroups of pods that wait for a node: Kubernetes' own, the coscheduling plugin's, Volcano's.
    ("scheduling.k8s.io", ("podgroups",), ("get",)),
    ("scheduling.volcano.sh", ("podgroups",), ("get",)),
    ("scheduling.x-k8s.io", ("podgroups",), ("get",)),
)
_EVENTS: tuple[Rule, ...] = (
    # Events on the objects.
    ("", ("events",), ("create", "get", "patch")),
)

_DISPLACED_PODS: tuple[Rule, ...] = (
    # Whether pods that are gone were preempted by a DaemonSet's pod or evicted by the kubelet.
    ("", ("events",), ("list",)),
)

RELAY_RULES: tuple[Rule, ...] = (
    ("", ("nodes", "pods"), ("list", "watch")),
    # When a PodDisruptionBudget allows disruptions again, a drain continues.
    ("policy", ("poddisruptionbudgets",), ("list", "watch")),
    ("karpenter.sh", ("nodeclaims", "nodeoverlays", "nodepools", "provisioners"), ("list", "watch")),
    ("karpenter.k8s.aws", ("awsnodetemplates", "ec2nodeclasses"), ("list", "watch")),
    # A changed buffer, or a pod that takes its room, is a hint to buy the room again; so is a new request.
    ("autoscaling.x-k8s.io", ("capacitybuffers", "provisioningrequests"), ("list", "watch")),
)

RULES: dict[str, tuple[Rule, ...]] = {
    function_sizes.PROVISIONER: (
        *_SNAPSHOT,
        *_EVENTS,
        *_DISPLACED_PODS,
        # A NodeClaim is created before its instance, labelled when the instance runs, deleted if the launch fails.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "get", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
    function_sizes.LIFECYCLE: (
        *_SNAPSHOT,
        *_EVENTS,
        # Registration sets labels, taints and the finalizer of the node.
        ("", ("nodes",), ("get", "patch")),
        # status.nominatedNodeName of pods that a node was launched for.
        ("", ("pods/status",), ("patch",)),
        # NodeClaims that were lost with their NodePool are created again.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "get", "patch")),
        # Annotations with the hash of their spec, by which a change is drift (also for Karpenter); they and the status
        # are read again after a conflict.
        ("karpenter.sh", ("nodepools",), ("get", "patch")),
        ("karpenter.sh", ("nodeoverlays", "provisioners"), ("get",)),
        ("karpenter.k8s.aws", ("ec2nodeclasses",), ("get", "patch")),
        ("karpenter.k8s.aws", ("awsnodetemplates",), ("get",)),
        # Status conditions of NodePools, NodeOverlays and node classes.
        (
            "karpenter.sh",
            ("nodeclaims/status", "nodeoverlays/status", "nodepools/status", "provisioners/status"),
            ("patch",),
        ),
        ("karpenter.k8s.aws", ("awsnodetemplates/status", "ec2nodeclasses/status"), ("patch",)),
        # Which extended resources drivers of dynamic resource allocation provide, where a node waits for one.
        ("resource.k8s.io", ("deviceclasses", "resourceslices"), ("list",)),
        # How much of the room of a buffer or a request is there; they are read again after a conflict.
        ("autoscaling.x-k8s.io", ("capacitybuffers", "provisioningrequests"), ("get",)),
        ("autoscaling.x-k8s.io", ("capacitybuffers/status", "provisioningrequests/status"), ("patch",)),
    ),
    function_sizes.DISRUPTION: (
        *_SNAPSHOT,
        *_EVENTS,
        # Nodes are tainted before their pods are read the last time.
        ("", ("nodes",), ("get", "patch")),
        # Replacements are NodeClaims; a node is disrupted by deleting its NodeClaim.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "get", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
    function_sizes.TERMINATION: (
        *_EVENTS,
        ("", ("persistentvolumeclaims", "pods"), ("list",)),
        ("storage.k8s.io", ("volumeattachments",), ("list",)),
        # It taints nodes, and removes the finalizer when the instance is terminated.
        ("", ("nodes",), ("delete", "get", "list", "patch")),
        ("karpenter.sh", ("nodeclaims",), ("delete", "get", "list", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
        ("", ("pods/eviction",), ("create",)),
        # Whether pods of a full node may be evicted to make room on it: the NodePool's opt-out and freeze windows, and
        # which pods' budgets allow it before the first is evicted.
        ("karpenter.sh", ("nodepools",), ("get",)),
        ("policy", ("poddisruptionbudgets",), ("list",)),
        # Only after terminationGracePeriod; otherwise pods are evicted.
        ("", ("pods",), ("delete",)),
    ),
    function_sizes.INTERRUPTION: (
        *_SNAPSHOT,
        *_EVENTS,
        *_DISPLACED_PODS,
        # Interrupted nodes are tainted, so that no pods are scheduled to them.
        ("", ("nodes",), ("get", "patch")),
        # Replacements are NodeClaims; an interrupted NodeClaim is deleted, with the deadline as an annotation.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "get", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
    function_sizes.BUFFERS: (
        *_EVENTS,
        # Annotations with what queues, alarms and events ask for; a buffer is read again after a conflict.
        ("autoscaling.x-k8s.io", ("capacitybuffers",), ("get", "list", "patch")),
    ),
    function_sizes.RELAY: RELAY_RULES,
    function_sizes.NODE_GROUPS: (
        *_SNAPSHOT,
        *_EVENTS,
        # Taints of unneeded nodes, and of those that are being removed.
        ("", ("nodes",), ("get", "patch")),
        ("", ("pods/eviction",), ("create",)),
        # Only at the deadline of an interruption; otherwise pods are evicted.
        ("", ("pods",), ("delete",)),
    ),
    # Nothing but reading.
    function_sizes.SHADOW: _SNAPSHOT,
}
"""The ClusterRole rules of each function. The catalog function never calls the cluster."""

LEASES: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("create", "get", "patch")),)
"""For the functions that run one at a time, in one namespace."""
CREATE_LEASE: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("create",)),)
OWN_LEASE: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("get", "patch")),)
"""For the relay function: its Lease, by name. Kubernetes can't restrict creating to a name."""
NODE_LEASE_NAMESPACE = "kube-node-lease"
NODE_LEASES: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("delete", "list")),)
"""For the lifecycle function, which deletes leases of deleted nodes."""
READ_KARPENTER_LEASE: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("get",)),)
"""For the lifecycle function: whether Karpenter runs, in whichever namespace. It may read that Lease only, by name."""
REBOOT: tuple[Rule, ...] = (("", ("pods/eviction",), ("create",)),)
"""For the lifecycle function where it reboots nodes in place: it drains them first, by eviction only."""
NODE_GROUPS: tuple[Rule, ...] = (("", ("configmaps",), ("get",)),)
"""For the functions that scale node groups: their options, and the priorities of Cluster Autoscaler's expander."""
NODE_GROUP_STATUS: tuple[Rule, ...] = (
    ("", ("configmaps",), ("get", "patch")),
    # No name limits it: the name of a new object isn't known to RBAC.
    ("", ("configmaps",), ("create",)),
)
"""For the function that scales node groups down: their status, as Cluster Autoscaler publishes it."""
CLUSTER_AUTOSCALER: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("get",)),)
"""For shadow mode, whether Cluster Autoscaler runs."""
_NODE_GROUP_CONFIG_MAPS = (CONFIG_MAP, PRIORITIES)
_SCALE_NODE_GROUPS = (function_sizes.PROVISIONER, function_sizes.INTERRUPTION, function_sizes.NODE_GROUPS)
_RUN_ONE_AT_A_TIME = (
    function_sizes.PROVISIONER,
    function_sizes.LIFECYCLE,
    function_sizes.DISRUPTION,
    function_sizes.INTERRUPTION,
    function_sizes.NODE_GROUPS,
)


def group(function: str) -> str:
    """The Kubernetes group of a function's IAM role."""
    return f"tenon:{function}"


def role_name(function: str) -> str:
    """The name of a function's Role and ClusterRole."""
    return RELAY_FUNCTION if function == function_sizes.RELAY else f"tenon-{function}"


def everything(*, cluster: str, region: str, image: str) -> list[Obj]:
    """All objects with the relay as a pod, in an order in which they can be applied. ``image`` is the relay's."""
    functions = [name for name in function_sizes.FUNCTIONS if name != function_sizes.RELAY]
    return [*kinds(), *access(functions), *relay(cluster=cluster, region=region, image=image)]


def bus_name(cluster: str) -> str:
    """The name of a cluster's event bus."""
    return f"tenon-{cluster}"


def kinds(*, capacity_buffers: bool = True) -> list[Obj]:
    """The CustomResourceDefinitions. A cluster with Karpenter already has them, and Tenon works with those.

    ``capacity_buffers``: with that of CapacityBuffers, which Cluster Autoscaler or Karpenter may have brought.
    """
    mark = {kinds_check.OWNER_ANNOTATION: kinds_check.OWNER}
    return [
        {**crd, "metadata": {**crd["metadata"], "annotations": mark}}
        for crd in crds.load()
        if capacity_buffers or crd["metadata"]["name"] != kinds_check.CAPACITY_BUFFERS
    ]


def access(
    functions: Collection[str] = function_sizes.FUNCTIONS, *, node_groups: bool = False, reboot: bool = False
) -> list[Obj]:
    """The namespace, and RBAC of each function's group; with what ``node_groups`` and ``reboot`` need."""
    # The relay's namespace, which shadow mode doesn't have.
    objects: list[Obj] = [] if function_sizes.SHADOW in functions else [_object("v1", "Namespace", NAMESPACE)]
    for function, rules in RULES.items():
        if function not in functions:
            continue
        name = role_name(function)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group(function)}
        objects += role_and_binding("Cluster", name, rules, subject)
        if function in _RUN_ONE_AT_A_TIME:
            objects += role_and_binding("", name, LEASES, subject, namespace=LEASE_NAMESPACE)
        if function == function_sizes.RELAY:
            role, binding = role_and_binding("", name, (*CREATE_LEASE, *OWN_LEASE), subject, namespace=LEASE_NAMESPACE)
            role["rules"][1]["resourceNames"] = [RELAY_LEASE]
            objects += [role, binding]
        if function == function_sizes.LIFECYCLE:
            objects += role_and_binding("", name, NODE_LEASES, subject, namespace=NODE_LEASE_NAMESPACE)
            role, binding = role_and_binding("Cluster", f"{name}-karpenter-lease", READ_KARPENTER_LEASE, subject)
            role["rules"][0]["resourceNames"] = [KARPENTER_LEASE]
            objects += [role, binding]
            objects += role_and_binding("Cluster", f"{name}-reboot", REBOOT, subject) if reboot else []
        if function == function_sizes.SHADOW:
            role, binding = role_and_binding("", name, CLUSTER_AUTOSCALER, subject, namespace=LEASE_NAMESPACE)
            role["rules"][0]["resourceNames"] = [CLUSTER_AUTOSCALER_LEASE]
            objects += [role, binding]
        if node_groups and function in _SCALE_NODE_GROUPS:
            role, binding = role_and_binding("", f"{name}-node-groups", NODE_GROUPS, subject, namespace=LEASE_NAMESPACE)
            role["rules"][0]["resourceNames"] = [*_NODE_GROUP_CONFIG_MAPS]
            objects += [role, binding]
        if node_groups and function == function_sizes.NODE_GROUPS:
            role, binding = role_and_binding(
                "", f"{name}-status", NODE_GROUP_STATUS, subject, namespace=LEASE_NAMESPACE
            )
            role["rules"][0]["resourceNames"] = [STATUS_CONFIG_MAP]
            objects += [role, binding]
    return objects


def access_of(options: StackOptions) -> list[Obj]:
    """The namespace, and RBAC of the deployment's functions."""
    return access(options.functions, node_groups=options.node_groups, reboot=options.reboot)


def relay(
    *,
    cluster: str,
    region: str,
    image: str,
    architecture: str = "",
    role_arn: str = "",
    tolerations: Sequence[Mapping[str, str]] = (),
) -> list[Obj]:
    """The relay: a Deployment that watches the cluster and puts hints on the event bus.

    ``architecture`` is that of the image (arm64, amd64) if it only has one. ``role_arn`` is the relay's role if it gets
    it by IRSA; by EKS Pod Identity nothing in the cluster names it.
    """
    labels = _RELAY_LABELS
    pod: Obj = {
        "serviceAccountName": RELAY,
        # Without the relay, pending pods wait for the next sweep, up to a minute.
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ],
        "containers": [_relay_container(cluster=cluster, region=region, image=image)],
        "nodeSelector": {"kubernetes.io/os": "linux", **({"kubernetes.io/arch": architecture} if architecture else {})},
    }
    if tolerations:
        pod["tolerations"] = [dict(toleration) for toleration in tolerations]
    selector, template = {"matchLabels": labels}, {"metadata": {"labels": labels}, "spec": pod}
    deployment = _object("apps/v1", "Deployment", RELAY, namespace=NAMESPACE, labels=labels)
    deployment["spec"] = {"replicas": RELAY_REPLICAS, "selector": selector, "template": template}
    budget = _object("policy/v1", "PodDisruptionBudget", RELAY, namespace=NAMESPACE, labels=labels)
    budget["spec"] = {"maxUnavailable": 1, "selector": selector}
    return [*relay_access(role_arn=role_arn), deployment, budget]


def _relay_container(*, cluster: str, region: str, image: str) -> Obj:
    return {
        "name": "relay",
        "image": image,
        "env": [
            {"name": "TENON_CLUSTER_NAME", "value": cluster},
            {"name": "TENON_EVENT_BUS_NAME", "value": bus_name(cluster)},
            {"name": "AWS_DEFAULT_REGION", "value": region},
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "livenessProbe": {**_probe("/healthz"), "initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5},
        # the first list of 100,000 pods takes 260 MiB at its peak
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _probe(path: str) -> Obj:
    return {"httpGet": {"path": path, "port": HEALTH_PORT}}


def relay_access(*, role_arn: str = "") -> list[Obj]:
    """The relay's ServiceAccount and RBAC."""
    account = {"kind": "ServiceAccount", "name": RELAY, "namespace": NAMESPACE}
    service_account = _object("v1", "ServiceAccount", RELAY, namespace=NAMESPACE, labels=_RELAY_LABELS)
    if role_arn:
        service_account["metadata"]["annotations"] = {
            "eks.amazonaws.com/role-arn": role_arn,
            "eks.amazonaws.com/audience": TOKEN_AUDIENCE,
        }
    return [
        service_account,
        *role_and_binding("Cluster", RELAY, RELAY_RULES, account),
    ]


def to_yaml(objects: Iterable[Obj]) -> str:
    """One YAML document for each object, fields in the usual order."""
    return writer.documents(objects)


def _object(api_version: str, kind: str, name: str, *, namespace: str = "", labels: Obj | None = None) -> Obj:
    metadata: Obj = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def role_and_binding(scope: str, name: str, rules: Sequence[Rule], subject: Obj, *, namespace: str = "") -> list[Obj]:
    """A Role or ClusterRole, and its binding."""
    api_group = "rbac.authorization.k8s.io"
    role = _object(f"{api_group}/v1", f"{scope}Role", name, namespace=namespace)
    role["rules"] = [
        {"apiGroups": [group_], "resources": list(resources), "verbs": list(verbs)}
        for group_, resources, verbs in rules
    ]
    binding = _object(f"{api_group}/v1", f"{scope}RoleBinding", name, namespace=namespace)
    binding["roleRef"] = {"apiGroup": api_group, "kind": f"{scope}Role", "name": name}
    binding["subjects"] = [subject]
    return [role, binding]

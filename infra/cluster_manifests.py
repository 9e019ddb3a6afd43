"""What Tenon needs in the cluster, as plain objects: kinds, what each function may do (RBAC), and the relay.

The stack applies them (cluster_side.py), or ``tenon manifests`` prints them for whoever does. The functions come in as
Kubernetes groups, one each, so that a cluster's owner can read and narrow what each may do with the cluster's own
tools. The relay needs a node to run on; while there is none, the sweep each minute finds it pending and launches one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from infra import function_sizes
from shared.api import crds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Obj = dict[str, Any]

NAMESPACE = "tenon"
RELAY = "tenon-relay"
LEASE_NAMESPACE = "kube-system"
RELAY_REPLICAS = 2
_RELAY_LABELS = {"app.kubernetes.io/name": RELAY, "app.kubernetes.io/part-of": "tenon"}
HEALTH_PORT = 8080  # RelaySettings.health_port

_READ = ("get", "list")
_WATCH = ("get", "list", "watch")

# --- rules: (API group, resources, verbs) ---
Rule = tuple[str, tuple[str, ...], tuple[str, ...]]

_SNAPSHOT: tuple[Rule, ...] = (
    # All that a decision is made from (shared/snapshot.py); never secrets or config maps. Warm functions catch up by
    # watching from where they left off.
    ("", ("namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods"), _WATCH),
    ("apps", ("daemonsets",), _WATCH),
    ("policy", ("poddisruptionbudgets",), _WATCH),
    ("storage.k8s.io", ("csinodes", "storageclasses", "volumeattachments"), _WATCH),
    ("karpenter.sh", ("nodeclaims", "nodepools", "provisioners"), _WATCH),
    ("karpenter.k8s.aws", ("awsnodetemplates", "ec2nodeclasses"), _WATCH),
)
_TELL: tuple[Rule, ...] = (
    # What happened, on the object it happened to.
    ("", ("events",), ("create", "get", "patch")),
)

RULES: dict[str, tuple[Rule, ...]] = {
    function_sizes.PROVISIONER: (
        *_SNAPSHOT,
        *_TELL,
        # A claim is written before its instance is asked for, labelled when that runs, deleted when nothing could.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
    function_sizes.LIFECYCLE: (
        *_SNAPSHOT,
        *_TELL,
        # Registration puts labels, taints and the finalizer on the node.
        ("", ("nodes",), ("patch",)),
        ("karpenter.sh", ("nodeclaims",), ("delete", "patch")),
        # Whether pools and classes can be used, and why not, is told on themselves.
        ("karpenter.sh", ("nodeclaims/status", "nodepools/status", "provisioners/status"), ("patch",)),
        ("karpenter.k8s.aws", ("awsnodetemplates/status", "ec2nodeclasses/status"), ("patch",)),
    ),
    function_sizes.DISRUPTION: (
        *_SNAPSHOT,
        *_TELL,
        # Tainted before the last look at its pods.
        ("", ("nodes",), ("patch",)),
        # Replacements are claims; a node goes by deleting its claim.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
    function_sizes.TERMINATION: (
        *_TELL,
        ("", ("nodes", "persistentvolumeclaims", "pods"), _READ),
        ("storage.k8s.io", ("volumeattachments",), _READ),
        ("karpenter.sh", ("nodeclaims",), _READ),
        # Cordons, and takes the finalizer off when the machine is gone.
        ("", ("nodes",), ("delete", "patch")),
        ("karpenter.sh", ("nodeclaims",), ("delete", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
        ("", ("pods/eviction",), ("create",)),
        # Only past a terminationGracePeriod; anything else leaves by eviction.
        ("", ("pods",), ("delete",)),
    ),
    function_sizes.INTERRUPTION: (
        *_SNAPSHOT,
        *_TELL,
        # Nothing new comes to a machine that goes.
        ("", ("nodes",), ("patch",)),
        # Replacements are claims; a node goes by deleting its claim, with the deadline written on it.
        ("karpenter.sh", ("nodeclaims",), ("create", "delete", "patch")),
        ("karpenter.sh", ("nodeclaims/status",), ("patch",)),
    ),
}
"""What each function may do in the whole cluster. The catalog function never talks to it."""

LEASES: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("create", "get", "patch")),)
"""For the functions that decide, in one namespace."""
NODE_LEASE_NAMESPACE = "kube-node-lease"
NODE_LEASES: tuple[Rule, ...] = (("coordination.k8s.io", ("leases",), ("delete", "list")),)
"""For lifecycle, which clears up what kubelets of nodes that are gone left behind."""
_DECIDES = (function_sizes.PROVISIONER, function_sizes.DISRUPTION, function_sizes.INTERRUPTION)

RELAY_RULES: tuple[Rule, ...] = (
    ("", ("nodes", "pods"), ("list", "watch")),
    # A budget that has room again lets a drain go on.
    ("policy", ("poddisruptionbudgets",), ("list", "watch")),
    ("karpenter.sh", ("nodeclaims", "nodepools", "provisioners"), ("list", "watch")),
    ("karpenter.k8s.aws", ("awsnodetemplates", "ec2nodeclasses"), ("list", "watch")),
)


def group(function: str) -> str:
    """The Kubernetes group that a function's role is known by in the cluster."""
    return f"tenon:{function}"


def everything(*, cluster: str, region: str, image: str) -> list[Obj]:
    """All objects, in an order that they can be applied in. ``image`` is the relay's."""
    return [*kinds(), *access(), *relay(cluster=cluster, bus=bus_name(cluster), region=region, image=image)]


def bus_name(cluster: str) -> str:
    """The name of a cluster's bus, which the stack gives it and the relay is told."""
    return f"tenon-{cluster}"


def kinds() -> list[Obj]:
    """The custom resource definitions; a cluster that runs Karpenter has its own, and they serve as well."""
    return crds.load()


def access() -> list[Obj]:
    """RBAC: what each function's group may do, and the namespace."""
    objects: list[Obj] = [_object("v1", "Namespace", NAMESPACE)]
    for function, rules in RULES.items():
        name = f"tenon-{function}"
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group(function)}
        objects += _granted("Cluster", name, rules, subject)
        if function in _DECIDES:
            objects += _granted("", name, LEASES, subject, namespace=LEASE_NAMESPACE)
        if function == function_sizes.LIFECYCLE:
            objects += _granted("", name, NODE_LEASES, subject, namespace=NODE_LEASE_NAMESPACE)
    return objects


def relay(*, cluster: str, bus: str, region: str, image: str, architecture: str = "") -> list[Obj]:
    """The relay: a Deployment that watches and puts events on the bus, allowed by pod identity to do only that.

    ``architecture`` is the image's (arm64, amd64) if it has one only.
    """
    labels = _RELAY_LABELS
    health = {"httpGet": {"path": "/healthz", "port": HEALTH_PORT}}
    container = {
        "name": "relay",
        "image": image,
        "env": [
            {"name": "TENON_CLUSTER_NAME", "value": cluster},
            {"name": "TENON_EVENT_BUS_NAME", "value": bus},
            {"name": "AWS_DEFAULT_REGION", "value": region},
        ],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        "livenessProbe": {**health, "initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {**health, "periodSeconds": 5},
        # a first list of 100,000 pods takes 260 MiB at its peak
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod: Obj = {
        "serviceAccountName": RELAY,
        # Without it no pod is noticed before the next minute's sweep.
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
        "containers": [container],
    }
    if architecture:
        pod["nodeSelector"] = {"kubernetes.io/arch": architecture}
    deployment = _object("apps/v1", "Deployment", RELAY, namespace=NAMESPACE, labels=labels)
    deployment["spec"] = {
        "replicas": RELAY_REPLICAS,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    budget = _object("policy/v1", "PodDisruptionBudget", RELAY, namespace=NAMESPACE, labels=labels)
    budget["spec"] = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return [*relay_access(), deployment, budget]


def relay_access() -> list[Obj]:
    """The relay's service account, and what it may do."""
    account = {"kind": "ServiceAccount", "name": RELAY, "namespace": NAMESPACE}
    return [
        _object("v1", "ServiceAccount", RELAY, namespace=NAMESPACE, labels=_RELAY_LABELS),
        *_granted("Cluster", RELAY, RELAY_RULES, account),
    ]


def to_yaml(objects: Iterable[Obj]) -> str:
    """One YAML document an object, fields in the order that people write them."""
    return yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True)


def _object(api_version: str, kind: str, name: str, *, namespace: str = "", labels: Obj | None = None) -> Obj:
    metadata: Obj = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _granted(scope: str, name: str, rules: Sequence[Rule], subject: Obj, *, namespace: str = "") -> list[Obj]:
    """A (Cluster)Role and its binding."""
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

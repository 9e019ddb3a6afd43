"""The built-in kinds: names, scope and subresources, as in discovery.

Custom kinds come from CustomResourceDefinitions and are of the same class.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Kind:
    """One version of a kind. All versions of a kind share ``resource``, and thus their objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = field(default="", compare=False)
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    subresources: tuple[str, ...] = field(default=(), compare=False)
    tracks_generation: bool = field(default=False, compare=False)
    """Whether ``metadata.generation`` is kept: it changes when anything but metadata and status changes."""
    custom: bool = field(default=False, compare=False)
    resource: str = field(init=False, compare=False)
    """``plural.group``, or just the plural in the core group: as in errors and names of CRDs."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "resource", f"{self.plural}.{self.group}" if self.group else self.plural)
        if not self.singular:
            object.__setattr__(self, "singular", self.kind.lower())

    def __hash__(self) -> int:
        return hash(self.resource)

    def __str__(self) -> str:
        return self.resource

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """``PodList`` for ``Pod``."""
        return f"{self.kind}List"

    @property
    def has_status(self) -> bool:
        """Whether the kind has the status subresource."""
        return "status" in self.subresources


_ALL = ("all",)
_STATUS = ("status",)
_SCALED = ("status", "scale")

PODS = Kind(
    "", "v1", "pods", "Pod",
    short_names=("po",), categories=_ALL, subresources=("status", "eviction", "binding", "resize"),
    tracks_generation=True,
)  # fmt: skip
NODES = Kind("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), subresources=_STATUS)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=_STATUS)
EVENTS = Kind("", "v1", "events", "Event", short_names=("ev",))
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SERVICES = Kind("", "v1", "services", "Service", short_names=("svc",), categories=_ALL, subresources=_STATUS)
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints", short_names=("ep",))
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",))
REPLICATION_CONTROLLERS = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController",
    short_names=("rc",), categories=_ALL, subresources=_SCALED, tracks_generation=True,
)  # fmt: skip
POD_TEMPLATES = Kind("", "v1", "podtemplates", "PodTemplate", tracks_generation=True)
LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
RESOURCE_QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS)
PERSISTENT_VOLUMES = Kind(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), subresources=_STATUS
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS
)
DEPLOYMENTS = Kind(
    "apps", "v1", "deployments", "Deployment",
    short_names=("deploy",), categories=_ALL, subresources=_SCALED, tracks_generation=True,
)  # fmt: skip
REPLICA_SETS = Kind(
    "apps", "v1", "replicasets", "ReplicaSet",
    short_names=("rs",), categories=_ALL, subresources=_SCALED, tracks_generation=True,
)  # fmt: skip
DAEMON_SETS = Kind(
    "apps", "v1", "daemonsets", "DaemonSet",
    short_names=("ds",), categories=_ALL, subresources=_STATUS, tracks_generation=True,
)  # fmt: skip
STATEFUL_SETS = Kind(
    "apps", "v1", "statefulsets", "StatefulSet",
    short_names=("sts",), categories=_ALL, subresources=_SCALED, tracks_generation=True,
)  # fmt: skip
CONTROLLER_REVISIONS = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
JOBS = Kind("batch", "v1", "jobs", "Job", categories=_ALL, subresources=_STATUS, tracks_generation=True)
CRON_JOBS = Kind(
    "batch", "v1", "cronjobs", "CronJob",
    short_names=("cj",), categories=_ALL, subresources=_STATUS, tracks_generation=True,
)  # fmt: skip
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",))
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
DEVICE_CLASSES = Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False, tracks_generation=True)
RESOURCE_SLICES = Kind(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False, tracks_generation=True
)
VOLUME_ATTACHMENTS = Kind(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False, subresources=_STATUS
)
POD_DISRUPTION_BUDGETS = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget",
    short_names=("pdb",), subresources=_STATUS, tracks_generation=True,
)  # fmt: skip
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
    short_names=("crd", "crds"), categories=("api-extensions",), subresources=_STATUS, tracks_generation=True,
)  # fmt: skip
VALIDATING_WEBHOOK_CONFIGURATIONS = Kind(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
    namespaced=False, categories=("api-extensions",), tracks_generation=True,
)  # fmt: skip
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass",
    namespaced=False, short_names=("pc",), tracks_generation=True,
)  # fmt: skip
FLOW_SCHEMAS = Kind(
    "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema",
    namespaced=False, subresources=_STATUS, tracks_generation=True,
)  # fmt: skip
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Kind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = Kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLES = Kind(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Kind(_RBAC, "v1", "rolebindings", "RoleBinding")
NETWORK_POLICIES = Kind(
    "networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",), tracks_generation=True
)

BUILT_IN: tuple[Kind, ...] = (
    PODS, NODES, NAMESPACES, EVENTS, SECRETS, CONFIG_MAPS, SERVICES, ENDPOINTS, SERVICE_ACCOUNTS,
    REPLICATION_CONTROLLERS, POD_TEMPLATES, LIMIT_RANGES, RESOURCE_QUOTAS, PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS, DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, STATEFUL_SETS, CONTROLLER_REVISIONS, JOBS,
    CRON_JOBS, STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, DEVICE_CLASSES, RESOURCE_SLICES, VOLUME_ATTACHMENTS,
    POD_DISRUPTION_BUDGETS, LEASES,
    CUSTOM_RESOURCE_DEFINITIONS, PRIORITY_CLASSES, FLOW_SCHEMAS, RUNTIME_CLASSES, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS,
    ROLES, ROLE_BINDINGS, NETWORK_POLICIES, VALIDATING_WEBHOOK_CONFIGURATIONS,
)  # fmt: skip
"""All built-in kinds, core group first, in the order of discovery."""

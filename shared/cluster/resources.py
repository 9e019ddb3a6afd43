"""The API group, version, plural and paths of each kind."""

from __future__ import annotations

from urllib.parse import quote

from shared.base.struct import Struct


class Resource(Struct, kw_only=True):
    """A kind's resource in the API. ``group`` is empty for the core group."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """``group/version``, or ``version`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The URL path of an object, or without ``name`` of the collection (of all namespaces without ``namespace``).

        Raises:
            ValueError: a namespaced object without a namespace, or a namespace for a cluster-scoped kind.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster-scoped, but namespace {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource(plural="pods", kind="Pod", namespaced=True)
NODES = Resource(plural="nodes", kind="Node")
NAMESPACES = Resource(plural="namespaces", kind="Namespace")
CONFIG_MAPS = Resource(plural="configmaps", kind="ConfigMap", namespaced=True)
LIMIT_RANGES = Resource(plural="limitranges", kind="LimitRange", namespaced=True)
EVENTS = Resource(plural="events", kind="Event", namespaced=True)
PERSISTENT_VOLUMES = Resource(plural="persistentvolumes", kind="PersistentVolume")
PERSISTENT_VOLUME_CLAIMS = Resource(plural="persistentvolumeclaims", kind="PersistentVolumeClaim", namespaced=True)
DAEMON_SETS = Resource(group="apps", plural="daemonsets", kind="DaemonSet", namespaced=True)
STORAGE_CLASSES = Resource(group="storage.k8s.io", plural="storageclasses", kind="StorageClass")
CSI_NODES = Resource(group="storage.k8s.io", plural="csinodes", kind="CSINode")
CSI_DRIVERS = Resource(group="storage.k8s.io", plural="csidrivers", kind="CSIDriver")
DEVICE_CLASSES = Resource(group="resource.k8s.io", plural="deviceclasses", kind="DeviceClass")
RESOURCE_SLICES = Resource(group="resource.k8s.io", plural="resourceslices", kind="ResourceSlice")
VOLUME_ATTACHMENTS = Resource(group="storage.k8s.io", plural="volumeattachments", kind="VolumeAttachment")
POD_DISRUPTION_BUDGETS = Resource(
    group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget", namespaced=True
)
LEASES = Resource(group="coordination.k8s.io", plural="leases", kind="Lease", namespaced=True)
NODE_POOLS = Resource(group="karpenter.sh", plural="nodepools", kind="NodePool")
NODE_CLAIMS = Resource(group="karpenter.sh", plural="nodeclaims", kind="NodeClaim")
NODE_CLASSES = Resource(group="karpenter.k8s.aws", plural="ec2nodeclasses", kind="EC2NodeClass")
PROVISIONERS = Resource(group="karpenter.sh", version="v1alpha5", plural="provisioners", kind="Provisioner")
NODE_TEMPLATES = Resource(
    group="karpenter.k8s.aws", version="v1alpha1", plural="awsnodetemplates", kind="AWSNodeTemplate"
)
NODE_OVERLAYS = Resource(group="karpenter.sh", version="v1alpha1", plural="nodeoverlays", kind="NodeOverlay")
CAPACITY_BUFFERS = Resource(
    group="autoscaling.x-k8s.io", version="v1beta1", plural="capacitybuffers", kind="CapacityBuffer", namespaced=True
)
CAPACITY_BUFFERS_V1ALPHA1 = Resource(
    group="autoscaling.x-k8s.io", version="v1alpha1", plural="capacitybuffers", kind="CapacityBuffer", namespaced=True
)
CAPACITY_BUFFER_VERSIONS = (CAPACITY_BUFFERS, CAPACITY_BUFFERS_V1ALPHA1)
"""A cluster may serve only the older one."""
PROVISIONING_REQUESTS = Resource(
    group="autoscaling.x-k8s.io", plural="provisioningrequests", kind="ProvisioningRequest", namespaced=True
)
PROVISIONING_REQUESTS_V1BETA1 = Resource(
    group="autoscaling.x-k8s.io",
    version="v1beta1",
    plural="provisioningrequests",
    kind="ProvisioningRequest",
    namespaced=True,
)
PROVISIONING_REQUEST_VERSIONS = (PROVISIONING_REQUESTS, PROVISIONING_REQUESTS_V1BETA1)
"""The same."""
POD_GROUPS = Resource(
    group="scheduling.k8s.io", version="v1beta1", plural="podgroups", kind="PodGroup", namespaced=True
)
COSCHEDULING_POD_GROUPS = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups", kind="PodGroup", namespaced=True
)
VOLCANO_POD_GROUPS = Resource(
    group="scheduling.volcano.sh", version="v1beta1", plural="podgroups", kind="PodGroup", namespaced=True
)
POD_TEMPLATES = Resource(plural="podtemplates", kind="PodTemplate", namespaced=True)
DEPLOYMENTS = Resource(group="apps", plural="deployments", kind="Deployment", namespaced=True)
STATEFUL_SETS = Resource(group="apps", plural="statefulsets", kind="StatefulSet", namespaced=True)
REPLICA_SETS = Resource(group="apps", plural="replicasets", kind="ReplicaSet", namespaced=True)

ALL = (
    PODS,
    NODES,
    NAMESPACES,
    LIMIT_RANGES,
    EVENTS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    DAEMON_SETS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    VOLUME_ATTACHMENTS,
    POD_DISRUPTION_BUDGETS,
    LEASES,
    NODE_POOLS,
    NODE_CLAIMS,
    NODE_CLASSES,
    PROVISIONERS,
    NODE_TEMPLATES,
    NODE_OVERLAYS,
    CAPACITY_BUFFERS,
    CAPACITY_BUFFERS_V1ALPHA1,
    PROVISIONING_REQUESTS,
    PROVISIONING_REQUESTS_V1BETA1,
    POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    POD_TEMPLATES,
    DEPLOYMENTS,
    STATEFUL_SETS,
    REPLICA_SETS,
)
_BY_KIND = {(resource.api_version, resource.kind): resource for resource in ALL}


def for_kind(api_version: str, kind: str) -> Resource:
    """The resource of a kind, for objects of several kinds (NodePools, EC2NodeClasses and their legacy kinds).

    Raises:
        KeyError: Tenon doesn't use the kind.
    """
    return _BY_KIND[api_version, kind]

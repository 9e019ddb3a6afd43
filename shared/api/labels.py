"""The names of the API: labels, annotations, taints, finalizers, tags.

Karpenter's names are unchanged, because they are its API. Names that Karpenter doesn't have are under ``tenon.sh/``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- Kubernetes ---
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
EXCLUDE_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
MIRROR_POD = "kubernetes.io/config.mirror"
POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
POD_DISRUPTION_COST = "karpenter.sh/disruption-cost"
"""Karpenter 1.15's: the cost of moving the pod, an int32."""

# --- karpenter.sh ---
DO_NOT_REPAIR = "karpenter.sh/do-not-repair"
"""Annotation of a node or NodeClaim that node repair leaves alone ("true")."""
NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INITIALIZED = "karpenter.sh/initialized"
REGISTERED = "karpenter.sh/registered"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
TERMINATION_GRACE_PERIOD = "tenon.sh/termination-grace-period"
"""Annotation of a NodeClaim that is removed for a reason which bounds its drain: the duration from its deletion."""
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
DISRUPTED_TAINT = "karpenter.sh/disrupted"
UNREGISTERED_TAINT = "karpenter.sh/unregistered"
REBOOTING_TAINT = "karpenter.sh/rebooting"
"""Taint of a node that reboots in place, until it has booted: its pods wait for it (:mod:`shared.api.reboot`)."""
PRE_BOOT_ID = "karpenter.sh/reboot-pre-boot-id"
"""Annotation on a NodeClaim: the node's boot ID before the reboot was called; another one means that it happened."""
REBOOT_GRACE_PERIOD = "karpenter.sh/reboot-termination-grace-period"
"""Annotation on a NodeClaim: how long the drain before its reboot may take. Absent: without a bound; 0: no drain."""
TERMINATION_FINALIZER = "karpenter.sh/termination"
NODECLAIM_TAG = "karpenter.sh/nodeclaim"

SPOT = "spot"
ON_DEMAND = "on-demand"
RESERVED = "reserved"

# --- karpenter.k8s.aws ---
NODECLASS = "karpenter.k8s.aws/ec2nodeclass"
NODECLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
NODECLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
NODECLASS_FINALIZER = "karpenter.k8s.aws/termination"
TAGGED = "karpenter.k8s.aws/tagged"
ZONE_ID = "topology.k8s.aws/zone-id"
INSTANCE_PREFIX = "karpenter.k8s.aws/instance-"
INSTANCE_LABELS = tuple(
    INSTANCE_PREFIX + name
    for name in (
        "hypervisor",
        "encryption-in-transit-supported",
        "category",
        "capability-flex",
        "family",
        "generation",
        "local-nvme",
        "size",
        "cpu",
        "cpu-manufacturer",
        "cpu-sustained-clock-speed-mhz",
        "memory",
        "ebs-bandwidth",
        "network-bandwidth",
        "gpu-name",
        "gpu-manufacturer",
        "gpu-count",
        "gpu-memory",
        "accelerator-name",
        "accelerator-manufacturer",
        "accelerator-count",
        "tenancy",
    )
)
RESERVATION_LABELS = tuple(f"karpenter.k8s.aws/capacity-reservation-{name}" for name in ("id", "type", "interruptible"))

# --- tenon.sh ---
OWN_PREFIX = "tenon.sh/"
NODEPOOL_GENERATION = "tenon.sh/nodepool-generation"
"""Annotation on a NodeClaim: the generation of its NodePool when it was made."""
NODECLAIM = "tenon.sh/nodeclaim"
"""Annotation on a node: the name of its NodeClaim."""
LAUNCH_GROUP = "tenon.sh/launch-group"
"""Annotation on a NodeClaim, tag on an instance: claims launched by one CreateFleet call share its value."""
RESTORED = "tenon.sh/restored"
"""Annotation on a NodeClaim that was written again: the id of its running instance. None is launched for it."""
PLANNED_PODS = "tenon.sh/planned-pods"
"""Annotation on a NodeClaim: the pods that are planned for it, namespace/name, separated by commas."""
PLANNED_AT = "tenon.sh/planned-at"
"""Annotation on a NodeClaim: when pods were last added to its planned pods, if later than its creation."""
PODS_NOT_NOMINATED_TAINT = "tenon.sh/pods-not-nominated"
"""Startup taint of a NodeClaim with planned pods: its node takes no pods until these are nominated for it."""
DELETION_CANDIDATE_TAINT = "tenon.sh/deletion-candidate"
"""Soft taint of nodes that new pods should avoid, as their own pods would fit on other nodes."""
LESS_USED_TAINT = "tenon.sh/less-used"
"""Soft taint of nodes that new pods should fill after those that are used more."""
TRIED_VERSION = "tenon.sh/tried-version"
"""Annotation on a nominated pod: its resourceVersion before, which kube-scheduler's last try of it has written."""
RETRIED = "tenon.sh/retried"
"""Label on a pod whose nomination ended: kube-scheduler tries the pod where the label is set or removed."""
PLANNED_PRICE = "tenon.sh/planned-price"
"""Annotation on a NodeClaim: USD per hour of the cheapest offering that it was planned with."""
EXPECTED_PODS = "tenon.sh/expected-pods"
"""Annotation on a NodeClaim: for how many pods it has room that didn't exist yet when it was planned."""
DECISION = "tenon.sh/decision"
"""Annotation on a NodeClaim: the id of the scheduling decision or disruption command that made it."""
REPLACES = "tenon.sh/replaces"
"""Annotation on a NodeClaim that replaces others: the id of the decision, which is on their mark."""
SCHEDULE = "tenon.sh/schedule"
"""Annotation on a CapacityBuffer: the windows of time in which its chunks are wanted."""
LEAD_TIME = "tenon.sh/lead-time"
"""Annotation on a CapacityBuffer: how long before a window its chunks are bought; otherwise learned from launches."""
PER_NODES = "tenon.sh/per-nodes"
"""Annotation on a CapacityBuffer: its chunks in proportion to the cluster's nodes."""
PER_CORES = "tenon.sh/per-cores"
"""Annotation on a CapacityBuffer: its chunks in proportion to the CPUs that the cluster's pods request."""
MIN_CHUNKS = "tenon.sh/min-chunks"
"""Annotation on a CapacityBuffer: the chunks that are wanted at any time."""
SQS_QUEUE = "tenon.sh/sqs-queue"
"""Annotation on a CapacityBuffer: the name of an SQS queue whose visible messages ask for chunks."""
MESSAGES_PER_CHUNK = "tenon.sh/messages-per-chunk"
"""Annotation on a CapacityBuffer: the messages of its queue that one chunk is for."""
CLOUDWATCH_ALARM = "tenon.sh/cloudwatch-alarm"
"""Annotation on a CapacityBuffer: the name of an alarm; all chunks are wanted while its state is ALARM."""
EVENT = "tenon.sh/event"
"""Annotation on a CapacityBuffer: events on a bus that raise it to all its chunks, SOURCE/DETAIL-TYPE, one a line."""
RAISE_FOR = "tenon.sh/raise-for"
"""Annotation on a CapacityBuffer: how long an event raises it."""
QUEUE_CHUNKS = "tenon.sh/queue-chunks"
"""Annotation on a CapacityBuffer, by the buffers function: the chunks that its queue's messages ask for."""
QUEUE_UNTIL = "tenon.sh/queue-until"
"""Annotation on a CapacityBuffer, by the buffers function: until when these chunks are wanted."""
ALARM_UNTIL = "tenon.sh/alarm-until"
"""Annotation on a CapacityBuffer, by the buffers function: its alarm's state is ALARM, and until when that holds."""
EVENT_UNTIL = "tenon.sh/event-until"
"""Annotation on a CapacityBuffer, by the buffers function: until when an event raises it."""
LAUNCH_SECONDS = "tenon.sh/launch-seconds"
"""Annotation on a NodePool: how long its nodes take from the NodeClaim to initialization."""

PAUSED = "tenon.sh/paused"
"""Annotation on a NodePool or the cluster's Lease: "true", or the RFC 3339 time until which it is paused."""
PAUSED_REASON = "tenon.sh/paused-reason"
"""Annotation next to it: why."""
PAUSED_BY = "tenon.sh/paused-by"
"""Annotation next to it: the user who paused it."""
PAUSED_AT = "tenon.sh/paused-at"
"""Annotation next to it: since when (RFC 3339)."""

DISRUPTION_WINDOWS = "tenon.sh/disruption-windows"
"""Annotation on a NodePool: the only times in which its nodes are disrupted voluntarily."""
SHIFTED_ZONES = "tenon.sh/shifted-zones"
"""Annotation on the cluster's Lease: the zones that traffic is shifted away from, as ZONE=TIME, separated by commas."""
DRIFT_WAVES = "tenon.sh/drift-waves"
"""Annotation on a NodePool: how many drifted nodes are replaced before the next are, such as "1, 10%, 50%"."""
DRIFT_ROLLOUT = "tenon.sh/drift-rollout"
"""Annotation on such a NodePool, by the lifecycle function: what its nodes are replaced for, since when, and what has
stopped it. Without it, the waves begin again."""

SPOT_DIVERSITY = "tenon.sh/spot-diversity"
"""Annotation on a NodePool: the least number of instance types and spot pools that its launches choose from."""
SPOT_ALLOCATION_STRATEGY = "tenon.sh/spot-allocation-strategy"
"""Annotation on a NodePool: CreateFleet's AllocationStrategy of its spot instances."""
MAX_SPOT_PRICE_SHARE = "tenon.sh/max-spot-price-share"
"""Annotation on a NodePool: the most that a spot offering may cost, as a share of its type's on-demand price."""
SPOT_SHARE = "tenon.sh/spot-share"
"""Annotation on a pod: the share of its workload's pods that may be spot, as ``70%``."""
SPOT_ANNOTATIONS = frozenset({SPOT_DIVERSITY, SPOT_ALLOCATION_STRATEGY, MAX_SPOT_PRICE_SHARE})

DYNAMIC_RESOURCES = "tenon.sh/dynamic-resources"
"""Annotation on a NodeClaim: extended resources, separated by commas, that drivers of dynamic resource allocation
provide on its node. Its kubelet doesn't report them."""

KUBERNETES_VERSION = "tenon.sh/kubernetes-version"
"""Annotation on an EC2NodeClass: the minor version whose images it selects, if that is older than the cluster's."""
REBOOT_CALLED_AT = "tenon.sh/reboot-called-at"
"""Annotation on a NodeClaim: when its reboot was first to be called (RFC 3339)."""
REBOOTS = "tenon.sh/reboots"
"""Annotation on a NodeClaim: when its reboots of the last day were requested (RFC 3339), separated by commas."""
PREFIX_DELEGATION = "tenon.sh/prefix-delegation"
"""Annotation on an EC2NodeClass: "false" if the settings of the VPC CNI don't count for its nodes' pods."""

CLUSTER_LIMITS = "tenon.sh/cluster-limits"
"""Annotation on a NodePool: what the nodes of all NodePools together may have, as ``cpu=1000, nodes=200``."""
HOURLY_LIMITS = "tenon.sh/hourly-limits"
"""Annotation on a NodePool: what it may launch and remove in an hour, as ``launches=200, usd=300, removals=20``."""
LOST_WORK = "tenon.sh/lost-work"
"""Annotation on a pod, or on a NodePool for its pods: for how long the pod's work is lost when it is moved ("45m")."""
EXPECTED_GROWTH = "tenon.sh/cluster-expected-growth"
"""Annotation on any NodePool: "false" has nodes launched in the whole cluster for pods that exist only."""
CLUSTER_HOURLY_LIMITS = "tenon.sh/cluster-hourly-limits"
"""Annotation on a NodePool: the same for all NodePools together; the least amounts of several hold."""
LAST_HOUR = "tenon.sh/last-hour"
"""Annotation on the cluster's Lease: what each NodePool launched and removed (:mod:`shared.api.hourly_limits`)."""
INCOMPLETE_GANGS = "tenon.sh/incomplete-gangs"
"""Annotation on the cluster's Lease: which gangs were launched in part, and until when they wait
(:mod:`shared.provisioning.features.gangs`)."""
NODE_REPAIR = "tenon.sh/repair"
"""Annotation on a NodePool: "true" replaces its unhealthy nodes, "reboot" lets some of them reboot instead
(:mod:`shared.disruption.repair`)."""

STANDBY = "tenon.sh/standby"
"""Annotation on a NodePool: how many stopped instances it keeps. On a NodeClaim: the state of a standby node
(:mod:`shared.api.standby`). Label on its node while it takes no pods."""

WELL_KNOWN = frozenset(
    {
        ARCH,
        OS,
        HOSTNAME,
        INSTANCE_TYPE,
        ZONE,
        REGION,
        WINDOWS_BUILD,
        NODEPOOL,
        CAPACITY_TYPE,
        ZONE_ID,
        *INSTANCE_LABELS,
        *RESERVATION_LABELS,
    }
)
"""Labels whose values instance types and offerings define; any other label must be defined by the pool."""

PROVISIONER_NAME = "karpenter.sh/provisioner-name"
ALIASES = {
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "topology.ebs.csi.aws.com/zone": ZONE,
    PROVISIONER_NAME: NODEPOOL,
}
"""Current label keys by their old aliases."""

LEGACY_DO_NOT_DISRUPT = ("karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate")
"""Old annotations that count as :data:`DO_NOT_DISRUPT`."""

GROUP = "karpenter.sh"
AWS_GROUP = "karpenter.k8s.aws"
CLUSTER_TAG = "kubernetes.io/cluster/{cluster}"
CLUSTER_NAME_TAG = "eks:eks-cluster-name"


def normalize_key(key: str) -> str:
    """The current key of an alias; other keys are unchanged.

    >>> normalize_key("failure-domain.beta.kubernetes.io/zone")
    'topology.kubernetes.io/zone'
    """
    return ALIASES.get(key, key)


EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
"""The label of nodes of EKS managed node groups, instead of Karpenter's: SPOT or ON_DEMAND."""


def offering_key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Instance type, zone and capacity type by the labels of a node or NodeClaim; empty where a label is missing.

    >>> offering_key({"node.kubernetes.io/instance-type": "m7g.large", "karpenter.sh/capacity-type": "spot"})
    ('m7g.large', '', 'spot')
    """
    eks_capacity_type = labels.get(EKS_CAPACITY_TYPE, "").lower().replace("_", "-")
    capacity_type = labels.get(CAPACITY_TYPE) or eks_capacity_type or ON_DEMAND
    return labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), capacity_type


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def integer(value: str) -> int | None:
    """The decimal integer of a label's value (64 bits are enough for any), or None.

    >>> integer("8"), integer("8.5")
    (8, None)
    """
    return int(value) if _INTEGER.fullmatch(value) else None


def normalized(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels with deprecated keys replaced; a current key wins over its deprecated one."""
    if ALIASES.keys().isdisjoint(labels):
        return dict(labels)
    current = {normalize_key(k): v for k, v in labels.items()}
    current.update((k, v) for k, v in labels.items() if normalize_key(k) == k)
    return current

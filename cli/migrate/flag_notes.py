"""What becomes of Cluster Autoscaler's flags that aren't options of Tenon.

Names and defaults are those of Cluster Autoscaler's main.go (1.23 to 1.33) and of klog, by which it logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES, AUTO_DISCOVERY = "nodes", "node-group-auto-discovery"
CLOUD_PROVIDER = "cloud-provider"
GROUPS = "groups"
"""Tenon's option for the names of groups."""
TENONS_OWN = frozenset({GROUPS, "scale-down-mode"})
"""Options that aren't flags of Cluster Autoscaler."""
RENAMED = {"max-scale-down-parallelism": "max-empty-bulk-delete"}
"""Newer names of flags. Cluster Autoscaler gives one the value of the other, too."""

_PROCESS = "of a process in the cluster, which Tenon doesn't have"
_LOG = "of the process's log; Tenon logs to CloudWatch"
_LEADER = "of leader election; Tenon decides under its own Lease"
_SCAN = "Tenon decides when pods become pending, and removes nodes once a minute"
_SEARCH = "of Cluster Autoscaler's search; Tenon has its own"
_OTHER_CLOUD = "of another cloud"

WITHOUT_MEANING: Mapping[str, str] = {
    **dict.fromkeys(("logtostderr", "alsologtostderr", "stderrthreshold", "v", "vmodule", "log-dir", "log-file"), _LOG),
    **dict.fromkeys(("log-file-max-size", "log-backtrace-at", "skip-headers", "skip-log-headers"), _LOG),
    **dict.fromkeys(("add-dir-header", "one-output", "logging-format", "log-flush-frequency"), _LOG),
    **dict.fromkeys(("address", "kubernetes", "kubeconfig", "kube-api-content-type", "kube-client-burst"), _PROCESS),
    **dict.fromkeys(("kube-client-qps", "cloud-config", "namespace", "user-agent", "profiling"), _PROCESS),
    **dict.fromkeys(("max-inactivity", "max-failing-time", "debugging-snapshot-enabled"), _PROCESS),
    **dict.fromkeys(("node-info-cache-expire-time", "record-duplicated-events"), _PROCESS),
    **dict.fromkeys(("leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline"), _LEADER),
    **dict.fromkeys(("leader-elect-retry-period", "leader-elect-resource-lock"), _LEADER),
    **dict.fromkeys(("leader-elect-resource-name", "leader-elect-resource-namespace"), _LEADER),
    **dict.fromkeys(("scan-interval", "frequent-loops-enabled", "bypassed-scheduler-names"), _SCAN),
    **dict.fromkeys(("estimator", "max-binpacking-time", "max-nodegroup-binpacking-duration"), _SEARCH),
    **dict.fromkeys(("max-nodes-per-scaleup", "parallel-scale-up", "scale-down-simulation-timeout"), _SEARCH),
    **dict.fromkeys(("scale-down-non-empty-candidates-count", "scale-down-candidates-pool-ratio"), _SEARCH),
    **dict.fromkeys(("scale-down-candidates-pool-min-count", "unremovable-node-recheck-timeout"), _SEARCH),
    **dict.fromkeys(("max-bulk-soft-taint-count", "max-bulk-soft-taint-time", "pod-injection-limit"), _SEARCH),
    **dict.fromkeys(("regional", "gce-concurrent-refreshes", "gce-mig-instances-min-refresh-wait-time"), _OTHER_CLOUD),
    **dict.fromkeys(("gce-expander-ephemeral-storage-support", "bulk-mig-instances-listing-enabled"), _OTHER_CLOUD),
    "clusterapi-cloud-config-authoritative": _OTHER_CLOUD,
    CLOUD_PROVIDER: "Tenon is for AWS only",
    "cluster-name": "the deployment names the cluster",
    "aws-use-static-instance-list": "the catalog function reads the instance types from EC2",
    "enforce-node-group-min-size": "Auto Scaling itself keeps groups at their minimum",
    "force-ds": "pods of DaemonSets always count",
    "write-status-configmap": "`tenon status` and `tenon node-groups` show the state",
    "status-config-map-name": "`tenon status` and `tenon node-groups` show the state",
    "emit-per-nodegroup-metrics": "Tenon has metrics of its own (docs/reference/metrics.md)",
    "async-node-groups": "groups aren't created; NodePools launch nodes of any type",
    "node-autoprovisioning-enabled": "groups aren't created; NodePools launch nodes of any type",
    "max-autoprovisioned-node-group-count": "groups aren't created; NodePools launch nodes of any type",
}
"""Flags that mean nothing to Tenon, and why."""

_BALANCE = "similar groups aren't balanced: the cheapest grows, and topology spread constraints are kept"
_TOTAL = "there is no such limit: the groups' own maximum sizes and max-nodes-total hold"
_TAINTS = "taints of the group's oldest Ready node count as those of its next one"
_UNREADY = "groups are scaled however many nodes aren't Ready"
_REQUESTS = "ProvisioningRequests aren't served; a CapacityBuffer keeps room for pods to come"
_GIVEN_UP = "instances that don't join are given up after max-node-provision-time"
_NONE = "Tenon has no such option"

DIFFERENT: Mapping[str, tuple[str, str]] = {
    "balance-similar-node-groups": ("false", _BALANCE),
    **dict.fromkeys(("balancing-ignore-label", "balancing-label", "memory-difference-ratio"), ("", _BALANCE)),
    **dict.fromkeys(("max-free-difference-ratio", "max-allocatable-difference-ratio"), ("", _BALANCE)),
    **dict.fromkeys(("cores-total", "memory-total", "gpu-total"), ("", _TOTAL)),
    **dict.fromkeys(("ignore-taint", "startup-taint", "status-taint"), ("", _TAINTS)),
    "max-total-unready-percentage": ("45", _UNREADY),
    "ok-total-unready-count": ("3", _UNREADY),
    "scale-up-from-zero": ("true", "a cluster without Ready nodes gets nodes, too"),
    "new-pod-scale-up-delay": ("0s", "pods get nodes as soon as they are unschedulable"),
    "expendable-pods-priority-cutoff": ("-10", "pods of every priority get nodes"),
    "node-group-backoff-reset-timeout": ("3h", "a group's back-off starts again once a node has joined"),
    "force-delete-unregistered-nodes": (
        "false",
        _GIVEN_UP,
    ),
    "enable-proactive-scaleup": ("false", "a CapacityBuffer keeps room for pods to come"),
    "capacity-buffer-controller-enabled": ("true", "Tenon keeps the room of CapacityBuffers itself"),
    "capacity-buffer-pod-injection-enabled": ("true", "Tenon keeps the room of CapacityBuffers itself"),
    "enable-provisioning-requests": ("false", _REQUESTS),
    **dict.fromkeys(
        ("provisioning-request-initial-backoff-time", "provisioning-request-max-backoff-time"), ("", _REQUESTS)
    ),
    **dict.fromkeys(
        ("provisioning-request-max-backoff-cache-size", "check-capacity-batch-processing"), ("", _REQUESTS)
    ),
    "check-capacity-provisioning-request-max-batch-size": ("", _REQUESTS),
    "check-capacity-provisioning-request-batch-timebox": ("", _REQUESTS),
    "min-replica-count": ("0", f"{_NONE}; PodDisruptionBudgets protect small workloads"),
    "scheduler-config-file": ("", f"{_NONE}; it assumes the default kube-scheduler profile"),
    **dict.fromkeys(("grpc-expander-url", "grpc-expander-cert"), ("", "there is no gRPC expander")),
    "scale-down-delay-type-local": ("false", "the delays hold for all groups together"),
    "scale-down-gpu-utilization-threshold": ("0.5", _NONE),
    "ignore-mirror-pods-utilization": ("false", _NONE),
    "daemonset-eviction-for-empty-nodes": ("false", _NONE),
    "daemonset-eviction-for-occupied-nodes": ("true", _NONE),
    "cordon-node-before-terminating": ("false", _NONE),
    "node-delete-delay-after-taint": ("5s", _NONE),
    "dynamic-node-delete-delay-after-taint-enabled": ("false", _NONE),
    "node-deletion-delay-timeout": ("2m", _NONE),
    "node-deletion-batcher-interval": ("0s", _NONE),
    "max-pod-eviction-time": ("2m", _NONE),
    "drain-priority-config": ("", _NONE),
}
"""Flags that Tenon doesn't have: the value with which nothing differs, and what happens with any other."""

BOOLEAN = frozenset(
    {
        *(name for name, (default, _) in DIFFERENT.items() if default in {"true", "false"}),
        *("scale-down-enabled", "scale-down-unready-enabled", "skip-nodes-with-local-storage"),
        *("skip-nodes-with-system-pods", "skip-nodes-with-custom-controller-pods", "ignore-daemonsets-utilization"),
        *("logtostderr", "alsologtostderr", "skip-headers", "skip-log-headers", "add-dir-header", "one-output"),
        *("profiling", "debugging-snapshot-enabled", "record-duplicated-events", "leader-elect"),
        *("frequent-loops-enabled", "parallel-scale-up", "regional", "bulk-mig-instances-listing-enabled"),
        *("gce-expander-ephemeral-storage-support", "clusterapi-cloud-config-authoritative"),
        *("aws-use-static-instance-list", "enforce-node-group-min-size", "force-ds", "write-status-configmap"),
        *("emit-per-nodegroup-metrics", "async-node-groups", "node-autoprovisioning-enabled"),
    }
)
"""Flags that take no further argument: ``--x`` is ``--x=true``."""

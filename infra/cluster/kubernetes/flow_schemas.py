"""FlowSchemas: in which queues of the API server the requests of functions and relay wait when it is overloaded.

Without them, the functions' requests share ``global-default`` with everybody's, and those of the relay's pods
``workload-low`` with all service accounts': a controller that lists in a loop delays launches and drains, and a Lease
that isn't renewed in time ends a decision. ``workload-high`` and ``leader-election`` are levels of every API server
(kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults), and where kube-system's controllers are.
Shadow mode only watches, so it stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests

if TYPE_CHECKING:
    from collections.abc import Collection

    from infra.cluster.kubernetes.cluster_manifests import Obj
    from infra.options.stack_options import StackOptions

REQUESTS, LEASES = "tenon", "tenon-leader-election"
_LEASES_PRECEDENCE, _REQUESTS_PRECEDENCE = 200, 1000
"""Before ``service-accounts`` (9000) and ``global-default`` (9900); the lowest number wins."""


def flow_schemas(functions: Collection[str], *, relay_pod: bool = False) -> list[Obj]:
    """The FlowSchemas of the functions, and of the relay's pods."""
    subjects = [_group(name) for name in cluster_manifests.RULES if name in {*functions} - {function_sizes.SHADOW}]
    if relay_pod:
        account = {"namespace": cluster_manifests.NAMESPACE, "name": cluster_manifests.RELAY}
        subjects.append({"kind": "ServiceAccount", "serviceAccount": account})
    if not subjects:
        return []
    leases = _rule(["get", "create", "update", "patch"], ["coordination.k8s.io"], ["leases"])
    everything = {**_rule(["*"], ["*"], ["*"]), "clusterScope": True}
    return [
        _flow_schema(LEASES, "leader-election", _LEASES_PRECEDENCE, subjects, leases),
        _flow_schema(REQUESTS, "workload-high", _REQUESTS_PRECEDENCE, subjects, everything),
    ]


def of_deployment(options: StackOptions) -> list[Obj]:
    """Those of the deployment's functions."""
    return flow_schemas(options.functions, relay_pod=options.relay == "pod")


def _group(function: str) -> Obj:
    return {"kind": "Group", "group": {"name": cluster_manifests.group(function)}}


def _rule(verbs: list[str], groups: list[str], resources: list[str]) -> Obj:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources, "namespaces": ["*"]}


def _flow_schema(name: str, level: str, precedence: int, subjects: list[Obj], rule: Obj) -> Obj:
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            # A queue for each of them: none delays the others.
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": subjects, "resourceRules": [rule]}],
        },
    }

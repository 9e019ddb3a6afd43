"""The strategy for pods: defaults, admission, validation, binding and graceful deletion.

Decisions read these fields (requests, tolerations, priority, grace period), so they must be those of a real server.
Sources: kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/pod/strategy.go`` and admission plugins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors, kinds
from local.kubernetes.conditions import replace_condition
from local.kubernetes.errors import Cause
from local.kubernetes.objects import timestamp
from local.kubernetes.registry import pod_rules
from local.kubernetes.registry.quantities import canonical_quantity
from local.kubernetes.registry.resource_rules import HUGE_PAGES, aggregated
from shared.api.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from fractions import Fraction

    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_DEFAULT_GRACE_PERIOD = 30
_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": _DEFAULT_GRACE_PERIOD,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_DEFAULTS_OF_CONTAINERS = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_DEFAULT_TOLERATED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATION_SECONDS = 300
_OF_PODS = ("cpu", "memory", HUGE_PAGES)
_QOS_RESOURCES = ("cpu", "memory")


def default_spec(spec: Obj) -> None:
    """Fill in the defaults of a pod's or a pod template's spec, in place."""
    fill_in(spec, _DEFAULTS)
    spec.setdefault("securityContext", {})
    for container in containers(spec):
        fill_in(container, _DEFAULTS_OF_CONTAINERS)
        fill_in(container, {"imagePullPolicy": _pull_policy(container.get("image", ""))})
        container.setdefault("resources", {})
        for port in container.get("ports") or []:
            fill_in(port, {"protocol": "TCP"})


def fill_in(obj: Obj, defaults: Mapping[str, Any]) -> None:
    """Set the fields that are absent, or empty texts, to their defaults, in place."""
    for name, value in defaults.items():
        if obj.get(name, "") == "":
            obj[name] = value


def default_pod_only(spec: Obj) -> None:
    """Fill in, in place, what a pod gets and a template doesn't: requests from limits, ports of the host network."""
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in containers(spec):
        if spec.get("hostNetwork"):
            for port in container.get("ports") or []:
                port["hostPort"] = port.get("hostPort") or port.get("containerPort")
        resources = container["resources"]
        _request_limits(resources)
    if any((spec.get("resources") or {}).get(part) for part in ("requests", "limits")):
        _default_pod_resources(spec, spec["resources"])


def _default_pod_resources(spec: Obj, own: Obj) -> None:
    """Fill in a pod's own limits of huge pages, and its requests, from those of its containers, in place."""
    huge = {n: amount for n, amount in aggregated(spec, "limits").items() if n.startswith(HUGE_PAGES)}
    if huge:
        own["limits"] = {**_as_texts(huge), **(own.get("limits") or {})}
    if own.get("limits"):
        requests = {n: amount for n, amount in aggregated(spec, "requests").items() if n in _QOS_RESOURCES}
        own["requests"] = {**_as_texts(requests), **(own.get("requests") or {})}
        _request_limits(own, _OF_PODS)


def _as_texts(amounts: Mapping[str, Fraction]) -> Obj:
    return {name: canonical_quantity(f"{math.ceil(amount * 1000)}m") for name, amount in amounts.items()}


def _request_limits(resources: Obj, names: tuple[str, ...] = ("",)) -> None:
    """Request what is limited; only of resources whose names begin with one of ``names``."""
    limits = {name: limit for name, limit in (resources.get("limits") or {}).items() if name.startswith(names)}
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _pull_policy(image: str) -> str:
    """Always for an image without a tag or with the tag "latest"."""
    name, _, _ = image.partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return "IfNotPresent" if tag not in {"", "latest"} or "@" in image else "Always"


def containers(spec: Obj) -> Iterator[Obj]:
    """The init containers and containers."""
    for name in ("initContainers", "containers"):
        yield from spec.get(name) or []


def admit(pod: Obj, priority_classes: Iterable[Obj], now: datetime) -> None:
    """Fill in a new pod's priority, default tolerations and status, in place, after the defaults of its spec.

    Raises:
        ApiError: 403, its priority class does not exist.
    """
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    _set_priority(pod, list(priority_classes))
    default_tolerations(spec)
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastTransitionTime": timestamp(now),
            }
        ]


def default_status(status: Obj, old: Obj) -> None:
    """Fill in the defaults of a changed pod's status, in place."""
    if not status.get("qosClass") and "qosClass" in old:
        status["qosClass"] = old["qosClass"]
    for name in ("containerStatuses", "initContainerStatuses"):
        if name in status:
            status[name] = [{"state": {}, "lastState": {}, **container} for container in status[name]]


def default_tolerations(spec: Obj) -> None:
    """Add the tolerations of the DefaultTolerationSeconds admission plugin to a new or changed pod, in place."""
    tolerations = spec.get("tolerations") or []
    for key in _DEFAULT_TOLERATED_TAINTS:
        if not any(_tolerates_execute(t, key) for t in tolerations):
            added = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS,
            }
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def _tolerates_execute(toleration: Obj, key: str) -> bool:
    return toleration.get("key", key) in {key, ""} and toleration.get("effect", "NoExecute") in {"NoExecute", ""}


def _set_priority(pod: Obj, classes: list[Obj]) -> None:
    spec = pod["spec"]
    class_name = spec.get("priorityClassName")
    if class_name:
        priority_class = next((c for c in classes if c["metadata"]["name"] == class_name), None)
        if priority_class is None:
            why = f"no PriorityClass with name {class_name} was found"
            raise errors.forbidden(kinds.PODS, pod["metadata"]["name"], why)
    else:
        priority_class = next((c for c in classes if c.get("globalDefault")), None)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    priority = priority_class["value"] if priority_class else 0
    policy = (priority_class or {}).get("preemptionPolicy", "PreemptLowerPriority")
    for field, computed in (("priority", priority), ("preemptionPolicy", policy)):
        if spec.setdefault(field, computed) != computed:
            why = f"the value of {field} ({spec[field]}) must not be provided in pod spec; computed {computed}"
            raise errors.forbidden(kinds.PODS, pod["metadata"]["name"], why)


def quality_of_service(spec: Obj) -> str:
    """BestEffort without any CPU or memory; Guaranteed when all limits equal the requests; else Burstable."""
    resources = [container.get("resources") or {} for container in containers(spec)]
    if not any(
        (r.get(part) or {}).get(name) for r in resources for part in ("requests", "limits") for name in _QOS_RESOURCES
    ):
        return "BestEffort"
    guaranteed = all(
        (r.get("limits") or {}).get(name) and _equal(name, (r.get("requests") or {}).get(name), r["limits"][name])
        for r in resources
        for name in _QOS_RESOURCES
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _equal(name: str, a: Json, b: Json) -> bool:
    return a is not None and parse_quantity(name, a) == parse_quantity(name, b)


_MUTABLE_FIELDS = (
    "spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations)`,`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def validate_update(new: Obj, old: Obj) -> list[Cause]:
    """The errors of an update that changes immutable fields of the spec, or nominates a bound pod."""
    nominated = (new.get("status") or {}).get("nominatedNodeName")
    if nominated and old["spec"].get("nodeName") and nominated != (old.get("status") or {}).get("nominatedNodeName"):
        text = "Forbidden: may not be set on pods that are already bound to a node"
        return [Cause("status.nominatedNodeName", "FieldValueForbidden", text)]
    if new.get("spec") == old.get("spec"):
        return []
    for part in ("containers", "initContainers"):
        if len(new["spec"].get(part) or []) != len(old["spec"].get(part) or []):
            text = "Forbidden: pod updates may not add or remove containers"
            return [*pod_rules.of_spec(new["spec"], "spec"), Cause(f"spec.{part}", "FieldValueForbidden", text)]
    causes: list[Cause] = []
    if _immutable(new["spec"]) != _immutable(old["spec"]):
        text = f"Forbidden: pod updates may not change fields other than `{_MUTABLE_FIELDS}`"
        causes.append(Cause("spec", "FieldValueForbidden", text))
    return [*causes, *_removed_or_added(new["spec"], old["spec"])]


def resized(new: Obj, old: Obj) -> Obj:
    """The pod with the containers' resources of ``new``, which is all that the resize subresource changes."""
    spec = dict(old["spec"])
    for part in ("initContainers", "containers"):
        wanted = {c.get("name"): c.get("resources") or {} for c in new["spec"].get(part) or []}
        if part in spec:
            spec[part] = [{**c, "resources": wanted.get(c["name"], c.get("resources") or {})} for c in spec[part]]
    return {**old, "metadata": new["metadata"], "spec": spec}


def validate_resize(new: Obj, old: Obj) -> list[Cause]:
    """The errors of a resize: other resources than cpu and memory, or another quality of service."""
    causes = list(pod_rules.of_spec(new["spec"], "spec"))
    if causes:
        return causes
    for part in ("initContainers", "containers"):
        pairs = zip(new["spec"].get(part) or [], old["spec"].get(part) or [], strict=True)
        for index, (after, before) in enumerate(pairs):
            if _not_resizable(after) != _not_resizable(before):
                text = "Forbidden: only cpu and memory resources are mutable"
                causes.append(Cause(f"spec.{part}[{index}].resources", "FieldValueForbidden", text))
    if quality_of_service(new["spec"]) != quality_of_service(old["spec"]):
        text = "Invalid value: Pod QOS Class may not change as a result of resizing"
        causes.append(Cause("spec", "FieldValueInvalid", text))
    return causes


def _not_resizable(container: Obj) -> list[Obj]:
    """The container's requests and limits of other resources than cpu and memory."""
    resources = container.get("resources") or {}
    return [
        {name: amount for name, amount in (resources.get(part) or {}).items() if name not in _QOS_RESOURCES}
        for part in ("requests", "limits")
    ]


def _removed_or_added(new: Obj, old: Obj) -> list[Cause]:
    """The errors of scheduling gates that were added, and of tolerations that were removed."""
    causes: list[Cause] = []
    after, before = new.get("schedulingGates") or [], old.get("schedulingGates") or []
    if any(gate not in before for gate in after):
        text = "Forbidden: only deletion is allowed, but found new scheduling gates"
        causes.append(Cause("spec.schedulingGates", "FieldValueForbidden", text))
    kept = [_without_seconds(toleration) for toleration in new.get("tolerations") or []]
    if any(_without_seconds(toleration) not in kept for toleration in old.get("tolerations") or []):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        causes.append(Cause("spec.tolerations", "FieldValueForbidden", text))
    return causes


def _without_seconds(toleration: Obj) -> Obj:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _immutable(spec: Obj) -> Obj:
    mutable = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"}
    kept = {name: value for name, value in spec.items() if name not in mutable}
    if spec.get("schedulingGates"):
        kept = {name: value for name, value in kept.items() if name not in {"nodeSelector", "affinity"}}
    for part in ("containers", "initContainers"):
        kept[part] = [
            {k: v for k, v in c.items() if k not in {"image", "imagePullPolicy"}} for c in spec.get(part) or []
        ]
    return kept


def bound(pod: Obj, node: str, now: datetime) -> Obj:
    """The pod bound to the node, without a nomination (ClearingNominatedNodeNameAfterBinding, on since 1.35).

    Raises:
        ApiError: 409, it has a node or scheduling gates, or is being deleted.
    """
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise errors.binding_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current := pod["spec"].get("nodeName"):
        raise errors.binding_conflict(name, f'pod {name} is already assigned to node "{current}"')
    if pod["spec"].get("schedulingGates"):
        raise errors.binding_conflict(name, f"pod {name} has non-empty .spec.schedulingGates")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(now)}
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": replace_condition(status.get("conditions") or [], condition)},
    }

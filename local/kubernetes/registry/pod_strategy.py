"""What an apiserver does to pods: defaults, quality of service, what may change later, binding and graceful deletion.

Decisions read these fields (requests, tolerations, priority, grace), so they must be as a real server fills them.
Sources: kubernetes ``pkg/apis/core/v1/defaults.go``, ``pkg/registry/core/pod/strategy.go`` and admission plugins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import errors, kinds
from local.kubernetes.conditions import replace_condition
from local.kubernetes.errors import Cause
from local.kubernetes.registry.object_meta import timestamp
from shared.api.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from local.kubernetes.objects import Obj

_NOT_RUNNING = frozenset(("Succeeded", "Failed"))
_DEFAULT_GRACE = 30
_EVICTING = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_SECONDS = 300
_COMPUTE = ("cpu", "memory")


def default_spec(spec: Obj) -> None:
    """Fill in the defaults of a pod's spec, also inside a template; changes it in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in containers(spec):
        container.setdefault("imagePullPolicy", "IfNotPresent" if ":" in container.get("image", "") else "Always")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **(resources.get("requests") or {})}
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port.get("containerPort"))


def containers(spec: Obj) -> Iterator[Obj]:
    """Init containers and containers."""
    for name in ("initContainers", "containers"):
        yield from spec.get(name) or []


def admit(pod: Obj, priority_classes: Iterable[Obj]) -> None:
    """Complete a new pod in place: defaults, priority, the 300 s tolerations, status.

    Raises:
        ApiError: 403, its priority class does not exist.
    """
    spec = pod.setdefault("spec", {})
    default_spec(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    _set_priority(pod, list(priority_classes))
    tolerations = spec.get("tolerations") or []
    for key in _EVICTING:
        if not any(_tolerates_eviction(t, key) for t in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _tolerates_eviction(toleration: Obj, key: str) -> bool:
    return toleration.get("key", key) in {key, ""} and toleration.get("effect", "NoExecute") in {"NoExecute", ""}


def _set_priority(pod: Obj, classes: list[Obj]) -> None:
    spec = pod["spec"]
    wanted = spec.get("priorityClassName")
    if wanted:
        chosen = next((c for c in classes if c["metadata"]["name"] == wanted), None)
        if chosen is None:
            why = f"no PriorityClass with name {wanted} was found"
            raise errors.forbidden(kinds.PODS, pod["metadata"]["name"], why)
    else:
        chosen = next((c for c in classes if c.get("globalDefault")), None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = chosen["value"] if chosen else 0
    spec["preemptionPolicy"] = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")


def quality_of_service(spec: Obj) -> str:
    """BestEffort without any cpu or memory; Guaranteed when all limits are the requests; else Burstable."""
    every = [container.get("resources") or {} for container in containers(spec)]
    if not any((r.get(part) or {}).get(name) for r in every for part in ("requests", "limits") for name in _COMPUTE):
        return "BestEffort"
    guaranteed = all(
        (r.get("limits") or {}).get(name) and _same(name, (r.get("requests") or {}).get(name), r["limits"][name])
        for r in every
        for name in _COMPUTE
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _same(name: str, a: Any, b: Any) -> bool:  # noqa: ANN401 (quantities as written)
    return a is not None and parse_quantity(name, a) == parse_quantity(name, b)


def faults(pod: Obj) -> list[Cause]:
    """What a new pod's spec lacks or has wrong."""
    spec = pod["spec"]
    found: list[Cause] = []
    if not spec.get("containers"):
        found.append(Cause("spec.containers", "FieldValueRequired", "Required value"))
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or []):
            at = f"spec.{part}[{index}]"
            if not container.get("name"):
                found.append(Cause(f"{at}.name", "FieldValueRequired", "Required value"))
            if part == "containers" and not container.get("image"):
                found.append(Cause(f"{at}.image", "FieldValueRequired", "Required value"))
            found.extend(resource_faults(container.get("resources") or {}, at))
    return found


def quantity_faults(quantities: Any, at: str) -> list[Cause]:  # noqa: ANN401 (JSON)
    """Quantities that can't be read, or are negative."""
    found: list[Cause] = []
    for name, value in (quantities or {}).items():
        try:
            amount = parse_quantity(name, value)
        except (QuantityError, TypeError):
            text = (
                f'Invalid value: "{value}": quantities must match the regular expression '
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
            found.append(Cause(f"{at}[{name}]", "FieldValueInvalid", text))
            continue
        if amount < 0:
            text = f'Invalid value: "{value}": must be greater than or equal to 0'
            found.append(Cause(f"{at}[{name}]", "FieldValueInvalid", text))
    return found


def resource_faults(resources: Obj, at: str) -> list[Cause]:
    """Quantities that are none, and requests beyond their limits."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    found = [
        *quantity_faults(requests, f"{at}.resources.requests"),
        *quantity_faults(limits, f"{at}.resources.limits"),
    ]
    if found:
        return found
    for name, value in requests.items():
        if name in limits and parse_quantity(name, value) > parse_quantity(name, limits[name]):
            text = f'Invalid value: "{value}": must be less than or equal to {name} limit of {limits[name]}'
            found.append(Cause(f"{at}.resources.requests", "FieldValueInvalid", text))
    return found


_CHANGEABLE = (
    "spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations)`,`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def update_faults(new: Obj, old: Obj) -> list[Cause]:
    """Changes of a spec that a pod does not allow any more."""
    if new.get("spec") == old.get("spec"):
        return []
    if _frozen(new["spec"]) != _frozen(old["spec"]):
        text = f"Forbidden: pod updates may not change fields other than `{_CHANGEABLE}`"
        return [Cause("spec", "FieldValueForbidden", text)]
    found: list[Cause] = []
    after, before = new["spec"].get("schedulingGates") or [], old["spec"].get("schedulingGates") or []
    if any(gate not in before for gate in after):
        text = "Forbidden: only deletion is allowed, but found new scheduling gates"
        found.append(Cause("spec.schedulingGates", "FieldValueForbidden", text))
    return found


def _frozen(spec: Obj) -> Obj:
    aside = {"activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"}
    kept = {name: value for name, value in spec.items() if name not in aside}
    if spec.get("schedulingGates"):
        kept = {name: value for name, value in kept.items() if name not in {"nodeSelector", "affinity"}}
    for part in ("containers", "initContainers"):
        kept[part] = [
            {k: v for k, v in c.items() if k not in {"image", "imagePullPolicy"}} for c in spec.get(part) or []
        ]
    return kept


def bound(pod: Obj, node: str, now: datetime) -> Obj:
    """The pod on its node.

    Raises:
        ApiError: 409 it has a node or is being deleted; 403 it has scheduling gates.
    """
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise errors.conflict(kinds.PODS, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current := pod["spec"].get("nodeName"):
        raise errors.conflict(kinds.PODS, name, f'pod {name} is already assigned to node "{current}"')
    if pod["spec"].get("schedulingGates"):
        raise errors.forbidden(kinds.PODS, name, "pod has non-empty .spec.schedulingGates")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(now)}
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**pod["status"], "conditions": replace_condition(pod["status"].get("conditions") or [], condition)},
    }


def grace_period(pod: Obj, asked: int | None) -> int:
    """Seconds that the pod has to stop: none when no kubelet has it, or it has ended."""
    spec = pod["spec"]
    if not spec.get("nodeName") or pod["status"].get("phase") in _NOT_RUNNING:
        return 0
    own: int = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
    return max(own if asked is None else asked, 0)


def terminated(pod: Obj) -> bool:
    """Whether it has ended, well or badly."""
    return pod["status"].get("phase") in _NOT_RUNNING

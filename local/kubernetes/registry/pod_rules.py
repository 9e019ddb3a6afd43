"""The errors of a pod's spec, for the fields on which placement depends.

Source: kubernetes ``pkg/apis/core/validation``. About nodes: ``scheduling_rules``; resources: ``resource_rules``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.registry import field_rules as rules
from local.kubernetes.registry import resource_rules, scheduling_rules, storage_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.errors import Cause
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.field_rules import Causes

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_INT32 = range(1, 2**31)


def of_pod(pod: Obj) -> list[Cause]:
    """The errors of a new pod's spec."""
    spec = pod["spec"]
    causes = list(of_spec(spec, "spec"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        causes.append(rules.forbidden("spec.nodeName", text))
    if spec.get("ephemeralContainers"):
        causes.append(rules.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return causes


def of_template(template: Obj, path: str) -> Causes:
    """The errors of a pod template."""
    metadata = template.get("metadata") or {}
    yield from rules.labels(f"{path}.labels", metadata.get("labels"))
    for key in metadata.get("annotations") or {}:
        yield from rules.qualified_name(f"{path}.annotations", key.lower())
    spec = template.get("spec") or {}
    yield from of_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        yield rules.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")


def of_spec(spec: Obj, path: str) -> Causes:
    """The errors of the spec of a pod or a template."""
    yield from _volumes(spec.get("volumes") or (), f"{path}.volumes")
    yield from _containers(spec, path)
    yield from rules.among(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    yield from scheduling_rules.of_pod(spec, path)
    yield from _gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    yield from _host_network(spec, path)
    for name in ("nodeName", "priorityClassName", "runtimeClassName", "serviceAccountName"):
        if spec.get(name) or (name == "runtimeClassName" and name in spec):
            yield from rules.subdomain(f"{path}.{name}", spec[name])
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline not in _INT32:
        yield rules.invalid(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    yield from preemption_policy(f"{path}.preemptionPolicy", spec.get("preemptionPolicy"))
    yield from resource_rules.container_resources({"limits": spec.get("overhead") or {}}, f"{path}.overhead")
    yield from resource_rules.pod_resources(spec, f"{path}.resources")


def preemption_policy(path: str, policy: str | None) -> Causes:
    """The errors of the preemption policy of a pod or a PriorityClass."""
    if policy == "":
        yield rules.required(path)
    else:
        yield from rules.among(path, policy, ("Never", "PreemptLowerPriority"))


def _containers(spec: Obj, path: str) -> Causes:
    containers = spec.get("containers") or []
    if not containers:
        yield rules.required(f"{path}.containers")
    names: set[str] = set()
    for index, container in enumerate(containers):
        yield from _container(container, f"{path}.containers[{index}]", names)
    yield from _repeated_host_ports(containers, f"{path}.containers")
    for index, container in enumerate(spec.get("initContainers") or ()):
        yield from _container(container, f"{path}.initContainers[{index}]", names)
        yield from _repeated_host_ports([container], f"{path}.initContainers")


def _container(container: Obj, path: str, names: set[str]) -> Causes:
    """The errors of a container; its name is added to those of its pod."""
    name = container.get("name", "")
    if name:
        yield from rules.dns_label(f"{path}.name", name)
    else:
        yield rules.required(f"{path}.name")
    if name in names:
        yield rules.duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield rules.required(f"{path}.image")
    if container.get("restartPolicyRules") and "restartPolicy" not in container:
        yield rules.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    yield from rules.among(f"{path}.restartPolicy", container.get("restartPolicy"), _RESTART_POLICIES)
    yield from _ports(container.get("ports") or (), f"{path}.ports")
    yield from resource_rules.container_resources(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: Iterable[Obj], path: str) -> Causes:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, name = f"{path}[{index}]", port.get("name")
        if name:
            causes = list(rules.port_name(f"{at}.name", name))
            yield from causes
            if not causes and name in names:
                yield rules.duplicate(f"{at}.name", name)
            names.add(name)
        if number := port.get("containerPort"):
            yield from rules.port(f"{at}.containerPort", number)
        else:
            yield rules.required(f"{at}.containerPort")
        if number := port.get("hostPort"):
            yield from rules.port(f"{at}.hostPort", number)
        if protocol := port.get("protocol"):
            yield from rules.among(f"{at}.protocol", protocol, _PROTOCOLS)


def _repeated_host_ports(containers: Iterable[Obj], path: str) -> Causes:
    seen = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            used = (port.get("protocol"), port.get("hostIP", ""), port.get("hostPort"))
            if port.get("hostPort") and used in seen:
                yield rules.duplicate(f"{path}[{index}].ports[{number}].hostPort", "/".join(map(str, used)))
            seen.add(used)


def _host_network(spec: Obj, path: str) -> Causes:
    """The errors of ports that the host network gives other numbers."""
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                at = f"{path}.containers[{index}].ports[{number}].hostPort"
                yield rules.invalid(at, port["hostPort"], "must match `containerPort` when `hostNetwork` is true")


def _gates(gates: Iterable[Obj], path: str) -> Causes:
    seen = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from rules.qualified_name(f"{path}[{index}]", name)
        if name in seen:
            yield rules.duplicate(f"{path}[{index}]", name)
        seen.add(name)


def _volumes(volumes: Iterable[Obj], path: str) -> Causes:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        causes = list(storage_rules.volume_source(volume, at))
        causes += rules.dns_label(f"{at}.name", name) if name else [rules.required(f"{at}.name")]
        if name in names:
            causes.append(rules.duplicate(f"{at}.name", name))
        if not causes:
            names.add(name)
        yield from causes


def runtime_class(new: Obj) -> Causes:
    """The errors of a RuntimeClass."""
    if handler := new.get("handler"):
        yield from rules.dns_label("handler", handler)
    else:
        yield rules.required("handler")
    overhead = (new.get("overhead") or {}).get("podFixed") or {}
    yield from resource_rules.container_resources({"limits": overhead}, "overhead")
    scheduling = new.get("scheduling") or {}
    yield from rules.labels("scheduling.nodeSelector", scheduling.get("nodeSelector"))
    tolerations = scheduling.get("tolerations") or []
    yield from scheduling_rules.tolerations(tolerations, "scheduling.tolerations")
    identities = [[t.get(name, "") for name in ("key", "operator", "value", "effect")] for t in tolerations]
    for index, identity in enumerate(identities):
        if identity in identities[:index]:
            yield rules.duplicate(f"scheduling.tolerations[{index}]", identity)

"""ScaledObjects of KEDA that scale pause pods by ``cron`` triggers, and the CapacityBuffers that keep the same room.

KEDA (https://keda.sh/docs/2.17/scalers/cron/) gives the target the largest number of the triggers whose window is open,
between the minimum and the maximum, and outside all windows the minimum, or ``idleReplicaCount`` if that is given.
Defaults, bounds and pauses are those of KEDA's ``apis/keda/v1alpha1/scaledobject_types.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api import capacity_buffer, capacity_demand
from shared.api import labels as names
from shared.api.capacity_demand import DemandError
from shared.api.meta import ApiStruct, NamedObject
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CRON = "cron"
_DEFAULT_MOST = 100
"""KEDA's ``maxReplicaCount`` without a value."""
_PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
"""Pauses with any value."""
_PAUSED = tuple(f"autoscaling.keda.sh/paused{part}" for part in ("", "-scale-in", "-scale-out", "-scale-down"))
"""Pause altogether or in one direction, unless the value is a false one."""
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go's ``strconv.ParseBool`` takes for false; KEDA takes every other text for true."""
_PRIORITY = frozenset({"priorityClassName", "priority", "preemptionPolicy"})
"""Pause pods have a low priority to be preempted; chunks of a buffer come after pods anyway."""


class NotExpressibleError(ValueError):
    """A buffer can't keep the room of a ScaledObject; the message says why."""


class _Target(ApiStruct):
    name: str = ""
    kind: str = "Deployment"


class _Trigger(ApiStruct):
    type: str = ""
    metadata: dict[str, str] = {}


class _Modifiers(ApiStruct):
    formula: str = ""


class _Advanced(ApiStruct):
    scaling_modifiers: _Modifiers = _Modifiers()


class _ScaledObjectSpec(ApiStruct):
    scale_target_ref: _Target = _Target()
    min_replica_count: int | None = None
    idle_replica_count: int | None = None
    max_replica_count: int = _DEFAULT_MOST
    triggers: list[_Trigger] = []
    advanced: _Advanced = _Advanced()


class ScaledObject(NamedObject):
    """What a buffer can follow of a ``keda.sh/v1alpha1`` ScaledObject."""

    spec: _ScaledObjectSpec = _ScaledObjectSpec()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def namespace(self) -> str:
        """The namespace, as kubectl fills it in."""
        return self.metadata.namespace or "default"

    @property
    def target(self) -> str:
        """The Deployment's ``namespace/name``."""
        return f"{self.namespace}/{self.spec.scale_target_ref.name}"


class _Window(Struct):
    text: str
    replicas: int


def buffer_objects(scaled: ScaledObject, deployments: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A PodTemplate with the shape of the pause pods, and the CapacityBuffer that names it.

    ``deployments`` are those of the files that can be decoded, by ``namespace/name``.

    Raises:
        NotExpressibleError: a buffer would keep other room than the ScaledObject does.
    """
    _check(scaled)
    template = _pause_template(scaled, deployments)
    windows = [_window(trigger, number, scaled) for number, trigger in enumerate(scaled.spec.triggers, 1)]
    idle = scaled.spec.min_replica_count or 0
    if scaled.spec.idle_replica_count is not None:
        idle = scaled.spec.idle_replica_count
    most = max(idle, *(window.replicas for window in windows))
    if not 0 < most <= capacity_buffer.MAX_CHUNKS:
        allowed = plural(capacity_buffer.MAX_CHUNKS, "chunk")
        raise NotExpressibleError(f"it asks for {plural(most, 'pod')}; allowed are 1 to {allowed}")
    metadata = {"name": scaled.name, "namespace": scaled.namespace}
    stored = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template}
    buffer = {
        "apiVersion": capacity_buffer.API_VERSION,
        "kind": capacity_buffer.KIND,
        "metadata": {**metadata, "annotations": _annotations(windows, idle=idle, most=most)},
        "spec": {"podTemplateRef": {"name": scaled.name}, "replicas": most},
    }
    return [stored, buffer]


def _check(scaled: ScaledObject) -> None:
    """Refuse what changes the number of pods in a way that no annotation of a buffer says."""
    paused = _pause(scaled.metadata.annotations)
    if paused:
        raise NotExpressibleError(f"it is paused by annotation {paused}")
    _check_bounds(scaled.spec)
    if scaled.spec.advanced.scaling_modifiers.formula:
        raise NotExpressibleError("spec.advanced.scalingModifiers: a buffer has no formula")
    if not scaled.spec.triggers:
        raise NotExpressibleError("it has no trigger")
    for number, trigger in enumerate(scaled.spec.triggers, 1):
        if trigger.type != _CRON:
            raise NotExpressibleError(
                f"trigger {number} is {trigger.type or 'of no type'}, not {_CRON}; a buffer can also follow SQS "
                "queues, CloudWatch alarms and EventBridge events (docs/capacity-buffers.md)"
            )


def _pause(annotations: Mapping[str, str]) -> str:
    """The annotation that pauses it, "" if none does."""
    if _PAUSED_REPLICAS in annotations:
        return _PAUSED_REPLICAS
    return next((name for name in _PAUSED if annotations.get(name, "false") not in _FALSE), "")


def _check_bounds(spec: _ScaledObjectSpec) -> None:
    """Refuse what KEDA refuses, whose number of pods nobody knows.

    KEDA compares with 1 if ``minReplicaCount`` is given and 0, and with 0 if it isn't given.
    """
    least = 0 if spec.min_replica_count is None else max(spec.min_replica_count, 1)
    if least > spec.max_replica_count:
        raise NotExpressibleError(
            f"KEDA refuses it: minReplicaCount {least} is more than maxReplicaCount {spec.max_replica_count}"
        )
    if spec.idle_replica_count is not None and spec.idle_replica_count >= least:
        raise NotExpressibleError(
            f"KEDA refuses it: idleReplicaCount {spec.idle_replica_count} must be less than minReplicaCount {least}"
        )


def _pause_template(scaled: ScaledObject, deployments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The template of the Deployment's pods, without their priority."""
    target = scaled.spec.scale_target_ref
    if target.kind != "Deployment":
        raise NotExpressibleError(f"it scales {target.kind} {scaled.target}, not a Deployment of pause pods")
    deployment = deployments.get(scaled.target)
    if deployment is None:
        raise NotExpressibleError(f"Deployment {scaled.target} isn't in the files, so the pods' shape is unknown")
    template = (deployment.get("spec") or {}).get("template") or {}
    spec = template.get("spec") or {}
    images = [str(container.get("image", "")) for container in spec.get("containers") or ()]
    working = next((image for image in images if not _is_pause(image)), None)
    if not images:
        raise NotExpressibleError(f"Deployment {scaled.target} has no containers")
    if working is not None:
        raise NotExpressibleError(
            f"Deployment {scaled.target} has pods that work (image {working}), not pause pods: leave it to KEDA"
        )
    return {**template, "spec": {key: value for key, value in spec.items() if key not in _PRIORITY}}


def _is_pause(image: str) -> bool:
    """Whether the image is a pause container's, such as ``registry.k8s.io/pause:3.10``.

    >>> _is_pause("public.ecr.aws/eks-distro/kubernetes/pause:3.10"), _is_pause("example.com:5000/nginx")
    (True, False)
    """
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return name == "pause" or name.startswith("pause-")


def _window(trigger: _Trigger, number: int, scaled: ScaledObject) -> _Window:
    """The window of a ``cron`` trigger, and the pods that the target has in it."""
    values = trigger.metadata
    missing = [key for key in ("timezone", "start", "end", "desiredReplicas") if not values.get(key, "").strip()]
    if missing:
        raise NotExpressibleError(f"trigger {number} has no {' and no '.join(missing)}")
    start, end, zone = (" ".join(values[key].split()) for key in ("start", "end", "timezone"))
    text = f"{start} until {end} in {zone}"
    try:
        capacity_demand.windows(text)
        wanted = capacity_demand.count(values["desiredReplicas"])
    except DemandError as error:
        raise NotExpressibleError(f"trigger {number}: {error}") from error
    least, most = scaled.spec.min_replica_count or 0, scaled.spec.max_replica_count
    return _Window(text=text, replicas=min(max(wanted, least), most))


def _annotations(windows: list[_Window], *, idle: int, most: int) -> dict[str, str]:
    """What the buffer wants at which time."""
    lines = list(_lines(windows, idle=idle, most=most))
    annotations = {names.SCHEDULE: "\n".join(lines)} if lines else {}
    return annotations | ({names.MIN_CHUNKS: str(idle)} if idle else {})


def _lines(windows: list[_Window], *, idle: int, most: int) -> Iterator[str]:
    """The windows that want more than there is outside of them."""
    for window in windows:
        if window.replicas > idle:
            yield window.text if window.replicas == most else f"{window.text} keep {window.replicas}"

"""The columns that ``kubectl get`` prints: those of built-in kinds, and a custom kind's additionalPrinterColumns.

Texts are those of kubernetes ``pkg/printers/internalversion``; columns of priority 1 appear only with ``-o wide``.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.selectors import field_value
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.custom_resources import Definition
    from shared.api.json_types import Json

_NONE, _UNKNOWN = "<none>", "<unknown>"
_ROLE = "node-role.kubernetes.io/"
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+|\*)\]|\['([^']+)'\]|\[\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\]")


class Column(Struct):
    """One column; ``value`` computes a cell from the object and the time (RFC 3339)."""

    name: str
    value: Callable[[Obj, str], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""

    def cell(self, obj: Obj, now: str) -> Json:
        """The object's cell in this column."""
        return self.value(obj, now)

    def as_json(self) -> Obj:
        """The column's definition in a Table."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.description,
            "priority": self.priority,
        }


def columns_of(kind: Kind, definition: Definition | None) -> tuple[Column, ...]:
    """The columns of a kind."""
    if definition is not None:
        if not definition.columns:
            return (_NAME, _AGE)
        return (_NAME, *(_custom(column) for column in definition.columns))
    return _COLUMNS.get(kind.resource, (_NAME, _AGE))


def duration(since: str | None, now: str) -> str:
    """An age as kubectl prints it, in at most two units."""
    if not since:
        return _UNKNOWN
    seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    for below, text in (
        (120, f"{seconds}s"),
        (600, f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"),
        (10800, f"{minutes}m"),
        (28800, f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"),
        (172800, f"{hours}h"),
        (691200, f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"),
    ):
        if seconds < below:
            return text
    return f"{days}d" if days < 730 else f"{days // 365}y{days % 365}d"  # noqa: PLR2004 (two years, as kubectl)


def json_path(obj: Json, path: str) -> list[Any]:
    """The values at a JSONPath of fields, indices, ``[*]`` and ``[?(@.type=="Ready")]``."""
    values = [obj]
    for field, index, quoted, key, expected in _STEP.findall(path.replace("\\.", "\0")):
        name = (field or quoted).replace("\0", ".")
        if name:
            values = [value[name] for value in values if isinstance(value, dict) and name in value]
        elif index == "*":
            values = [item for value in values for item in (value.values() if isinstance(value, dict) else value)]
        else:
            lists = [value for value in values if isinstance(value, list)]
            values = _matching(lists, key, expected) if key else _at_index(lists, int(index))
    return values


def _matching(lists: list[Any], key: str, expected: str) -> list[Any]:
    return [item for items in lists for item in items if str(item.get(key)) == expected]


def _at_index(lists: list[Any], index: int) -> list[Any]:
    return [items[index] for items in lists if index < len(items)]


def _custom(column: Obj) -> Column:
    path, type_ = column["jsonPath"], column.get("type", "string")

    def value(obj: Obj, now: str) -> Json:
        values = json_path(obj, path if "\\" not in path else re.sub(r"\.([\w-]+(?:\\\.[\w/-]+)+)", _quoted, path))
        if not values:
            return None
        if type_ == "date":
            return duration(str(values[0]), now)
        if type_ in {"integer", "number", "boolean"}:
            return values[0]
        return ",".join(str(value) for value in values)

    return Column(column["name"], value, type_, column.get("priority", 0), column.get("description", ""))


def _quoted(match: re.Match[str]) -> str:
    """A key with escaped dots, as one quoted JSONPath step."""
    return f"['{match[1].replace(chr(92) + '.', '.')}']"


def _field(path: str, default: Json = _NONE) -> Callable[[Obj, str], Any]:
    parts = path.split(".")

    def value(obj: Obj, _now: str) -> Json:
        field: Any = obj
        for part in parts:
            field = field.get(part) if isinstance(field, dict) else None
        return default if field is None else field

    return value


def _age(obj: Obj, now: str) -> str:
    return duration(obj["metadata"].get("creationTimestamp"), now)


_NAME = Column("Name", _field("metadata.name"))
_AGE = Column("Age", _age)


def _ready(obj: Obj, _now: str) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    return f"{sum(bool(s.get('ready')) for s in statuses)}/{len((obj.get('spec') or {}).get('containers') or [])}"


def _pod_status(obj: Obj, _now: str) -> str:
    status = obj.get("status") or {}
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    text: str = status.get("reason") or status.get("phase") or _UNKNOWN
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        for phase in ("waiting", "terminated"):
            text = (state.get(phase) or {}).get("reason") or text
    return text


def _restarts(obj: Obj, _now: str) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    return str(sum(s.get("restartCount", 0) for s in statuses))


def _gates(obj: Obj, _now: str) -> str:
    gates = (obj.get("spec") or {}).get("readinessGates") or []
    return f"0/{len(gates)}" if gates else _NONE


def _node_status(obj: Obj, _now: str) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or []
    ready = next((c["status"] for c in conditions if c.get("type") == "Ready"), "Unknown")
    text = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown" if not conditions else "NotReady")
    return f"{text},SchedulingDisabled" if (obj.get("spec") or {}).get("unschedulable") else text


def _roles(obj: Obj, _now: str) -> str:
    labels = obj["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))) or _NONE


def _address(type_: str) -> Callable[[Obj, str], str]:
    def value(obj: Obj, _now: str) -> str:
        addresses = (obj.get("status") or {}).get("addresses") or []
        return next((a["address"] for a in addresses if a.get("type") == type_), _NONE)

    return value


def _images(field: str) -> Callable[[Obj, str], str]:
    def value(obj: Obj, _now: str) -> str:
        containers = json_path(obj, ".spec.template.spec.containers[*]")
        return ",".join(str(c.get(field, "")) for c in containers)

    return value


def _selector(obj: Obj, _now: str) -> str:
    labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{k}={v}" for k, v in sorted(labels.items())) or _NONE


def _node_selector(obj: Obj, _now: str) -> str:
    selectors = json_path(obj, ".spec.template.spec.nodeSelector")
    return ",".join(f"{k}={v}" for k, v in sorted((selectors[0] if selectors else {}).items())) or _NONE


def _ready_replicas(obj: Obj, _now: str) -> str:
    return f"{_field('status.readyReplicas', 0)(obj, '')}/{_field('spec.replicas', 0)(obj, '')}"


def _last_seen(obj: Obj, now: str) -> str:
    return duration(obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp"), now)


def _event_object(obj: Obj, _now: str) -> str:
    involved = obj.get("involvedObject") or {}
    return f"{involved.get('kind', '').lower()}/{involved.get('name', '')}"


def _event_source(obj: Obj, _now: str) -> str:
    return field_value(obj, "source")


_TEMPLATE_COLUMNS = (
    Column("Containers", _images("name"), priority=1),
    Column("Images", _images("image"), priority=1),
    Column("Selector", _selector, priority=1),
)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    kinds.PODS.resource: (
        _NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", _field("status.podIP"), priority=1),
        Column("Node", _field("spec.nodeName"), priority=1),
        Column("Nominated Node", _field("status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", _gates, priority=1),
    ),
    kinds.NODES.resource: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        _AGE,
        Column("Version", _field("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _address("InternalIP"), priority=1),
        Column("External-IP", _address("ExternalIP"), priority=1),
        Column("OS-Image", _field("status.nodeInfo.osImage", _UNKNOWN), priority=1),
        Column("Kernel-Version", _field("status.nodeInfo.kernelVersion", _UNKNOWN), priority=1),
        Column("Container-Runtime", _field("status.nodeInfo.containerRuntimeVersion", _UNKNOWN), priority=1),
    ),
    kinds.NAMESPACES.resource: (_NAME, Column("Status", _field("status.phase")), _AGE),
    kinds.DEPLOYMENTS.resource: (
        _NAME,
        Column("Ready", _ready_replicas),
        Column("Up-to-date", _field("status.updatedReplicas", 0), "integer"),
        Column("Available", _field("status.availableReplicas", 0), "integer"),
        _AGE,
        *_TEMPLATE_COLUMNS,
    ),
    kinds.REPLICA_SETS.resource: (
        _NAME,
        Column("Desired", _field("spec.replicas", 0), "integer"),
        Column("Current", _field("status.replicas", 0), "integer"),
        Column("Ready", _field("status.readyReplicas", 0), "integer"),
        _AGE,
        *_TEMPLATE_COLUMNS,
    ),
    kinds.STATEFUL_SETS.resource: (_NAME, Column("Ready", _ready_replicas), _AGE, *_TEMPLATE_COLUMNS[:2]),
    kinds.DAEMON_SETS.resource: (
        _NAME,
        Column("Desired", _field("status.desiredNumberScheduled", 0), "integer"),
        Column("Current", _field("status.currentNumberScheduled", 0), "integer"),
        Column("Ready", _field("status.numberReady", 0), "integer"),
        Column("Up-to-date", _field("status.updatedNumberScheduled", 0), "integer"),
        Column("Available", _field("status.numberAvailable", 0), "integer"),
        Column("Node Selector", _node_selector),
        _AGE,
        *_TEMPLATE_COLUMNS,
    ),
    kinds.EVENTS.resource: (
        Column("Last Seen", _last_seen),
        Column("Type", _field("type", "")),
        Column("Reason", _field("reason", "")),
        Column("Object", _event_object),
        Column("Source", _event_source, priority=1),
        Column("Message", _field("message", "")),
        Column("Name", _field("metadata.name"), priority=1),
    ),
    kinds.POD_DISRUPTION_BUDGETS.resource: (
        _NAME,
        Column("Min Available", _field("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _field("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _field("status.disruptionsAllowed", 0), "integer"),
        _AGE,
    ),
    kinds.LEASES.resource: (_NAME, Column("Holder", _field("spec.holderIdentity", "")), _AGE),
    kinds.STORAGE_CLASSES.resource: (
        _NAME,
        Column("Provisioner", _field("provisioner", "")),
        Column("ReclaimPolicy", _field("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", _field("volumeBindingMode", "Immediate")),
        _AGE,
    ),
    kinds.PERSISTENT_VOLUME_CLAIMS.resource: (
        _NAME,
        Column("Status", _field("status.phase")),
        Column("Volume", _field("spec.volumeName", "")),
        Column("Capacity", _field("status.capacity.storage", "")),
        Column("StorageClass", _field("spec.storageClassName", "")),
        _AGE,
    ),
    kinds.PERSISTENT_VOLUMES.resource: (
        _NAME,
        Column("Capacity", _field("spec.capacity.storage", "")),
        Column("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy", "")),
        Column("Status", _field("status.phase")),
        Column("StorageClass", _field("spec.storageClassName", "")),
        _AGE,
    ),
    kinds.PRIORITY_CLASSES.resource: (
        _NAME,
        Column("Value", _field("value", 0), "integer"),
        Column("Global-Default", _field("globalDefault", False)),  # noqa: FBT003 (the cell's text when the field is absent)
        _AGE,
    ),
    kinds.CUSTOM_RESOURCE_DEFINITIONS.resource: (
        _NAME,
        Column("Created At", _field("metadata.creationTimestamp")),
    ),
}

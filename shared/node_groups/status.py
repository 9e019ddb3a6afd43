"""The status of node groups as Cluster Autoscaler publishes it, in ConfigMap ``cluster-autoscaler-status``. Pure.

The format is that of Cluster Autoscaler 1.30 and later (clusterstate/api/types.go): key ``status`` has YAML with the
conditions health, scaleUp and scaleDown of the cluster and of each group.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from shared.api.meta import is_true
from shared.api.yaml_documents import reader, writer
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from shared.api.kubernetes import Node
    from shared.node_groups.group_pools import ComingNode
    from shared.node_groups.group_state import GroupState
    from shared.node_groups.node_group import NodeGroup

CONFIG_MAP = "cluster-autoscaler-status"
KEY = "status"
LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
"""The annotation with the time of the last write."""
REMOVED_TAINT = "ToBeDeletedByClusterAutoscaler"
"""Cluster Autoscaler's taint of nodes that are being removed."""
STARTUP = timedelta(minutes=15)
"""How long a new node counts as starting (Cluster Autoscaler's MaxNodeStartupTime)."""
OK_UNREADY = 3
OK_UNREADY_PERCENT = 45
"""A group with no more unready nodes than one of these is healthy (ok-total-unready-count,
max-total-unready-percentage)."""
REFRESH = timedelta(minutes=5)
"""An unchanged status is written again after this time, so that readers see that it is kept up to date."""
_TIME = "%Y-%m-%d %H:%M:%S.%f +0000 UTC"
_PROBED = "lastProbeTime"
_CHANGED = "lastTransitionTime"

Document = dict[str, Any]
"""The status as YAML has it."""


class GroupView(Struct, kw_only=True):
    """A group at one moment: what is remembered of it, what is coming, and the names of its unneeded nodes."""

    group: NodeGroup
    state: GroupState
    coming: tuple[ComingNode, ...] = ()
    candidates: frozenset[str] = frozenset()


def document(views: Sequence[GroupView], nodes: Collection[Node], before: Document, *, now: datetime) -> Document:
    """The status of the cluster with these groups and nodes.

    ``before`` is the status before it: a condition that is the same keeps its transition time.
    """
    at = now.astimezone(UTC)
    node_of = {node.spec.provider_id: node for node in nodes if node.spec.provider_id}
    of_groups = [_group(view, node_of, now=at) for view in views]
    counts = _node_counts(nodes, now=at)
    for key in ("longUnregistered", "unregistered"):
        counts[key] = sum(group["health"]["nodeCounts"][key] for group in of_groups)
    is_growing = any(group["scaleUp"]["status"] == "InProgress" for group in of_groups)
    wide = {
        "health": {"status": _health(counts), "nodeCounts": counts},
        "scaleUp": {"status": "InProgress" if is_growing else "NoActivity"},
        "scaleDown": _scale_down(sum(len(view.candidates) for view in views)),
    }
    old_groups = {group.get("name"): group for group in _list(before.get("nodeGroups"))}
    return {
        "time": at.strftime(_TIME),
        "autoscalerStatus": "Running",
        "clusterWide": _with_times(wide, _dict(before.get("clusterWide")), at),
        "nodeGroups": [_with_times(group, old_groups.get(group["name"], {}), at) for group in of_groups],
    }


def _group(view: GroupView, node_of: Mapping[str, Node], *, now: datetime) -> Document:
    group = view.group
    nodes = [node_of[i.provider_id] for i in group.instances if i.provider_id in node_of]
    counts = _node_counts(nodes, now=now)
    missing = {i.provider_id for i in group.instances if i.is_expected and i.provider_id not in node_of}
    counts["longUnregistered"] = len(missing.intersection(view.state.given_up))
    # What isn't launched yet counts too, as Cluster Autoscaler's placeholders do.
    unlaunched = max(0, group.desired - sum(i.is_expected for i in group.instances))
    counts["unregistered"] = len(missing.difference(view.state.given_up)) + unlaunched
    return {
        "name": group.name,
        "health": {
            "status": _health(counts),
            "nodeCounts": counts,
            "cloudProviderTarget": group.desired,
            "minSize": group.minimum,
            "maxSize": group.maximum,
        },
        "scaleUp": _scale_up(view, now=now),
        "scaleDown": _scale_down(len(view.candidates)),
    }


def _node_counts(nodes: Collection[Node], *, now: datetime) -> Document:
    ready = starting = leaving = unready = 0
    for node in nodes:
        created = node.metadata.creation_timestamp
        if any(taint.key == REMOVED_TAINT for taint in node.spec.taints):
            leaving += 1
        elif is_true(node.status.conditions, "Ready"):
            ready += 1
        elif created is not None and now - created < STARTUP:
            starting += 1
        else:
            unready += 1
    registered: Document = {"total": len(nodes), "ready": ready, "notStarted": starting}
    if leaving:
        registered["beingDeleted"] = leaving
    registered["unready"] = {"total": unready, "resourceUnready": 0}
    return {"registered": registered, "longUnregistered": 0, "unregistered": 0}


def _health(counts: Document) -> str:
    registered = counts["registered"]
    unready = registered["unready"]["total"] + counts["longUnregistered"]
    total = registered["total"] + counts["longUnregistered"]
    is_healthy = unready <= OK_UNREADY or unready * 100 <= total * OK_UNREADY_PERCENT
    return "Healthy" if is_healthy else "Unhealthy"


def _scale_up(view: GroupView, *, now: datetime) -> Document:
    if view.coming:
        return {"status": "InProgress"}
    if view.state.is_backing_off(now):
        info = {"errorCode": view.state.error_code, "errorMessage": view.state.error_message}
        return {"status": "Backoff", "backoffInfo": {key: value for key, value in info.items() if value}}
    return {"status": "NoActivity"}


def _scale_down(candidates: int) -> Document:
    if not candidates:
        return {"status": "NoCandidates"}
    return {"status": "CandidatesPresent", "candidates": candidates}


def _with_times(conditions: Document, before: Document, now: datetime) -> Document:
    """The conditions with the times of now, and of the last transition."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    timed: Document = {}
    for name, condition in conditions.items():
        if not isinstance(condition, dict):
            timed[name] = condition
            continue
        old = _dict(before.get(name))
        same = old.get("status") == condition["status"] and isinstance(old.get(_CHANGED), str)
        timed[name] = {**condition, _PROBED: stamp, _CHANGED: old[_CHANGED] if same else stamp}
    return timed


def parse(text: str) -> Document:
    """The status in this text; an empty one if it isn't in this format (it was text before 1.30)."""
    try:
        return _dict(reader.document(text))
    except reader.YamlError:
        return {}


def encode(status: Document) -> str:
    """The text of the status."""
    return writer.text(status, width=2**16)


def is_due(status: Document, before: Document) -> bool:
    """Whether the status is to be written: something but the time has changed, or the one before is old."""
    if _timeless(status) != _timeless(before):
        return True
    try:
        return _written(status) - _written(before) >= REFRESH
    except (KeyError, TypeError, ValueError):
        return True


def _written(status: Document) -> datetime:
    return datetime.fromisoformat(status["clusterWide"]["health"][_PROBED])


def _timeless(value: Any) -> Any:  # noqa: ANN401 (of YAML)
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in ("time", _PROBED)}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def _dict(value: Any) -> Document:  # noqa: ANN401 (of YAML)
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Document]:  # noqa: ANN401 (of YAML)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

"""The status that a kubelet writes for its pods, computed from objects only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local.kubernetes.conditions import with_condition
from local.kubernetes.objects import parse_timestamp, timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from local.kubernetes.objects import Obj

RUNS_FOR = "local.tenon.sh/runs-for-seconds"
"""Annotation on a pod: its containers succeed after that many seconds. Without it they run until they are stopped."""
STOPS_AFTER = "local.tenon.sh/stops-after-seconds"
"""Annotation on a pod: how many seconds it takes to stop, instead of the drawn duration."""

KWOK_STAGE = "kwok.x-k8s.io/stage"
"""Label on a pod: "unhealthy" if its containers run but are never ready. Tests that are written for kwok's simulated
kubelets set it."""

_INITIALIZATION = ("PodReadyToStartContainers", "Initialized")
_READINESS = ("ContainersReady", "Ready")
_SLEEP = re.compile(r"sleep (\d+)")


def running(pod: Obj, *, host_ip: str, pod_ip: str, started: datetime, now: datetime) -> Obj:
    """The pod with all its containers running, and ready unless its label says that they never are.

    Containers that ran before were restarted, with their machine.
    """
    status = pod["status"]
    restarts = {c["name"]: c["restartCount"] + 1 for c in status.get("containerStatuses") or []}
    conditions = status.get("conditions") or []
    ready = (pod["metadata"].get("labels") or {}).get(KWOK_STAGE) != "unhealthy"
    for type_ in _INITIALIZATION:
        conditions = with_condition(conditions, type_, status="True", now=now)
    for type_ in _READINESS:
        status_, reason = ("True", "") if ready else ("False", "ContainersNotReady")
        conditions = with_condition(conditions, type_, status=status_, reason=reason, now=now)
    started_at = timestamp(now)
    containers = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": ready,
            "started": True,
            "restartCount": restarts.get(container["name"], 0),
            "state": {"running": {"startedAt": started_at}},
        }
        for container in pod["spec"].get("containers") or []
    ]
    return {
        **pod,
        "status": {
            **status,
            "phase": "Running",
            "conditions": conditions,
            "startTime": status.get("startTime") or timestamp(started),
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "podIP": pod_ip,
            "podIPs": [{"ip": pod_ip}],
            "containerStatuses": containers,
        },
    }


def runs_for(pod: Obj) -> float | None:
    """How long the pod's containers run, in seconds; None: until they are stopped."""
    both = (seconds(pod, RUNS_FOR), pod["spec"].get("activeDeadlineSeconds"))
    return min((value for value in both if value is not None), default=None)


def ended(pod: Obj, *, now: datetime) -> Obj:
    """The pod when it has run for that long: failed if that was its deadline, else succeeded."""
    completed = _succeeded(pod, now=now)
    if pod["spec"].get("activeDeadlineSeconds") != runs_for(pod):
        return completed
    return {**completed, "status": {**completed["status"], "phase": "Failed", "reason": "DeadlineExceeded"}}


def _succeeded(pod: Obj, *, now: datetime) -> Obj:
    """The pod with all its containers completed."""
    status = pod["status"]
    conditions = status.get("conditions") or []
    for type_ in ("ContainersReady", "Ready"):
        conditions = with_condition(conditions, type_, status="False", reason="PodCompleted", now=now)
    terminated = {"exitCode": 0, "reason": "Completed", "finishedAt": timestamp(now)}
    containers = [
        {**container, "ready": False, "started": False, "state": {"terminated": terminated}}
        for container in status.get("containerStatuses") or []
    ]
    return {
        **pod,
        "status": {**status, "phase": "Succeeded", "conditions": conditions, "containerStatuses": containers},
    }


def seconds(pod: Obj, annotation: str) -> float | None:
    """The seconds in an annotation of the pod; None if it is absent or malformed."""
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    try:
        return max(float(text), 0.0)
    except ValueError:
        return None


def pre_stop_seconds(pod: Obj) -> float:
    """How long the pod's preStop hooks sleep before its containers are stopped; other commands take no time."""
    handlers = [(c.get("lifecycle") or {}).get("preStop") or {} for c in pod["spec"].get("containers") or []]
    return max((_handler_seconds(handler) for handler in handlers), default=0.0)


def _handler_seconds(handler: Obj) -> float:
    if "sleep" in handler:
        return float(handler["sleep"]["seconds"])
    command = " ".join((handler.get("exec") or {}).get("command") or [])
    sleep = _SLEEP.fullmatch(command.removeprefix("/bin/sh -c "))
    return float(sleep[1]) if sleep else 0.0


def killed_at(pod: Obj) -> datetime:
    """When the grace period ends."""
    return parse_timestamp(pod["metadata"]["deletionTimestamp"])


def address(machine: int, number: int) -> str:
    """The pod IP of that number on a machine, unique: each machine has a /22 of 100.64.0.0/10."""
    bits = (machine << 10) + number
    return f"100.{64 + (bits >> 16) % 64}.{(bits >> 8) & 255}.{bits & 255}"


def needs_network(pod: Obj) -> bool:
    """Whether the pod needs the node's network plugin."""
    return not pod["spec"].get("hostNetwork")

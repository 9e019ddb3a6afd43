"""What a run was asked for and didn't give: pods that are pending at its end, and False conditions, with reasons."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.world import foreign_objects
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj
    from local.world import World

_KINDS = (
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ("karpenter.sh/v1alpha5", "Provisioner"),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
)
_READY = "Ready"
_SCHEDULER = "default-scheduler"
_SHOWN_PODS = 3


class PendingPods(WireStruct):
    """Pods by name that are pending for the same reason; of kube-scheduler's if Tenon wrote none."""

    pods: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """One line, with the first pods' names."""
        more = len(self.pods) - _SHOWN_PODS
        named = ", ".join(self.pods[:_SHOWN_PODS]) + (f" and {more} more" if more > 0 else "")
        return f"pending: {named}: {self.reason}"


class FalseCondition(WireStruct):
    """A condition that is False, of a NodePool, a node class or their legacy kinds."""

    kind: str
    name: str
    condition: str
    message: str

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.kind} {self.name}: {self.condition} is False: {self.message}"


def pending_pods(world: World) -> tuple[PendingPods, ...]:
    """The pods that are pending now, by reason."""
    reasons = _reasons(world)
    pods_by_reason: dict[str, list[str]] = defaultdict(list)
    for pod in world.pending():
        metadata = pod["metadata"]
        pods_by_reason[reasons.get(metadata["uid"], "no event says why")].append(metadata["name"])
    return tuple(PendingPods(tuple(sorted(pods)), reason) for reason, pods in sorted(pods_by_reason.items()))


def _reasons(world: World) -> dict[str, str]:
    """By pod's UID: the message of the last event FailedScheduling."""
    events = [e for e in world.store.list(kinds.EVENTS) if e.get("reason") == "FailedScheduling"]
    events.sort(key=lambda e: (_component(e) != _SCHEDULER, e.get("lastTimestamp") or e.get("eventTime") or ""))
    return {e["involvedObject"].get("uid", ""): str(e.get("message", "")) for e in events}


def _component(event: Obj) -> str:
    return str(event.get("reportingComponent") or event.get("source", {}).get("component", ""))


def false_conditions(world: World) -> Iterator[FalseCondition]:
    """The conditions that make an object not ready: Ready itself only where no other is False."""
    for kind in _KINDS:
        for obj in foreign_objects.without_foreign(world.store.list(world.store.kind(*kind))):
            conditions = [c for c in obj.get("status", {}).get("conditions", []) if c["status"] == "False"]
            causes = [c for c in conditions if c["type"] != _READY] or conditions
            for condition in causes if any(c["type"] == _READY for c in conditions) else ():
                yield FalseCondition(
                    kind[1], obj["metadata"]["name"], condition["type"], condition.get("message") or condition["reason"]
                )

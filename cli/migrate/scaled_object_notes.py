"""Fields of a ScaledObject that a CapacityBuffer doesn't have, each with what follows.

None of them changes for which pods a buffer keeps room at which time; what would is refused
(:mod:`cli.migrate.scaled_objects`). Fields: https://keda.sh/docs/2.17/reference/scaledobject-spec/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CARRIED = frozenset(
    {
        "scaleTargetRef.name", "scaleTargetRef.kind", "scaleTargetRef.apiVersion",
        "minReplicaCount", "idleReplicaCount", "maxReplicaCount",
    }
)  # fmt: skip
_OF_TRIGGER = frozenset({"type", "metadata.timezone", "metadata.start", "metadata.end", "metadata.desiredReplicas"})
_HPA = "advanced.horizontalPodAutoscalerConfig"
_NOTES = {
    "pollingInterval": "a buffer changes at the minute at which a window begins or ends",
    "cooldownPeriod": "a buffer shrinks when the window ends",
    "initialCooldownPeriod": "a buffer shrinks when the window ends",
    "fallback": "a schedule has no metric that could fail",
    f"{_HPA}.behavior": "a buffer grows and shrinks at once; how fast its nodes leave is up to their NodePool",
    f"{_HPA}.name": "a buffer has no HorizontalPodAutoscaler",
    "advanced.restoreToOriginalReplicaCount": "scale the Deployment of pause pods to 0 yourself",
    "scaleTargetRef.envSourceContainerName": "cron triggers read no variables",
}
_UNKNOWN = "a buffer has no such field"


def not_carried_over(spec: Mapping[str, object]) -> Iterator[str]:
    """A sentence for each field of the spec (JSON values) that the buffer doesn't have, such as the HPA's behavior."""
    for path in _paths({key: value for key, value in spec.items() if key != "triggers"}):
        if path not in _CARRIED:
            yield f"{_printable(f'spec.{path}')}: {_NOTES.get(path, _UNKNOWN)}"
    triggers = spec.get("triggers")
    for number, trigger in enumerate(triggers if isinstance(triggers, list) else (), 1):
        for path in _paths(trigger if isinstance(trigger, dict) else {}):
            if path not in _OF_TRIGGER:
                yield f"{_printable(f'trigger {number}, {path}')}: {_UNKNOWN}"


def _paths(values: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """The paths of the fields that are given; those in a field with a note of its own count as that field."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in _NOTES:
            yield from _paths(value, f"{path}.")
        elif value is not None:
            yield path


def _printable(path: str) -> str:
    """The path in one line, as keys may be any text."""
    return " ".join(path.split())

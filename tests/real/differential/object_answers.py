"""What two API servers say of a new object, and where they differ: its acceptance, its errors, its defaults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.real.differential.comparison import ABSENT, differing_fields, normalized

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.real.differential.generated_objects import Json

    Answer = tuple[int, Json]
    """The HTTP status and the body."""
    Ask = Callable[[Json], Answer]

_TOKEN = "kube-api-access-"
_CREATED, _INVALID = 201, 422


@dataclass(frozen=True)
class Disagreement:
    """One field about which the servers disagree; ``real`` and ``embedded`` are its values or its errors' reasons."""

    kind: str
    field: str
    real: Any
    embedded: Any
    is_error: bool = True

    def __str__(self) -> str:
        about = "error of" if self.is_error else "value of"
        return f"{self.kind}: {about} {self.field}: {_short(self.real)}, embedded {_short(self.embedded)}"


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) < 300 else f"{text[:300]}…"


def disagreements(obj: Json, real: Answer, embedded: Answer) -> list[Disagreement]:
    """Where the answers about the object differ."""
    kind = obj["kind"]
    statuses = {real[0], embedded[0]}
    if statuses == {_CREATED}:
        theirs = _without_token(normalized(real[1])) if kind == "Pod" else normalized(real[1])
        pairs = differing_fields(_meaningful(theirs), _meaningful(normalized(embedded[1])))
        return [Disagreement(kind, path, a, b, is_error=False) for path, a, b in pairs]
    if statuses <= {_CREATED, _INVALID} or real[0] == _INVALID:
        real_causes, embedded_causes = _causes(real[1]), _causes(embedded[1])
        return [
            Disagreement(kind, field, reason if (field, reason) in real_causes else ABSENT,
                         reason if (field, reason) in embedded_causes else ABSENT)
            for field, reason in sorted(real_causes ^ embedded_causes)
        ]  # fmt: skip
    if real[0] == embedded[0]:
        return []
    return [Disagreement(kind, "status", _summary(real), _summary(embedded))]


def _without_token(pod: Json) -> Json:
    """The pod without the volume of its service account's token: none is mounted here, as nothing runs in the pods."""
    spec = dict(pod["spec"])
    spec["volumes"] = [v for v in spec.get("volumes") or () if not v.get("name", "").startswith(_TOKEN)]
    for part in ("containers", "initContainers"):
        spec[part] = [
            {**c, "volumeMounts": [m for m in c.get("volumeMounts") or () if not m["name"].startswith(_TOKEN)]}
            for c in spec.get(part) or ()
        ]
    return {**pod, "spec": spec}


def _summary(answer: Answer) -> str:
    return f"{answer[0]} {answer[1].get('message', '')}".strip()


def _causes(body: Json) -> set[tuple[str, str]]:
    causes = (body.get("details") or {}).get("causes") or () if body.get("kind") == "Status" else ()
    return {(cause.get("field", ""), cause.get("reason", "")) for cause in causes}


def _meaningful(value: Any) -> Any:
    """The value without Go's zero values, which are written or left out by how a field is declared."""
    if isinstance(value, dict):
        kept = {name: _meaningful(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in ({}, [], "", 0, None) or inner is True}
    return [_meaningful(item) for item in value] if isinstance(value, list) else value

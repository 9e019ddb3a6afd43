"""What every Kubernetes object has: metadata, owner references, conditions; and how a field is described in a CRD.

Structs are frozen and hold only what we read or write; a field we don't know survives in the cluster because we patch
objects and never replace them whole.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NewType, dataclass_transform

import msgspec

EventReason = NewType("EventReason", str)
"""A reason that an event may have, where it isn't written at the event itself; the reference of events finds it."""

Rule = tuple[str, str]
"""A CEL expression and the message when it doesn't hold."""

LABEL_KEY = {
    "maxLength": 316,
    "pattern": (
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
        r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
    ),
}
LABEL_VALUE = {"maxLength": 63, "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"


def describe(
    text: str,
    *,
    required: bool = False,
    default: bool = False,
    internal: bool = False,
    each: dict[str, Any] | None = None,
    rules: tuple[Rule, ...] = (),
    **schema: object,
) -> msgspec.Meta:
    """A field's description and rules; keywords beyond those named are OpenAPI's own (``maxItems=100``).

    ``required``: the API server refuses objects without it. ``default``: the API server fills in the struct's default.
    ``internal``: not part of the API. ``each``: the schema of a list's items or a map's values. ``rules``: CEL.
    """
    extra = {"required": required, "default": default, "internal": internal, "each": each or {}, "rules": rules}
    return msgspec.Meta(description=text, extra_json_schema=dict(schema), extra=extra)


RawQuantities = dict[str, str | int | float]
"""Resource name to quantity as it stands in JSON: ``{"cpu": "500m", "memory": "1Gi", "pods": 10}``."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of every kind: immutable, camelCase in JSON, silent about defaults."""


class OwnerReference(Struct):
    """Who an object belongs to; Kubernetes deletes it with its owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct):
    """The metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class Condition(Struct, omit_defaults=False):
    """One observed truth about an object; ``status`` is "True", "False" or "Unknown".

    Written whole: Karpenter's own definitions require fields that ours fill in.
    """

    type: Annotated[str, describe("What is observed, in CamelCase.", maxLength=316)]
    status: Annotated[str, describe("Whether it holds.", enum=("True", "False", "Unknown"))] = "Unknown"
    reason: Annotated[str, describe("Why, as one word in CamelCase.", maxLength=1024)] = ""
    message: Annotated[str, describe("Why, in a sentence.", maxLength=32768)] = ""
    last_transition_time: Annotated[datetime | None, describe("When the status last changed.")] = None
    observed_generation: Annotated[int, describe("The generation that was observed.", minimum=0)] = 0


class ObjectRef(Struct):
    """Names one object of any kind: for events, owner references and messages to people."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """Kind and name as kubectl writes them: ``Pod default/web-1``."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class LabelSelectorRequirement(Struct):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Struct):
    """Selects objects by labels; empty selects all, absent selects none."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


def condition(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: list[Condition], type_: str) -> bool:
    """Whether the condition is present and "True"."""
    found = condition(conditions, type_)
    return found is not None and found.status == "True"


def with_condition(
    conditions: list[Condition],
    type_: str,
    *,
    status: bool | None,
    reason: str,
    now: datetime,
    message: str = "",
    generation: int = 0,
) -> list[Condition]:
    """The conditions with one set; ``status`` None means Unknown.

    ``lastTransitionTime`` moves only when the status changes, as the API conventions ask: equal calls give equal lists,
    and a caller can skip the write.
    """
    text = "Unknown" if status is None else str(status)
    before = condition(conditions, type_)
    since = before.last_transition_time if before is not None and before.status == text else now
    after = Condition(
        type=type_,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if before is None:
        return [*conditions, after]
    return [after if c.type == type_ else c for c in conditions]


def to_json(value: Any) -> Any:  # noqa: ANN401 (any struct in, plain JSON out)
    """Plain JSON values (dicts, lists, strings, numbers) of a struct, times as RFC 3339 with a Z."""
    return msgspec.to_builtins(value, str_keys=True)

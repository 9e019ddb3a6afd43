"""What every Kubernetes object has: metadata, owner references, conditions; and the description of CRD fields.

Structs are frozen and have only the fields that are read or written. Other fields are kept in the cluster, because
objects are patched and never replaced.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NewType, TypeVar, dataclass_transform

import msgspec

from shared.base.hints import decode_json
from shared.base.struct import WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.json_types import Json

T = TypeVar("T")
EventReason = NewType("EventReason", str)
"""Marks the reason of an event that isn't a literal where the event is recorded, for the events reference."""

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
class ApiStruct(WireStruct, kw_only=True, rename="camel", omit_defaults=True):
    """The base of every kind: immutable, camelCase in JSON, without defaults."""


class OwnerReference(ApiStruct):
    """The owner of an object; Kubernetes deletes the object with its owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiStruct):
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


class NamedObject(ApiStruct):
    """Base of the kinds with metadata whose objects are known by name."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.metadata.name


class Condition(ApiStruct, omit_defaults=False):
    """A condition of an object; ``status`` is "True", "False" or "Unknown".

    Always written with all fields: Karpenter's own CRDs require fields that have defaults here.
    """

    type: Annotated[str, describe("The type of the condition, in CamelCase.", maxLength=316)]
    status: Annotated[str, describe("The status of the condition.", enum=("True", "False", "Unknown"))] = "Unknown"
    reason: Annotated[str, describe("The reason of the last transition, in CamelCase.", maxLength=1024)] = ""
    message: Annotated[str, describe("The details of the last transition.", maxLength=32768)] = ""
    last_transition_time: Annotated[datetime | None, describe("The time of the last status change.")] = None
    observed_generation: Annotated[int, describe("The observed generation.", minimum=0)] = 0


class ObjectRef(ApiStruct):
    """A reference to an object of any kind: for events, owner references and messages."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """Kind and name: ``Pod default/web-1``."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def annotated(metadata: ObjectMeta, annotations: Mapping[str, str | None]) -> ObjectMeta:
    """The metadata with these annotations; None removes one."""
    after = {**metadata.annotations, **annotations}
    return with_fields(metadata, annotations={name: text for name, text in after.items() if text is not None})


def timestamp(time: datetime) -> str:
    """A time as objects have it: RFC 3339, in UTC, in whole seconds.

    >>> timestamp(datetime(2026, 11, 26, 12, 0, 0, 999, tzinfo=UTC))
    '2026-11-26T12:00:00Z'
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


EARLIEST = datetime(1000, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Times beyond these count as these: at the calendar's ends, a minute more or another zone is an OverflowError."""
_LONGEST = timedelta(days=100_000)


def parse_timestamp(text: str) -> datetime | None:
    """The time of an annotation, in UTC; None for text that is no time, or has no time zone.

    It is at least :data:`EARLIEST` and at most :data:`LATEST`.

    >>> parse_timestamp("2026-11-26T13:00:00+01:00"), parse_timestamp("2026-11-26T13:00:00"), parse_timestamp("")
    (datetime.datetime(2026, 11, 26, 12, 0, tzinfo=datetime.timezone.utc), None, None)
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return min(max(time, EARLIEST), LATEST).astimezone(UTC) if time.tzinfo is not None else None


def decode_annotation(text: str, kind: type[T]) -> T:
    """The record in an annotation, which anybody who may change the object may have written.

    Raises:
        msgspec.DecodeError: it isn't one, has a time without a zone, or before :data:`EARLIEST` or after
            :data:`LATEST`, or a duration of centuries.
    """
    record = decode_json(text, kind)
    for time in _times(record):
        if isinstance(time, timedelta):
            plausible = abs(time) <= _LONGEST
        else:
            plausible = time.tzinfo is not None and EARLIEST <= time <= LATEST
        if not plausible:
            raise msgspec.DecodeError(f"{time} is no time of a record")
    return record


def _times(value: object) -> Iterator[datetime | timedelta]:
    if isinstance(value, datetime | timedelta):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _times(getattr(value, field))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _times(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _times(inner)


def namespaced_key(metadata: ObjectMeta) -> str:
    """``namespace/name``."""
    return f"{metadata.namespace or 'default'}/{metadata.name}"


def namespaced_ref(api_version: str, kind: str, metadata: ObjectMeta) -> ObjectRef:
    """The reference to a namespaced object, for events and messages."""
    return ObjectRef(
        api_version=api_version, kind=kind, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid
    )


class LabelSelectorRequirement(ApiStruct):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(ApiStruct):
    """Selects objects by labels; empty selects all, absent selects none."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


def condition(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: list[Condition], type_: str) -> bool:
    """Whether the condition is present and "True"."""
    current = condition(conditions, type_)
    return current is not None and current.status == "True"


def with_condition(
    conditions: list[Condition],
    type_: str,
    *,
    status: bool | None,
    reason: str,
    now: datetime,
    generation: int,
    message: str = "",
) -> list[Condition]:
    """The conditions with one set; ``status`` None means Unknown.

    ``generation`` is the one of the object that the condition was evaluated on: kubectl wait and the checks of
    docs/gitops.md ignore a condition of an older generation. Conditions without one get it too.
    ``lastTransitionTime`` changes only with the status, as the API conventions require: repeated calls give equal
    lists, so a caller can skip the write.
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
    dated = [c if c.observed_generation else with_fields(c, observed_generation=generation) for c in conditions]
    if before is None:
        return [*dated, after]
    return [after if c.type == type_ else c for c in dated]


def with_same_condition(conditions: list[Condition], type_: str, *, generation: int) -> list[Condition]:
    """The conditions with one evaluated again, with the same outcome."""
    return [with_fields(c, observed_generation=generation) if c.type == type_ else c for c in conditions]


def to_json(value: Json) -> Json:
    """Plain JSON values (dicts, lists, strings, numbers) of a struct, times as RFC 3339 with a Z."""
    return msgspec.to_builtins(value, str_keys=True)

"""Compares an answer of the embedded API server with the real one's: status, reason, and the body field by field.

What each server makes for itself can't agree and is left out: uids, versions, times, owners of fields, random names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Change, Obj
    from local.real.recording import Exchange, RecordedWatch, Revision

SERVER_MADE = frozenset(("uid", "resourceVersion", "managedFields", "continue", "remainingItemCount"))
"""Fields of metadata and of an error's details that can't agree."""
NOT_KEPT = frozenset(("deprecated.daemonset.template.generation",))
"""Annotations of which a real server makes something for old clients."""
ABSENT = "absent"
_STORAGE_ERROR = re.compile(r"StorageError: invalid object, .*, AdditionalErrorMsg: ")
"""What a real server says of etcd before a failed precondition."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ERRORS = range(400, 600)
_SUCCESS = range(200, 300)
_CAUSED_BY_REQUEST = frozenset((400, 415, 422, 500))
_GENERATED = re.compile(r"\bg-([bcdfghjklmnpqrstvwxz2456789]{5})?(?![\w-])")
"""A name that was generated from the prefix of random requests, or the prefix itself where it was too early for it."""


@dataclass(frozen=True)
class Difference:
    """One field in which the answers differ. ``real`` and ``embedded`` are its values, or :data:`ABSENT`."""

    exchange: Exchange
    field: str
    real: Any
    embedded: Any

    def __str__(self) -> str:
        return f"{self.exchange}: {self.field} is {_shown(self.real)}, embedded {_shown(self.embedded)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"


def is_success(exchange: Exchange) -> bool:
    """Whether the real server carried the request out."""
    return exchange.status in _SUCCESS


def answer_differences(exchange: Exchange, status: int, body: Any) -> list[Difference]:
    """The differences between the recorded answer and this one."""
    if status != exchange.status:
        real = f"{exchange.status} {exchange.response.get('message', '')}".strip()
        message = body.get("message", "") if status in _ERRORS else ""
        return [Difference(exchange, "status", real, f"{status} {message}".strip())]
    if not exchange.response:
        return []
    if status in _ERRORS:
        return _error_differences(exchange, body)
    real, embedded = normalized(exchange.response), normalized(body)
    return [Difference(exchange, *fields) for fields in differing_fields(real, embedded)]


def _error_differences(exchange: Exchange, body: Any) -> list[Difference]:
    """The differences between two errors: their reason, what they are about, and the fields that they name.

    Texts are compared where the state of the cluster is their cause. Where it is the request, they quote Go's types.
    """
    real, embedded = _error(exchange.response), _error(body)
    if exchange.status in _CAUSED_BY_REQUEST:
        real.pop("message", None)
        embedded.pop("message", None)
    return [Difference(exchange, *fields) for fields in differing_fields(real, embedded)]


def _error(status: Obj) -> Obj:
    error: Obj = normalized(status)
    error["message"] = _STORAGE_ERROR.sub("", error.get("message", ""))
    details = error.get("details") or {}
    error["details"] = {name: value for name, value in details.items() if name != "causes"}
    error["causes"] = sorted(
        {f"{cause.get('field', '')}: {cause.get('reason', '')}" for cause in details.get("causes") or ()}
    )
    return error


def effect_differences(
    exchange: Exchange, written: Revision, before: Obj | None, changes: list[Change]
) -> list[Difference]:
    """The differences between what the request made of its object, whose state was ``before``, and the revision."""
    name = written.object["metadata"]["name"]
    own = [change for change in changes if change.object["metadata"]["name"] == name or written.type == "ADDED"]
    real = normalized(written.object)
    if not own:
        # A real server writes new owners of fields, even if the fields are as they were.
        is_same = before is not None and written.type == "MODIFIED" and normalized(before) == real
        return [] if is_same else [Difference(exchange, "effect", written.type, ABSENT)]
    if own[-1].type != written.type:
        return [Difference(exchange, "effect", written.type, own[-1].type)]
    if exchange.response.get("kind") not in {"Status", "Scale"}:
        return []
    embedded = normalized(own[-1].object)
    return [Difference(exchange, f"stored.{path}", a, b) for path, a, b in differing_fields(real, embedded)]


def watch_differences(watch: RecordedWatch, events: list[tuple[str, Obj]]) -> list[str]:
    """The differences between the events of a recorded watch and these."""
    differences: list[str] = []
    nothing: tuple[str, Obj] = (ABSENT, {})
    for index, (real, embedded) in enumerate(zip_longest(watch.events, events, fillvalue=nothing)):
        if real[0] != embedded[0]:
            return [*differences, f"{watch}: event {index} is {_named(*real)}, embedded {_named(*embedded)}"]
        for path, a, b in differing_fields(normalized(real[1]), normalized(embedded[1])):
            differences.append(f"{watch}: event {index}, {path} is {_shown(a)}, embedded {_shown(b)}")
    return differences


def _named(type_: str, obj: Obj) -> str:
    return f"{type_} {obj.get('metadata', {}).get('name', obj.get('message', ''))}"


def normalized(value: Any) -> Any:
    """The value without what a server makes for itself; a time or a uid is only known to be there."""
    if isinstance(value, list):
        return [normalized(item) for item in value]
    if isinstance(value, str):
        return _GENERATED.sub("g-<random>", _UID.sub("<uid>", _TIME.sub("<time>", value)))
    if not isinstance(value, dict):
        return value
    kept = {name: normalized(inner) for name, inner in value.items() if inner is not None}
    if str(kept.get("kind", "")).endswith("List"):
        kept.setdefault("items", [])
    for part in ("metadata", "details"):
        if isinstance(kept.get(part), dict):
            kept[part] = _without_server_made(kept[part])
    return kept


def _without_server_made(part: Obj) -> Obj:
    part = {name: value for name, value in part.items() if name not in SERVER_MADE}
    if "annotations" in part:
        annotations = {name: value for name, value in part.pop("annotations").items() if name not in NOT_KEPT}
        part |= {"annotations": annotations} if annotations else {}
    prefix = part.get("generateName")
    if prefix and str(part.get("name", "")).startswith(prefix):
        part["name"] = f"{prefix}<random>"
    return part


def differing_fields(real: Any, embedded: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each path at which the values differ, with both values."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        for name in sorted(real.keys() | embedded.keys()):
            inner = f"{path}.{name}" if path else str(name)
            yield from differing_fields(real.get(name, ABSENT), embedded.get(name, ABSENT), inner)
    elif isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        for one_real, one_embedded in zip(real, embedded, strict=True):
            yield from differing_fields(one_real, one_embedded, f"{path}[]")
    elif real != embedded or type(real) is not type(embedded):
        yield path, real, embedded

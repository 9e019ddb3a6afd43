"""What the API server itself writes into an object's metadata, and what it refuses there.

Clients can't set uids, versions or deletion times; names and labels have a grammar. Rules: apimachinery
``validation.ValidateObjectMeta`` and ``rest.BeforeCreate`` / ``BeforeUpdate``.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors
from local.kubernetes.errors import Cause

if TYPE_CHECKING:
    import random

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RBAC_NAME = re.compile(r"[^/%]+")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_NAME = 253

_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character, of at most 63 characters"
)


def timestamp(time: datetime) -> str:
    """The time as ``metav1.Time`` writes it: RFC 3339 in UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """The time of a timestamp of the API (RFC 3339, UTC)."""
    return datetime.fromisoformat(text)


def generated_name(prefix: str, rng: random.Random) -> str:
    """The prefix and five characters that can't spell a word."""
    longest = 63 - _SUFFIX
    return prefix[:longest] + "".join(rng.choices(_ALPHABET, k=_SUFFIX))


def without_nulls(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """The value without fields that are null, which a typed server never sees."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def cleaned(metadata: Obj) -> Obj:
    """Metadata without empty maps and lists, which a real server leaves out of what it answers."""
    return {
        name: value
        for name, value in metadata.items()
        if value
        or name not in {"labels", "annotations", "finalizers", "ownerReferences", "generateName", "managedFields"}
    }


def restore_system_fields(new: Obj, old: Obj) -> None:
    """Put back what no client may change: a write keeps the uid, the creation and deletion times and the generation."""
    metadata, before = new["metadata"], old["metadata"]
    for name in _SYSTEM:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def moves_generation(kind: Kind, new: Obj, old: Obj) -> bool:
    """Whether anything but metadata and (where it is apart) status differs."""
    aside = {"metadata", "status"} if kind.has_status or not kind.custom else {"metadata"}
    return {k: v for k, v in new.items() if k not in aside} != {k: v for k, v in old.items() if k not in aside}


def check_shape(obj: Any) -> None:  # noqa: ANN401 (whatever JSON a client sent)
    """Refuse what would not decode into any kind.

    Raises:
        ApiError: 400, it is no object, or its metadata has values of wrong types.
    """
    metadata = obj.get("metadata") if isinstance(obj, dict) else ()
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise errors.bad_request("the object provided is unrecognized (must be an object with metadata)")
    for name in ("labels", "annotations"):
        for key, value in (metadata.get(name) or {}).items():
            if not isinstance(value, str):
                raise errors.bad_request(
                    f"json: cannot unmarshal {_go_type(value)} into Go struct field ObjectMeta.metadata.{name} "
                    f"of type string (key {key})"
                )
    for name in ("finalizers", "ownerReferences"):
        if not isinstance(metadata.get(name) or [], list):
            raise errors.bad_request(f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{name}")


def _go_type(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    if isinstance(value, bool):
        return "bool"
    return {int: "number", float: "number", dict: "object", list: "array"}.get(type(value), "null")


def faults(kind: Kind, metadata: Obj) -> list[Cause]:
    """What is wrong with names, labels, annotations, finalizers and owners."""
    found: list[Cause] = []
    name = metadata.get("name", "")
    rule = _RBAC_NAME if kind.group == "rbac.authorization.k8s.io" else _NAME
    if not rule.fullmatch(name) or len(name) > _LONGEST_NAME:
        found.append(Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}'))
    for key, value in (metadata.get("labels") or {}).items():
        if not _QUALIFIED.fullmatch(key):
            text = f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
            found.append(Cause("metadata.labels", "FieldValueInvalid", text))
        if not _LABEL_VALUE.fullmatch(value):
            found.append(Cause("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {_LABEL_RULE}'))
    for owner in metadata.get("ownerReferences") or []:
        for required in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(required):
                text = f'Invalid value: "": {required} must not be empty'
                found.append(Cause(f"metadata.ownerReferences.{required}", "FieldValueInvalid", text))
    return found

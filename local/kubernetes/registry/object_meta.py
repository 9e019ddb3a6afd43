"""ObjectMeta: the fields that the API server sets, and the validation of the others.

Clients can't set uids, versions or deletion times; names and labels have a syntax. Rules: apimachinery
``validation.ValidateObjectMeta`` and ``rest.BeforeCreate`` / ``BeforeUpdate``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors
from local.kubernetes.errors import Cause

if TYPE_CHECKING:
    import random

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj

_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RBAC_NAME = re.compile(r"[^/%]+")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MAX_NAME_LENGTH = 253

_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character, of at most 63 characters"
)


def generated_name(prefix: str, rng: random.Random) -> str:
    """The prefix and five random characters of Kubernetes' alphabet, which has no vowels."""
    return prefix[: 63 - _SUFFIX_LENGTH] + "".join(rng.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def without_nulls(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """The value without null fields, which typed kinds drop when they are decoded."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def without_empty_fields(metadata: Obj) -> Obj:
    """Metadata without empty maps and lists, which a real server omits."""
    return {
        name: value
        for name, value in metadata.items()
        if value
        or name not in {"labels", "annotations", "finalizers", "ownerReferences", "generateName", "managedFields"}
    }


def restore_system_fields(new: Obj, old: Obj) -> None:
    """Restore the fields that clients can't change, such as uid, timestamps and generation, in place."""
    metadata, before = new["metadata"], old["metadata"]
    for name in _SYSTEM_FIELDS:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def changes_generation(kind: Kind, new: Obj, old: Obj) -> bool:
    """Whether anything but metadata and status differs; status counts for a custom kind without that subresource."""
    ignored = {"metadata", "status"} if kind.has_status or not kind.custom else {"metadata"}
    return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}


def check_types(obj: Any) -> None:  # noqa: ANN401 (whatever JSON a client sent)
    """Refuse values that could not be decoded into any kind.

    Raises:
        ApiError: 400, it is not an object, or its metadata has values of wrong types.
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


def validate(kind: Kind, metadata: Obj) -> list[Cause]:
    """The errors of the name, the labels and the owner references."""
    causes: list[Cause] = []
    name = metadata.get("name", "")
    pattern = _RBAC_NAME if kind.group == "rbac.authorization.k8s.io" else _NAME
    if not pattern.fullmatch(name) or len(name) > _MAX_NAME_LENGTH:
        causes.append(Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}'))
    for key, value in (metadata.get("labels") or {}).items():
        if not _QUALIFIED.fullmatch(key):
            text = f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"
            causes.append(Cause("metadata.labels", "FieldValueInvalid", text))
        if not _LABEL_VALUE.fullmatch(value):
            causes.append(Cause("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {_LABEL_RULE}'))
    for owner in metadata.get("ownerReferences") or []:
        for required in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(required):
                text = f'Invalid value: "": {required} must not be empty'
                causes.append(Cause(f"metadata.ownerReferences.{required}", "FieldValueInvalid", text))
    return causes

"""ObjectMeta: the fields that the API server sets, and the validation of the others.

Clients can't set uids, versions or deletion times; names and labels have a syntax. Rules: apimachinery
``validation.ValidateObjectMeta`` and ``rest.BeforeCreate`` / ``BeforeUpdate``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local.kubernetes import errors
from local.kubernetes.errors import Cause
from local.kubernetes.registry import field_rules as rules

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_OMITTED_IF_EMPTY = frozenset((
    "labels", "annotations", "finalizers", "ownerReferences", "generateName", "managedFields",
))  # fmt: skip
_FIELDS = frozenset((*_SYSTEM_FIELDS, *_OMITTED_IF_EMPTY, "name", "namespace", "resourceVersion"))
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_RBAC_NAME = re.compile(r"[^/%]+")
_NAMED_BY_LABELS = frozenset(("statefulsets.apps",))
"""Kinds whose names are DNS labels; most others' are subdomains."""
_MAX_NAME_LENGTH = 253
_GROUPS_WITH_ANY_NAME = frozenset(("rbac.authorization.k8s.io", "policy"))
_UNQUALIFIED_FINALIZERS = frozenset((
    "poddisruptionbudgets.policy", "leases.coordination.k8s.io", "runtimeclasses.node.k8s.io",
))  # fmt: skip
"""Built-in kinds whose validation leaves the metadata to the generic one."""
_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))

_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def generated_name(prefix: str, rng: random.Random) -> str:
    """The prefix and five random characters of Kubernetes' alphabet, which has no vowels."""
    return prefix[: 63 - _SUFFIX_LENGTH] + "".join(rng.choices(_ALPHABET, k=_SUFFIX_LENGTH))


def without_nulls(value: Json) -> Json:
    """The value without null fields, which typed kinds drop when they are decoded."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def without_empty_fields(metadata: Obj) -> Obj:
    """Metadata without unknown fields, and without empty maps and lists, which a real server omits."""
    return {
        name: value for name, value in metadata.items() if name in _FIELDS and (value or name not in _OMITTED_IF_EMPTY)
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
    """Whether anything but metadata and status differs; status counts for a custom kind without that subresource.

    The annotations of a Deployment count, too.
    """
    if kind.resource == "deployments.apps":
        annotations, before = (obj["metadata"].get("annotations") or {} for obj in (new, old))
        if annotations != before:
            return True
    ignored = {"metadata", "status"} if kind.has_status or not kind.custom else {"metadata"}
    return {k: v for k, v in new.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}


def check_is_object(obj: Json) -> None:
    """Refuse what can't be decoded into any kind.

    Raises:
        ApiError: 400, it is not an object, or its metadata is none.
    """
    metadata = obj.get("metadata") if isinstance(obj, dict) else ()
    if metadata is not None and not isinstance(metadata, dict):
        raise errors.bad_request("the object provided is unrecognized (must be an object with metadata)")


def validate(kind: Kind, metadata: Obj, before: Obj | None) -> list[Cause]:
    """The errors of the metadata; ``before`` is that of the object's old state, None for a new object."""
    causes: list[Cause] = list(_finalizer_errors(kind, metadata, before))
    name = metadata.get("name", "")
    if not name:
        causes.append(rules.required("metadata.name", "name or generateName is required"))
    elif not _is_name(kind, name):
        causes.append(Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}'))
    causes.extend(rules.labels("metadata.labels", metadata.get("labels")))
    for key in metadata.get("annotations") or {}:
        causes.extend(rules.qualified_name("metadata.annotations", key.lower()))
    owners = metadata.get("ownerReferences") or []
    if sum(owner.get("controller") is True for owner in owners) > 1:
        text = "Only one reference can have Controller set to true"
        causes.append(Cause("metadata.ownerReferences", "FieldValueInvalid", f"Invalid value: {owners}: {text}"))
    for owner in owners:
        for required in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(required):
                subject = {"apiVersion": "version "}.get(required, "")
                text = f'Invalid value: "": {subject}must not be empty'
                causes.append(Cause(f"metadata.ownerReferences.{required}", "FieldValueInvalid", text))
    return causes


def _is_name(kind: Kind, name: str) -> bool:
    if kind.group in _GROUPS_WITH_ANY_NAME:
        return len(name) <= _MAX_NAME_LENGTH and _RBAC_NAME.fullmatch(name) is not None
    return rules.is_dns_label(name) if kind.resource in _NAMED_BY_LABELS else rules.is_subdomain(name)


def _finalizer_errors(kind: Kind, metadata: Obj, before: Obj | None) -> Iterator[Cause]:
    finalizers: list[str] = metadata.get("finalizers") or []
    is_strict = not kind.custom and kind.resource not in _UNQUALIFIED_FINALIZERS
    for index, name in enumerate(finalizers):
        if not rules.is_qualified_name(name):
            yield Cause("metadata.finalizers", "FieldValueInvalid", f'Invalid value: "{name}": is no qualified name')
        if is_strict and "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            path = f"metadata.finalizers[{index}]"
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "{name}": {text}')
    if before is not None and "deletionTimestamp" in before:
        added = [name for name in finalizers if name not in (before.get("finalizers") or [])]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            text = (
                "Forbidden: no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            yield Cause("metadata.finalizers", "FieldValueForbidden", text)

"""Creating, replacing, patching and deleting objects under kube-apiserver's rules, as ``rest.StandardStorage`` does.

Versions, conflicts, finalizers, graceful deletion, defaults and validation are here. What follows for other objects,
such as dependents and budgets, is left to the store.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from local.kubernetes import errors, kinds
from local.kubernetes.objects import timestamp
from local.kubernetes.registry import (
    admission,
    admission_webhooks,
    deletion,
    object_meta,
    patches,
    published_types,
    scale,
    server_side_apply,
    typed_configuration,
    validation,
)
from local.kubernetes.registry.object_storage import ObjectStorage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Key, Obj
    from local.kubernetes.registry.deletion import Deletion, Propagation
    from shared.api.json_types import Json

PatchType = Literal["merge", "json", "strategic", "apply"]
_VERSION_REQUIRED = frozenset(("leases.coordination.k8s.io", "poddisruptionbudgets.policy"))


def to_json(value: Json) -> Json:
    """A deep copy as JSON: structs become maps, times RFC 3339 texts."""
    return msgspec.to_builtins(value, str_keys=True)


class StandardStorage(ObjectStorage, ABC):
    """A cluster's objects under the rules for changing each of them."""

    def __init__(self, now: Callable[[], datetime], history: int, rng: random.Random) -> None:
        """``history`` is the number of changes that are kept for each resource; ``rng`` generates uids and names."""
        super().__init__(now, history)
        self._rng = rng
        self.webhooks = admission_webhooks.AdmissionWebhooks(self)

    def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create the object in the namespace, by default its own. Returns it as stored.

        Raises:
            ApiError: 400, 403, 404 (no such namespace), 409 (it exists), 422.
        """
        new = to_json(obj)
        object_meta.check_is_object(new)
        with self.lock:
            served = self._served(kind)
            new = published_types.decode(served, new)
            meta = new["metadata"] = dict(new.get("metadata") or {})
            self._namespace_for(served, meta, namespace)
            if not meta.get("name") and meta.get("generateName"):
                meta["name"] = object_meta.generated_name(meta["generateName"], self._rng)
            if meta.get("resourceVersion"):
                raise errors.bad_request("resourceVersion should not be set on objects to be created")
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
                meta.pop(name, None)
            meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            meta["creationTimestamp"] = timestamp(self.now())
            if served.tracks_generation:
                meta["generation"] = 1
            meta.setdefault("name", "")
            new["metadata"] = object_meta.without_empty_fields(meta)
            new = {"apiVersion": served.api_version, "kind": served.kind, **_without_type_meta(new)}
            admission.on_create(served, new, self)
            self._check_valid(served, new, validation.validate(served, new, None, self.definition(served)))
            admission.after_validation(served, new)
            called = self.webhooks.of_new(served, new)
            if not called:
                return self._add(served, new, dry_run=dry_run)
        # Without the lock: others continue while a webhook is waited for.
        self.webhooks.admit(called, served, new, dry_run=dry_run)
        with self.lock:
            return self._add(served, new, dry_run=dry_run)

    def _add(self, kind: Kind, new: Obj, *, dry_run: bool) -> Obj:
        """Store the new object unless its name is taken."""
        meta = new["metadata"]
        present = self._cache(kind).get((meta.get("namespace", ""), meta["name"]))
        if present is not None:
            raise errors.already_exists(kind, meta["name"], deleting="deletionTimestamp" in present["metadata"])
        return new if dry_run else self._write(kind, "ADDED", new, None)

    def replace(self, kind: Kind, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> Obj:
        """Replace the object of that name; ``subresource`` is "", "status" or "scale".

        Raises:
            ApiError: 404, 409 (another resourceVersion or uid), 422.
        """
        new = to_json(obj)
        object_meta.check_is_object(new)
        with self.lock:
            served = self._served(kind)
            meta = new["metadata"] = dict(new.get("metadata") or {})
            old = self._existing(served, (self._namespace_for(served, meta, "", check=False), meta.get("name", "")))
            if subresource == "scale":
                new = self._scaled(served, old, new)
            elif not meta.get("resourceVersion"):
                if served.custom or served.resource in _VERSION_REQUIRED:
                    raise errors.version_required(served, meta["name"])
                meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            return self._update(served, old, new, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: PatchType = "merge",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Patch the object. ``field_manager`` and ``force`` are for "apply", which creates objects that do not exist.

        Raises:
            ApiError: 400, 404, 409 (an old resourceVersion; fields of another manager), 415, 422.
        """
        change = to_json(patch)
        with self.lock:
            served = self._served(kind)
            if patch_type == "apply":
                return self._apply(
                    served,
                    (namespace, name),
                    change,
                    subresource=subresource,
                    field_manager=field_manager,
                    force=force,
                    dry_run=dry_run,
                )
            old = self._existing(served, (namespace, name))
            before = scale.scale_of(served, old, self.definition(served)) if subresource == "scale" else old
            after = _patched(served, before, change, patch_type)
            after = to_json(after)
            object_meta.check_is_object(after)
            if subresource == "scale":
                after = self._scaled(served, old, after)
            return self._update(served, old, after, subresource=subresource, dry_run=dry_run)

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        grace_period_seconds: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> Obj | None:
        """Delete the object. Returns it if it lingers (finalizers, a bound pod's grace period), None if it was removed.

        Raises:
            ApiError: 404, 409 (a precondition fails).
        """
        with self.lock:
            deleted = self.begin_deletion(
                kind,
                name,
                namespace=namespace,
                grace_period_seconds=grace_period_seconds,
                preconditions=preconditions,
                propagation=propagation,
                dry_run=dry_run,
            )
            return deleted.object if dry_run else self._cache(kind).get((namespace, name))

    def begin_deletion(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        grace_period_seconds: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """Delete the object. Returns what the request itself made of it, before what follows from it.

        Raises:
            ApiError: 404, 409 (a precondition fails).
        """
        with self.lock:
            served = self._served(kind)
            old = self._existing(served, (namespace, name))
            deletion.check_preconditions(served, old, preconditions)
            admission.on_delete(served, old)
            begun = deletion.deletion(
                served, old, grace_period=grace_period_seconds, propagation=propagation, now=self.now()
            )
            if dry_run:
                return begun
            marked = old if begun.object == old else self._write(served, "MODIFIED", begun.object, old)
            if begun.removed:
                return deletion.Deletion(self._remove(served, marked, marked), removed=True)
            if marked is not old:
                self._after_deletion_began(served, marked)
            return deletion.Deletion(marked, removed=False)

    def write(self, kind: Kind, new: Obj, old: Obj) -> Obj:
        """Replace the object without applying any rule: for the control plane."""
        with self.lock:
            return old if new == old else self._write(kind, "MODIFIED", new, old)

    def remove(self, kind: Kind, last: Obj) -> None:
        """Remove the object regardless of finalizers, and collect its dependents."""
        with self.lock:
            self._remove(kind, last, last)

    def scale_of(self, kind: Kind, obj: Obj) -> Obj:
        """The object's Scale.

        Raises:
            ApiError: 404, the kind has no such subresource; 500, a custom object has no replicas.
        """
        scale.check_replicas(kind, obj, self.definition(kind))
        return scale.scale_of(kind, obj, self.definition(kind))

    def _namespace_for(self, kind: Kind, meta: Obj, requested: str, *, check: bool = True) -> str:
        """The namespace of an object, which is also written into its metadata."""
        if not kind.namespaced:
            meta.pop("namespace", None)
            return ""
        own = meta.get("namespace") or ""
        if requested and own and requested != own:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        namespace: str = requested or own or "default"
        meta["namespace"] = namespace
        if check:
            obj = self._existing(kinds.NAMESPACES, ("", namespace))
            if "deletionTimestamp" in obj["metadata"]:
                raise errors.namespace_terminating(kind, meta.get("name", ""), namespace)
        return namespace

    def _scaled(self, kind: Kind, old: Obj, scale_obj: Obj) -> Obj:
        return scale.with_scale(kind, old, scale_obj, self.definition(kind))

    def _update(self, kind: Kind, old: Obj, new: Obj, *, subresource: str, dry_run: bool) -> Obj:
        new = published_types.decode(kind, new, old)
        meta, before = dict(new.get("metadata") or {}), old["metadata"]
        new = {**new, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        name = before["name"]
        if meta.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        if meta.get("uid", before["uid"]) not in {before["uid"], ""}:
            raise errors.precondition_failed(kind, name, "UID", meta["uid"], before["uid"])
        if meta.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise errors.modified(kind, name)
        meta.update(name=name, resourceVersion=before["resourceVersion"])
        if kind.namespaced:
            meta["namespace"] = before["namespace"]
        object_meta.restore_system_fields(new, old)
        new = admission.prepare_for_update(kind, new, old, subresource)
        new["metadata"] = object_meta.without_empty_fields(new["metadata"])
        admission.on_update(kind, new, old, self, subresource)
        definition = self.definition(kind)
        self._check_valid(kind, new, validation.validate(kind, new, old, definition, subresource=subresource))
        if subresource != "status" and kind.tracks_generation and object_meta.changes_generation(kind, new, old):
            new["metadata"]["generation"] = before.get("generation", 0) + 1
        if new == self._in_version(kind, old):
            return new
        if dry_run:
            return new
        if _can_be_removed(new):
            return self._remove(kind, new, old)
        return self._write(kind, "MODIFIED", new, old)

    def _apply(
        self, kind: Kind, key: Key, config: Obj, *, subresource: str, field_manager: str, force: bool, dry_run: bool
    ) -> Obj:
        namespace, name = key
        object_meta.check_is_object(config)
        meta = config["metadata"] = {**(config.get("metadata") or {}), "name": name}
        if namespace:
            meta["namespace"] = namespace
        old = self._cache(kind).get(key)
        if (definition := self.definition(kind)) is not None:
            typed_configuration.check(kind, definition.schema.raw, config)
        new = server_side_apply.apply(
            old,
            config,
            manager=field_manager,
            force=force,
            subresource=subresource,
            now=timestamp(self.now()),
            structure=server_side_apply.Structure(definition),
        )
        if old is None:
            if subresource:
                raise errors.not_found(kind, name)
            return self.create(kind, new, namespace=namespace, dry_run=dry_run)
        return self._update(kind, old, to_json(new), subresource=subresource, dry_run=dry_run)

    def _check_valid(self, kind: Kind, obj: Obj, causes: Sequence[errors.Cause]) -> None:
        if causes:
            raise errors.invalid(kind, obj["metadata"]["name"], causes)

    def _remove(self, kind: Kind, last: Obj, old: Obj) -> Obj:
        removed = self._write(kind, "DELETED", last, old)
        self._after_removal(kind, removed)
        return removed

    @abstractmethod
    def _after_deletion_began(self, kind: Kind, obj: Obj) -> None:
        """The immediate consequences of a deletion that waits."""

    @abstractmethod
    def _after_removal(self, kind: Kind, removed: Obj) -> None:
        """The immediate consequences of a removal."""


def _without_type_meta(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}


def _can_be_removed(obj: Obj) -> bool:
    """Whether the object is being deleted and nothing holds it."""
    meta = obj["metadata"]
    waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in meta and not waits and not (obj.get("spec") or {}).get("finalizers")


def _patched(kind: Kind, before: Obj, change: Json, patch_type: PatchType) -> Obj:
    match patch_type:
        case "json":
            after = patches.json_patch(before, change)
        case "strategic":
            if kind.custom:
                raise errors.unsupported_media_type(
                    "the body of the request was in an unknown format - accepted media types include: "
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                )
            after = patches.strategic(before, change)
        case _:
            if not isinstance(change, dict):
                raise errors.bad_request("error decoding patch: a merge patch is an object")
            after = patches.merge(before, change)
    patched: Obj = after
    return patched

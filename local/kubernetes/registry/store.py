"""The state of the embedded cluster and every rule of an apiserver about changing it, with no HTTP.

The local world's controllers and kubelets use the store directly; Tenon's functions and people come through the server.
Both get the same rules: versions, conflicts, finalizers, graceful deletion, defaults, validation, owners.
"""

from __future__ import annotations

import random
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from local.kubernetes import errors, kinds
from local.kubernetes.registry import (
    admission,
    garbage_collector,
    object_meta,
    patches,
    pod_strategy,
    scale,
    server_side_apply,
)
from local.kubernetes.registry.object_storage import FIRST_VERSION, Objects
from local.kubernetes.registry.pod_disruption_budgets import Budgets
from local.kubernetes.registry.watch_cache import HISTORY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Change, Key, Obj

PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

__all__ = ["FIRST_VERSION", "HISTORY_SIZE", "PatchType", "Propagation", "Store", "to_json"]

_FOREGROUND = "foregroundDeletion"
_UNCONDITIONAL_REFUSED = frozenset(("leases.coordination.k8s.io", "poddisruptionbudgets.policy"))


def to_json(value: Any) -> Any:  # noqa: ANN401 (JSON in, JSON out)
    """A deep copy as plain JSON: structs become dicts, times RFC 3339 text."""
    return msgspec.to_builtins(value, str_keys=True)


class Store(Objects):
    """A cluster's objects under an apiserver's rules. Every method may be called from any thread."""

    def __init__(
        self, *, now: Callable[[], datetime], rng: random.Random | None = None, history: int = HISTORY_SIZE
    ) -> None:
        """``rng`` makes uids and generated names; ``history`` is how many changes each resource remembers."""
        super().__init__(now, history)
        self._rng = rng or random.Random()  # noqa: S311 (names and uids of a simulated cluster, no secrets)
        self._budgets = Budgets(self)
        for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
            self.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.create(kinds.NAMESPACES, {"metadata": {"name": name}})

    def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create the object; its own namespace counts if none is given. Returns it as stored.

        Raises:
            ApiError: 400, 403, 404 (no such namespace), 409 (it exists), 422.
        """
        new = to_json(obj)
        object_meta.check_shape(new)
        with self.lock:
            served = self._served(kind)
            meta = new["metadata"] = dict(new.get("metadata") or {})
            where = self._namespace_for(served, meta, namespace)
            if not meta.get("name") and meta.get("generateName"):
                meta["name"] = object_meta.generated_name(meta["generateName"], self._rng)
            if not meta.get("name"):
                cause = errors.Cause(
                    "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
                )
                raise errors.invalid(served, "", [cause])
            if meta.get("resourceVersion"):
                raise errors.bad_request("resourceVersion should not be set on objects to be created")
            key = (where, meta["name"])
            if self._table(served).get(key) is not None:
                raise errors.already_exists(served, meta["name"])
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
                meta.pop(name, None)
            meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            meta["creationTimestamp"] = object_meta.timestamp(self.now())
            if served.counts_generations:
                meta["generation"] = 1
            new["metadata"] = object_meta.cleaned(meta)
            new = {"apiVersion": served.api_version, "kind": served.kind, **_without_type(new)}
            if not served.custom:
                new = object_meta.without_nulls(new)
            admission.on_create(served, new, self)
            self._refuse(
                served, new, [*object_meta.faults(served, new["metadata"]), *admission.faults(served, new, None, self)]
            )
            return new if dry_run else self._write(served, "ADDED", new, None)

    def replace(self, kind: Kind, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> Obj:
        """Put the object in place of the one of that name; ``subresource`` is "", "status" or "scale".

        Raises:
            ApiError: 404, 409 (its resourceVersion or uid is not the present one), 422.
        """
        new = to_json(obj)
        object_meta.check_shape(new)
        with self.lock:
            served = self._served(kind)
            meta = new["metadata"] = dict(new.get("metadata") or {})
            old = self._existing(served, (self._namespace_for(served, meta, "", check=False), meta.get("name", "")))
            if subresource == "scale":
                new = self._scaled(served, old, new)
            elif not meta.get("resourceVersion"):
                if served.custom or served.resource in _UNCONDITIONAL_REFUSED:
                    text = "Invalid value: 0x0: must be specified for an update"
                    cause = errors.Cause("metadata.resourceVersion", "FieldValueInvalid", text)
                    raise errors.invalid(served, meta["name"], [cause])
                meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            return self._update(served, old, new, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,  # noqa: ANN401 (a map, or a list of operations)
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
            before = self.scale_of(served, old) if subresource == "scale" else old
            after = _patched(served, before, change, patch_type)
            after = to_json(after)
            object_meta.check_shape(after)
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
        """Delete the object. Returns it while it lingers (finalizers, or a bound pod's grace), None once it is gone.

        Raises:
            ApiError: 404, 409 (a precondition does not hold).
        """
        with self.lock:
            served = self._served(kind)
            old = self._existing(served, (namespace, name))
            self.check(served, old, preconditions)
            if dry_run:
                return old
            return self._delete(served, old, grace_period_seconds, propagation)

    def bind(self, namespace: str, name: str, node: str) -> Obj:
        """Give the pod to the node, as the binding subresource does: sets ``spec.nodeName`` and PodScheduled.

        Raises:
            ApiError: 404; 409 it has a node or is being deleted; 422 it has scheduling gates.
        """
        with self.lock:
            pod = self._existing(kinds.PODS, (namespace, name))
            return self._write(kinds.PODS, "MODIFIED", pod_strategy.bound(pod, node, self.now()), pod)

    def evict(self, namespace: str, name: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Evict the pod, as the eviction subresource does; ``options`` are its ``deleteOptions``.

        Raises:
            ApiError: 404; 409 a precondition does not hold; 429 a budget does not allow it; 500 two budgets cover it.
        """
        with self.lock:
            self._budgets.evict(namespace, name, options)

    def collect_garbage(self) -> bool:
        """Remove what has no owner left, and finish what waits for its dependents. True if anything was done."""
        with self.lock:
            return garbage_collector.collect(self)

    def write(self, kind: Kind, new: Obj, old: Obj) -> Obj:
        """Put a new state in place of the old one with no rule applied: for what the control plane itself does."""
        with self.lock:
            return old if new == old else self._write(kind, "MODIFIED", new, old)

    def remove(self, kind: Kind, last: Obj) -> None:
        """Take the object out, whatever it carries; its dependents follow."""
        with self.lock:
            self._remove(kind, last, last)

    @staticmethod
    def check(kind: Kind, obj: Obj, preconditions: Mapping[str, str] | None) -> None:
        """Raise 409 unless the object has the uid and resourceVersion that the caller says."""
        for name, told in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = (preconditions or {}).get(name)
            if wanted and wanted != obj["metadata"][name]:
                there = obj["metadata"][name]
                why = f"Precondition failed: {told} in precondition: {wanted}, {told} in object meta: {there}"
                raise errors.conflict(kind, obj["metadata"]["name"], why)

    def scale_of(self, kind: Kind, obj: Obj) -> Obj:
        """The object's Scale.

        Raises:
            ApiError: 404, the kind has no such subresource.
        """
        return scale.of(kind, obj, self.definition(kind))

    def _namespace_for(self, kind: Kind, meta: Obj, asked: str, *, check: bool = True) -> str:
        """Which namespace an object goes to; writes it into the metadata."""
        if not kind.namespaced:
            meta.pop("namespace", None)
            return ""
        named = meta.get("namespace") or ""
        if asked and named and asked != named:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        where: str = asked or named or "default"
        meta["namespace"] = where
        if check:
            space = self._existing(kinds.NAMESPACES, ("", where))
            if "deletionTimestamp" in space["metadata"]:
                why = f"unable to create new content in namespace {where} because it is being terminated"
                raise errors.forbidden(kind, meta.get("name", ""), why)
        return where

    def _scaled(self, kind: Kind, old: Obj, wanted: Obj) -> Obj:
        return scale.applied(kind, old, wanted, self.definition(kind))

    def _update(self, kind: Kind, old: Obj, new: Obj, *, subresource: str, dry_run: bool) -> Obj:
        meta, before = dict(new.get("metadata") or {}), old["metadata"]
        new = {**new, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        name = before["name"]
        if meta.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        if meta.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise errors.modified(kind, name)
        self.check(kind, old, {"uid": meta["uid"]} if meta.get("uid") else None)
        meta.update(name=name, resourceVersion=before["resourceVersion"])
        if kind.namespaced:
            meta["namespace"] = before["namespace"]
        object_meta.restore_system_fields(new, old)
        new = admission.split(kind, new, old, subresource)
        if not kind.custom and subresource != "status":
            new = object_meta.without_nulls(new)
        new["metadata"] = object_meta.cleaned(new["metadata"])
        admission.on_update(kind, new, old, self)
        self._refuse(kind, new, [*object_meta.faults(kind, new["metadata"]), *admission.faults(kind, new, old, self)])
        if kind.counts_generations and object_meta.moves_generation(kind, new, old):
            new["metadata"]["generation"] = before.get("generation", 0) + 1
        if new == self._seen(kind, old):
            return new
        if dry_run:
            return new
        if _finished(new):
            return self._remove(kind, new, old)
        return self._write(kind, "MODIFIED", new, old)

    def _apply(
        self, kind: Kind, key: Key, config: Obj, *, subresource: str, field_manager: str, force: bool, dry_run: bool
    ) -> Obj:
        namespace, name = key
        object_meta.check_shape(config)
        meta = config["metadata"] = {**(config.get("metadata") or {}), "name": name}
        if namespace:
            meta["namespace"] = namespace
        old = self._table(kind).get(key)
        new = server_side_apply.apply(
            old,
            config,
            manager=field_manager,
            force=force,
            subresource=subresource,
            now=object_meta.timestamp(self.now()),
            shape=server_side_apply.shape_of(self.definition(kind)),
        )
        if old is None:
            if subresource:
                raise errors.not_found(kind, name)
            return self.create(kind, new, namespace=namespace, dry_run=dry_run)
        return self._update(kind, old, to_json(new), subresource=subresource, dry_run=dry_run)

    def _delete(self, kind: Kind, old: Obj, grace: int | None, propagation: Propagation | None) -> Obj | None:
        admission.on_delete(kind, old)
        meta = dict(old["metadata"])
        wait = pod_strategy.grace_period(old, grace) if kind.resource == kinds.PODS.resource else 0
        if propagation == "Orphan":
            garbage_collector.orphan(self, old)
        if (
            propagation == "Foreground"
            and garbage_collector.blocks(self, old)
            and _FOREGROUND not in meta.get("finalizers", ())
        ):
            meta["finalizers"] = [*meta.get("finalizers", ()), _FOREGROUND]
        if not meta.get("finalizers") and wait == 0 and kind.resource != kinds.NAMESPACES.resource:
            self._remove(kind, old, old)
            return None
        if "deletionTimestamp" not in meta or wait < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = object_meta.timestamp(self.now() + timedelta(seconds=wait))
            meta["deletionGracePeriodSeconds"] = wait
            if "generation" in meta and "deletionTimestamp" not in old["metadata"]:
                meta["generation"] += 1
            new = admission.terminating(kind, {**old, "metadata": meta})
            self._write(kind, "MODIFIED", new, old)
            garbage_collector.after_deletion_began(self, kind, new)
        return self._table(kind).get((meta.get("namespace", ""), meta["name"]))

    def _refuse(self, kind: Kind, obj: Obj, causes: Sequence[errors.Cause]) -> None:
        if causes:
            raise errors.invalid(kind, obj["metadata"]["name"], causes)

    def _remove(self, kind: Kind, last: Obj, old: Obj) -> Obj:
        gone = self._write(kind, "DELETED", last, old)
        garbage_collector.after_removal(self, kind, gone)
        return gone

    def _react(self, change: Change) -> None:
        super()._react(change)
        self._budgets.note(change)


def _without_type(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}


def _finished(obj: Obj) -> bool:
    """Whether a deletion has nothing left to wait for."""
    meta = obj["metadata"]
    waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in meta and not waits and not (obj.get("spec") or {}).get("finalizers")


def _patched(kind: Kind, before: Obj, change: Any, patch_type: PatchType) -> Obj:  # noqa: ANN401 (a map, or a list of operations)
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
    checked: Obj = after
    return checked

"""The state of the embedded cluster and every rule of an apiserver about changing it, with no HTTP.

The local world's controllers and kubelets use the store directly; Tenon's functions and people come through the server.
Both get the same rules: versions, conflicts, finalizers, graceful deletion, defaults, validation, owners.
"""

from __future__ import annotations

import random
import threading
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from local.kubernetes import admission, custom, errors, garbage, kinds, metadata, patches, pods, scale, selectors
from local.kubernetes import apply as server_side
from local.kubernetes.budgets import Budgets
from local.kubernetes.table import HISTORY, Change, Key, Obj, Table, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from local.kubernetes.kinds import Kind

Objs = list[Obj]
Changes = list[Change]
_Kinds = list["Kind"]
_Names = list[str]
_Located = list[tuple["Kind", Obj]]
How = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

FIRST_VERSION = 1000
"""Where versions start: above any that a test calls too old."""

_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_UNCONDITIONAL_REFUSED = frozenset(("leases.coordination.k8s.io", "poddisruptionbudgets.policy"))


def _node_of(pod: Obj) -> str:
    node: str = (pod.get("spec") or {}).get("nodeName") or ""
    return node


def fresh(value: Any) -> Any:  # noqa: ANN401 (JSON in, JSON out)
    """A deep copy as plain JSON: structs become dicts, times RFC 3339 text."""
    return msgspec.to_builtins(value, str_keys=True)


class Store:
    """All objects of a cluster. Every method may be called from any thread; ``lock`` makes several one step."""

    def __init__(
        self, *, now: Callable[[], datetime], rng: random.Random | None = None, history: int = HISTORY
    ) -> None:
        """``rng`` makes uids and generated names; ``history`` is how many changes each resource remembers."""
        self.lock = threading.RLock()
        self.now = now
        self.version = FIRST_VERSION
        self._rng = rng or random.Random()  # noqa: S311 (names and uids of a simulated cluster, no secrets)
        self._history = history
        self._tables: dict[str, Table] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._dependents: dict[str, set[tuple[str, Key]]] = {}
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self._definitions: dict[tuple[str, str, str], custom.Definition] = {}
        self._budgets = Budgets(self)
        for kind in kinds.BUILT_IN:
            self._kinds[kind.group, kind.version, kind.plural] = kind
        for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
            self.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
            self.create(kinds.NAMESPACES, {"metadata": {"name": name}})

    # Reading

    def kind(self, api_version: str, kind: str) -> Kind:
        """The kind of that name, built in or custom.

        Raises:
            ApiError: 404, it is not served.
        """
        group, _, version = api_version.rpartition("/")
        with self.lock:
            for served in self._kinds.values():
                if (served.group, served.version, served.kind) == (group, version, kind):
                    return served
        raise errors.no_such_path()

    def definition(self, kind: Kind) -> custom.Definition | None:
        """How a custom kind is defined; None for a built-in one."""
        return self._definitions.get((kind.group, kind.version, kind.plural)) if kind.custom else None

    def served(self) -> _Kinds:
        """Every kind that is served now, core group first."""
        with self.lock:
            return list(self._kinds.values())

    def version_of(self, kind: Kind) -> int:
        """The version of that kind's last change."""
        with self.lock:
            return self._table(kind).version

    def get(self, kind: Kind, name: str, *, namespace: str = "") -> Obj:
        """The object.

        Raises:
            ApiError: 404.
        """
        with self.lock:
            return self._seen(kind, self._existing(kind, (namespace, name)))

    def find(self, kind: Kind, name: str, *, namespace: str = "") -> Obj | None:
        """The object, or None."""
        with self.lock:
            found = self._table(kind).get((namespace, name))
            return None if found is None else self._seen(kind, found)

    def list(
        self,
        kind: Kind,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        version: int | None = None,
    ) -> Objs:
        """The objects that both selectors select, in order of namespace and name; as of ``version`` if it is given.

        Raises:
            ApiError: 400 a selector can't be read; 410 the version is too old.
        """
        with self.lock:
            table = self._table(kind)
            if version is not None and version < table.version:
                found = table.at(version, namespace)
            elif kind.resource == kinds.PODS.resource and (node := _node_selected(fields)) is not None:
                found = table.indexed(node, namespace)
            else:
                found = table.all(namespace)
        definition = self.definition(kind)
        selected = selectors.predicate(kind, labels, fields, definition.selectable if definition else ())
        if selected is not None:
            found = [obj for obj in found if selected(obj)]
        return [self._seen(kind, obj) for obj in found] if kind.custom else found

    def changes_since(self, kind: Kind | None, version: int) -> Changes:
        """The changes after that version, oldest first; of every kind for None.

        Raises:
            ApiError: 410, the history does not reach back so far.
        """
        with self.lock:
            if kind is not None:
                return self._table(kind).since(version)
            return in_order(table.since(max(version, FIRST_VERSION)) for table in self._tables.values())

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back on every change, under the lock and in order; the callback must be quick. Returns how to stop."""
        with self.lock:
            self._subscribers.append(callback)

        def stop() -> None:
            with self.lock:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return stop

    def compact(self) -> None:
        """Forget every resource's history: watches from older versions get 410."""
        with self.lock:
            for table in self._tables.values():
                table.forget()

    # Writing

    def create(self, kind: Kind, obj: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False) -> Obj:
        """Create the object; its own namespace counts if none is given. Returns it as stored.

        Raises:
            ApiError: 400, 403, 404 (no such namespace), 409 (it exists), 422.
        """
        new = fresh(obj)
        metadata.check_shape(new)
        with self.lock:
            served = self._served(kind)
            meta = new["metadata"] = dict(new.get("metadata") or {})
            where = self._namespace_for(served, meta, namespace)
            if not meta.get("name") and meta.get("generateName"):
                meta["name"] = metadata.generated_name(meta["generateName"], self._rng)
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
            meta["creationTimestamp"] = metadata.timestamp(self.now())
            if served.counts_generations:
                meta["generation"] = 1
            new["metadata"] = metadata.cleaned(meta)
            new = {"apiVersion": served.api_version, "kind": served.kind, **_without_type(new)}
            admission.on_create(served, new, self)
            self._refuse(
                served, new, [*metadata.faults(served, new["metadata"]), *admission.faults(served, new, None, self)]
            )
            return new if dry_run else self._write(served, "ADDED", new, None)

    def replace(self, kind: Kind, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False) -> Obj:
        """Put the object in place of the one of that name; ``subresource`` is "", "status" or "scale".

        Raises:
            ApiError: 404, 409 (its resourceVersion or uid is not the present one), 422.
        """
        new = fresh(obj)
        metadata.check_shape(new)
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
        how: How = "merge",
        manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Obj:
        """Change the object by a patch; ``manager`` and ``force`` are for "apply", which creates what is not there.

        Raises:
            ApiError: 400, 404, 409 (an old resourceVersion; fields of another manager), 415, 422.
        """
        change = fresh(patch)
        with self.lock:
            served = self._served(kind)
            if how == "apply":
                return self._apply(
                    served,
                    (namespace, name),
                    change,
                    subresource=subresource,
                    manager=manager,
                    force=force,
                    dry_run=dry_run,
                )
            old = self._existing(served, (namespace, name))
            before = self.scale_of(served, old) if subresource == "scale" else old
            after = _patched(served, before, change, how)
            after = fresh(after)
            metadata.check_shape(after)
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
            return self._write(kinds.PODS, "MODIFIED", pods.bound(pod, node, self.now()), pod)

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
            return garbage.collect(self)

    # What the modules around the store build on

    def write(self, kind: Kind, new: Obj, old: Obj) -> Obj:
        """Put a new state in place of the old one with no rule applied: for what the control plane itself does."""
        with self.lock:
            return old if new == old else self._write(kind, "MODIFIED", new, old)

    def remove(self, kind: Kind, last: Obj) -> None:
        """Take the object out, whatever it carries; its dependents follow."""
        with self.lock:
            self._remove(kind, last, last)

    def dependents(self, uid: str) -> _Located:
        """The objects that name this uid as an owner."""
        with self.lock:
            found: _Located = []
            for resource, key in sorted(self._dependents.get(uid, ())):
                obj = self._tables[resource].get(key)
                if obj is not None:
                    found.append((self.storage_kind(resource), obj))
            return found

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

    def owner_uids(self) -> _Names:
        """Every uid that some object names as its owner."""
        with self.lock:
            return sorted(self._dependents)

    def storage_kind(self, resource: str) -> Kind:
        """Any served version of the resource ``plural.group``.

        Raises:
            ApiError: 404, it is not served.
        """
        for kind in self._kinds.values():
            if kind.resource == resource:
                return kind
        raise errors.no_such_path()

    def everything_in(self, namespace: str) -> _Located:
        """Every object of a namespace."""
        with self.lock:
            return [
                (self.storage_kind(resource), obj)
                for resource, table in list(self._tables.items())
                if self.storage_kind(resource).namespaced
                for obj in table.all(namespace)
            ]

    def _served(self, kind: Kind) -> Kind:
        served = self._kinds.get((kind.group, kind.version, kind.plural))
        if served is None:
            raise errors.no_such_path()
        return served

    def _table(self, kind: Kind) -> Table:
        table = self._tables.get(kind.resource)
        if table is None:
            self._served(kind)
            index = _node_of if kind.resource == kinds.PODS.resource else None
            table = self._tables[kind.resource] = Table(self.version, index, history=self._history)
        return table

    def _existing(self, kind: Kind, key: Key) -> Obj:
        found = self._table(kind).get(key)
        if found is None:
            raise errors.not_found(kind, key[1])
        return found

    @staticmethod
    def _seen(kind: Kind, obj: Obj) -> Obj:
        return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}

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
        metadata.restore_system_fields(new, old)
        new = admission.split(kind, new, old, subresource)
        new["metadata"] = metadata.cleaned(new["metadata"])
        admission.on_update(kind, new, old, self)
        self._refuse(kind, new, [*metadata.faults(kind, new["metadata"]), *admission.faults(kind, new, old, self)])
        if kind.counts_generations and metadata.moves_generation(kind, new, old):
            new["metadata"]["generation"] = before.get("generation", 0) + 1
        if new == self._seen(kind, old):
            return new
        if dry_run:
            return new
        if _finished(new):
            return self._remove(kind, new, old)
        return self._write(kind, "MODIFIED", new, old)

    def _apply(
        self, kind: Kind, key: Key, config: Obj, *, subresource: str, manager: str, force: bool, dry_run: bool
    ) -> Obj:
        namespace, name = key
        metadata.check_shape(config)
        meta = config["metadata"] = {**(config.get("metadata") or {}), "name": name}
        if namespace:
            meta["namespace"] = namespace
        old = self._table(kind).get(key)
        new = server_side.apply(
            old,
            config,
            manager=manager,
            force=force,
            subresource=subresource,
            now=metadata.timestamp(self.now()),
            shape=server_side.shape_of(self.definition(kind)),
        )
        if old is None:
            if subresource:
                raise errors.not_found(kind, name)
            return self.create(kind, new, namespace=namespace, dry_run=dry_run)
        return self._update(kind, old, fresh(new), subresource=subresource, dry_run=dry_run)

    def _delete(self, kind: Kind, old: Obj, grace: int | None, propagation: Propagation | None) -> Obj | None:
        admission.on_delete(kind, old)
        meta = dict(old["metadata"])
        wait = pods.grace_period(old, grace) if kind.resource == kinds.PODS.resource else 0
        if propagation == "Orphan":
            garbage.orphan(self, old)
        if propagation == "Foreground" and garbage.blocks(self, old) and _FOREGROUND not in meta.get("finalizers", ()):
            meta["finalizers"] = [*meta.get("finalizers", ()), _FOREGROUND]
        if not meta.get("finalizers") and wait == 0 and kind.resource != kinds.NAMESPACES.resource:
            self._remove(kind, old, old)
            return None
        if "deletionTimestamp" not in meta or wait < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionTimestamp"] = metadata.timestamp(self.now() + timedelta(seconds=wait))
            meta["deletionGracePeriodSeconds"] = wait
            if "generation" in meta and "deletionTimestamp" not in old["metadata"]:
                meta["generation"] += 1
            new = admission.terminating(kind, {**old, "metadata": meta})
            self._write(kind, "MODIFIED", new, old)
            garbage.after_deletion_began(self, kind, new)
        return self._table(kind).get((meta.get("namespace", ""), meta["name"]))

    def _refuse(self, kind: Kind, obj: Obj, causes: Sequence[errors.Cause]) -> None:
        if causes:
            raise errors.invalid(kind, obj["metadata"]["name"], causes)

    def _remove(self, kind: Kind, last: Obj, old: Obj) -> Obj:
        gone = self._write(kind, "DELETED", last, old)
        garbage.after_removal(self, kind, gone)
        return gone

    def _write(self, kind: Kind, what: Literal["ADDED", "MODIFIED", "DELETED"], new: Obj, old: Obj | None) -> Obj:
        self.version += 1
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        change = Change(what, stored, self.version, kind, old)
        key = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
        self._table(kind).record(key, change)
        self._note_owners(kind.resource, key, change)
        for callback in tuple(self._subscribers):
            callback(change)
        self._react(change)
        return stored

    def _react(self, change: Change) -> None:
        """What follows from a change at once: kinds come and go with their definitions."""
        if change.kind.resource == kinds.CUSTOM_RESOURCE_DEFINITIONS.resource:
            self._redefine(change)
        else:
            self._budgets.note(change)

    def _redefine(self, change: Change) -> None:
        spec = change.object["spec"]
        for at in [at for at in self._definitions if (at[0], at[2]) == (spec["group"], spec["names"]["plural"])]:
            if change.type == "DELETED":
                kind = self._kinds[at]
                for obj in self._table(kind).all():
                    self._remove(kind, obj, obj)
            del self._definitions[at], self._kinds[at]
        if change.type == "DELETED":
            self._tables.pop(change.object["metadata"]["name"], None)
            return
        for definition in custom.definitions(change.object):
            kind = definition.kind
            self._definitions[kind.group, kind.version, kind.plural] = definition
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def _note_owners(self, resource: str, key: Key, change: Change) -> None:
        before = _owner_uids(change.previous)
        after = _owner_uids(None if change.type == "DELETED" else change.object)
        for uid in before - after:
            self._dependents[uid].discard((resource, key))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add((resource, key))


def _owner_uids(obj: Obj | None) -> frozenset[str]:
    owners = obj["metadata"].get("ownerReferences") if obj else None
    return frozenset(owner["uid"] for owner in owners) if owners else frozenset()


def _without_type(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}}


def _node_selected(fields: str) -> str | None:
    """The node of a selector that is exactly ``spec.nodeName=…``."""
    name, sign, node = fields.partition("=")
    return node if name == "spec.nodeName" and sign and not node.startswith("=") and "," not in node else None


def _finished(obj: Obj) -> bool:
    """Whether a deletion has nothing left to wait for."""
    meta = obj["metadata"]
    waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in meta and not waits and not (obj.get("spec") or {}).get("finalizers")


def _patched(kind: Kind, before: Obj, change: Any, how: How) -> Obj:  # noqa: ANN401 (a map, or a list of operations)
    match how:
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

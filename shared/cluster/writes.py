"""Writes that are safe to run twice and cost nothing when there is nothing to change.

A change is a pure function from the object to the object it should be. Only the fields that differ are sent, bound to
the resourceVersion they were computed from, so that fields we don't know and other people's edits survive; on a
conflict the object is read again and the change computed anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from shared.api.meta import Condition, ObjectMeta, Struct, to_json, with_condition
from shared.cluster.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from shared.cluster.resources import NODE_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource


class Object(Protocol):
    """Anything with metadata: every kind in ``shared.api``."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


O = TypeVar("O", bound=Object)  # noqa: E741 (an object)
R = TypeVar("R")

_ATTEMPTS = 5


def retry_on_conflict(obj: O, write: Callable[[O], R], *, reread: Callable[[], O]) -> R:
    """What ``write`` gives; after a conflict it is called again with what ``reread`` gives, five times at most.

    Raises:
        ConflictError: it conflicted each time.
        NotFoundError: the object went away meanwhile.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return write(obj)
        except ConflictError:
            obj = reread()
    return write(obj)


def read(client: Client, resource: Resource, name: str, kind: type[O], *, namespace: str = "") -> O:
    """One object as it is now.

    Raises:
        NotFoundError: there is none.
    """
    return msgspec.json.decode(client.get(resource.path(name, namespace=namespace)), type=kind)


def create(client: Client, resource: Resource, obj: O) -> O:
    """Create an object whose name says what it is for; one that is there already is the one we wanted.

    The answer is what the cluster holds (uid, resourceVersion), possibly made by an earlier run of the same decision.
    """
    kind = type(obj)
    namespace = obj.metadata.namespace
    try:
        stored = client.create(resource.path(namespace=namespace), cast("Struct", obj))
    except AlreadyExistsError:
        return read(client, resource, obj.metadata.name, kind, namespace=namespace)
    return msgspec.json.decode(stored, type=kind)


def create_claim(client: Client, claim: NodeClaim) -> NodeClaim:
    """Write a NodeClaim whose name follows from the decision, so that the decision's replay finds it there."""
    return create(client, NODE_CLAIMS, claim)


def update(client: Client, resource: Resource, obj: O, change: Callable[[O], O]) -> O:
    """Change metadata and spec; the answer is the object as stored. Nothing is sent when nothing changes.

    Raises:
        NotFoundError: the object is gone.
        ConflictError: somebody changed it between each of five readings and writings.
    """
    return _update(client, resource, obj, change, subresource="")


def update_status(client: Client, resource: Resource, obj: O, change: Callable[[O], O]) -> O:
    """Change the status; otherwise as :func:`update`."""
    return _update(client, resource, obj, change, subresource="status")


def set_conditions(client: Client, resource: Resource, obj: O, conditions: Iterable[Condition], *, now: datetime) -> O:
    """Set these conditions in the object's status, others untouched.

    ``lastTransitionTime`` and ``observedGeneration`` of what is given don't matter: the time is ``now`` where the
    status changes and stays otherwise, the generation is the object's.
    """
    wanted = tuple(conditions)

    def change(current: O) -> O:
        status: Any = current.status  # type: ignore[attr-defined]  # kinds without conditions are not for this
        merged: list[Condition] = status.conditions
        for one in wanted:
            merged = with_condition(
                merged,
                one.type,
                status=None if one.status == "Unknown" else one.status == "True",
                reason=one.reason,
                message=one.message,
                now=now,
                generation=current.metadata.generation,
            )
        return cast(
            "O",
            msgspec.structs.replace(cast("Struct", current), status=msgspec.structs.replace(status, conditions=merged)),
        )

    return update_status(client, resource, obj, change)


def patch_status(
    client: Client, resource: Resource, name: str, patch: Mapping[str, Any], *, namespace: str = ""
) -> bytes | None:
    """Merge ``patch`` into the status, whatever version it is at; None when ``patch`` is empty and nothing was sent."""
    if not patch:
        return None
    return client.patch(resource.path(name, namespace=namespace, subresource="status"), {"status": dict(patch)})


def remove_finalizer(client: Client, resource: Resource, obj: Object, finalizer: str) -> bool:
    """Remove one finalizer; False when it was not there, or the object is gone.

    The patch tests that the finalizer stands where it was seen, so that nobody else's is ever removed.
    """
    path = resource.path(obj.metadata.name, namespace=obj.metadata.namespace)
    current = obj.metadata
    for _ in range(_ATTEMPTS):
        if finalizer not in current.finalizers:
            return False
        place = f"/metadata/finalizers/{current.finalizers.index(finalizer)}"
        try:
            client.patch(
                path,
                [{"op": "test", "path": place, "value": finalizer}, {"op": "remove", "path": place}],
                kind="json",
            )
        except NotFoundError:
            return False
        except (ConflictError, InvalidError):
            # somebody else changed the list; look again
            try:
                seen = msgspec.json.decode(client.get(path), type=_OnlyMetadata)
            except NotFoundError:
                return False
            if seen.metadata.uid != obj.metadata.uid:
                return False
            current = seen.metadata
        else:
            return True
    raise ConflictError(409, "Conflict", f"the finalizers of {resource.kind} {current.name} kept changing")


def delete(client: Client, resource: Resource, obj: Object, *, grace_period_seconds: int | None = None) -> bool:
    """Ask for the deletion of exactly this object; False when it is gone or another has taken its name."""
    path = resource.path(obj.metadata.name, namespace=obj.metadata.namespace)
    try:
        client.delete(path, uid=obj.metadata.uid, grace_period_seconds=grace_period_seconds)
    except (NotFoundError, ConflictError):
        return False
    return True


class _OnlyMetadata(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def _update(client: Client, resource: Resource, obj: O, change: Callable[[O], O], *, subresource: str) -> O:
    name, namespace = obj.metadata.name, obj.metadata.namespace
    path = resource.path(name, namespace=namespace, subresource=subresource)

    def write(current: O) -> O:
        changed = change(current)
        if changed == current:
            return current
        before, after = to_json(current), to_json(changed)
        parts = ("status",) if subresource else tuple((before.keys() | after.keys()) - {"status"})
        patch = merge_patch(
            {part: before[part] for part in parts if part in before},
            {part: after[part] for part in parts if part in after},
        )
        if not patch:
            return current
        if current.metadata.resource_version:
            patch.setdefault("metadata", {})["resourceVersion"] = current.metadata.resource_version
        return _again(client.patch(path, patch), current)

    def reread() -> O:
        return _again(client.get(resource.path(name, namespace=namespace)), obj)

    return retry_on_conflict(obj, write, reread=reread)


class _MetadataAndStatus(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: msgspec.Raw = msgspec.Raw(b"{}")


def _again(raw: bytes, like: O) -> O:
    """The object as it is stored now; of a converted legacy object, whose spec is not ours, metadata and status."""
    if not _is_converted(like):
        return msgspec.json.decode(raw, type=type(like))
    stored = msgspec.json.decode(raw, type=_MetadataAndStatus)
    status: Any = like.status  # type: ignore[attr-defined]  # only pools and classes are converted; they have one
    return cast(
        "O",
        msgspec.structs.replace(
            cast("Struct", like),
            metadata=stored.metadata,
            status=msgspec.json.decode(stored.status, type=type(status)),
        ),
    )


def _is_converted(obj: Object) -> bool:
    """Whether an object says that it is of another version than its struct is for."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(cast("type[Struct]", type(obj)))}
    return "api_version" in defaults and getattr(obj, "api_version", None) != defaults["api_version"]


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one object to another; empty when they are equal. Lists are whole."""
    patch: dict[str, Any] = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if key not in after:
            patch[key] = None
        elif isinstance(old, dict) and isinstance(new, dict):
            inner = merge_patch(old, new)
            if inner:
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch

"""Idempotent writes, which send nothing if nothing changes.

A change is a pure function from the current object to the wanted one. Only the differing fields are sent, with the
resourceVersion that they were computed from, so unknown fields and other writers' changes survive. On a conflict the
object is read again and the change computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from shared.api.meta import ApiStruct, ObjectMeta, to_json
from shared.base.struct import WireStruct, with_fields
from shared.cluster.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from shared.cluster.resources import NODE_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """The result of ``write``; after a conflict it is called again with the reread object, at most five times in all.

    Raises:
        ConflictError: every attempt conflicted.
        NotFoundError: the object was deleted meanwhile.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return write(obj)
        except ConflictError:
            obj = reread()
    return write(obj)


def read(client: Client, resource: Resource, name: str, kind: type[O], *, namespace: str = "") -> O:
    """The current object.

    Raises:
        NotFoundError: it doesn't exist.
    """
    return msgspec.json.decode(client.get(resource.path(name, namespace=namespace)), type=kind)


def create(client: Client, resource: Resource, obj: O) -> O:
    """Create an object with a deterministic name; if it exists already, that one is returned.

    The result is the stored object (uid, resourceVersion), possibly created by an earlier run of the same decision.
    """
    kind = type(obj)
    namespace = obj.metadata.namespace
    try:
        stored = client.create(resource.path(namespace=namespace), cast("ApiStruct", obj))
    except AlreadyExistsError:
        return read(client, resource, obj.metadata.name, kind, namespace=namespace)
    return msgspec.json.decode(stored, type=kind)


def create_claim(client: Client, claim: NodeClaim) -> NodeClaim:
    """Create a NodeClaim; its name follows from the decision, so a retry doesn't create a second one."""
    return create(client, NODE_CLAIMS, claim)


def update(client: Client, resource: Resource, obj: O, change: Callable[[O], O]) -> O:
    """Change metadata and spec; returns the stored object. Nothing is sent if nothing changes.

    Raises:
        NotFoundError: the object doesn't exist.
        ConflictError: all five attempts conflicted with other writers.
    """
    return _update(client, resource, obj, change, subresource="")


def update_status(client: Client, resource: Resource, obj: O, change: Callable[[O], O]) -> O:
    """Change the status; otherwise as :func:`update`."""
    return _update(client, resource, obj, change, subresource="status")


def patch_status(
    client: Client, resource: Resource, name: str, patch: Mapping[str, Any], *, namespace: str = ""
) -> bytes | None:
    """Merge ``patch`` into the status without a precondition; None if ``patch`` is empty and nothing was sent."""
    if not patch:
        return None
    return client.patch(resource.path(name, namespace=namespace, subresource="status"), {"status": dict(patch)})


def remove_finalizer(client: Client, resource: Resource, obj: Object, finalizer: str) -> bool:
    """Remove one finalizer; False if it isn't present or the object doesn't exist.

    The JSON patch tests that the finalizer is still at its index, so that no other finalizer is removed.
    """
    path = resource.path(obj.metadata.name, namespace=obj.metadata.namespace)
    current = obj.metadata
    for _ in range(_ATTEMPTS):
        if finalizer not in current.finalizers:
            return False
        path_in_object = f"/metadata/finalizers/{current.finalizers.index(finalizer)}"
        try:
            client.patch(
                path,
                [{"op": "test", "path": path_in_object, "value": finalizer}, {"op": "remove", "path": path_in_object}],
                kind="json",
            )
        except NotFoundError:
            return False
        except (ConflictError, InvalidError):
            # Another writer changed the list: read it again.
            try:
                stored = msgspec.json.decode(client.get(path), type=_MetadataOnly)
            except NotFoundError:
                return False
            if stored.metadata.uid != obj.metadata.uid:
                return False
            current = stored.metadata
        else:
            return True
    raise ConflictError(409, "Conflict", f"the finalizers of {resource.kind} {current.name} kept changing")


def delete(client: Client, resource: Resource, obj: Object, *, grace_period_seconds: int | None = None) -> bool:
    """Delete exactly this object; False if it doesn't exist or another object has its name."""
    path = resource.path(obj.metadata.name, namespace=obj.metadata.namespace)
    try:
        client.delete(path, uid=obj.metadata.uid, grace_period_seconds=grace_period_seconds)
    except (NotFoundError, ConflictError):
        return False
    return True


class _MetadataOnly(WireStruct):
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
        return _decode_stored(client.patch(path, patch), current)

    def reread() -> O:
        return _decode_stored(client.get(resource.path(name, namespace=namespace)), obj)

    return retry_on_conflict(obj, write, reread=reread)


class _MetadataAndStatus(WireStruct):
    metadata: ObjectMeta = ObjectMeta()
    status: msgspec.Raw = msgspec.Raw(b"{}")


def _decode_stored(raw: bytes, like: O) -> O:
    """The stored object; of a converted legacy object metadata and status, because its spec has another schema."""
    if not _is_converted(like):
        return msgspec.json.decode(raw, type=type(like))
    stored = msgspec.json.decode(raw, type=_MetadataAndStatus)
    status: Any = like.status  # type: ignore[attr-defined]  # only NodePools and EC2NodeClasses are converted; they have a status
    return cast(
        "O",
        with_fields(
            cast("ApiStruct", like),
            metadata=stored.metadata,
            status=msgspec.json.decode(stored.status, type=type(status)),
        ),
    )


def _is_converted(obj: Object) -> bool:
    """Whether the object has another apiVersion than its type."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(cast("type[ApiStruct]", type(obj)))}
    return "api_version" in defaults and getattr(obj, "api_version", None) != defaults["api_version"]


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from one object to another, empty if they are equal. Lists are replaced whole."""
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

"""Lists of objects, decoded a page at a time, where one bad object doesn't hide the others.

A page is decoded in one go; only when that fails is each of its objects decoded on its own, and those that can't be
used are told apart with the reason. Kubernetes writes some empty lists as ``null``: such an object is good.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from shared.api.meta import ObjectRef
from shared.cluster.errors import ExpiredError
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

T = TypeVar("T")

_TRIES = 3


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The version that all of a list's objects were read at."""

    resource_version: str = ""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class _Name(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Name = _Name()


@dataclass(frozen=True, kw_only=True)
class ObjectList(Generic[T]):
    """What a list holds: the objects, those that can't be used, and the version it was read at."""

    objects: tuple[T, ...] = ()
    invalid: tuple[InvalidObject, ...] = ()
    version: str = ""


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 (a type is the argument)
    """The decoder of a type, made once: making one costs more than decoding a small object."""
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


def _page_decoder(kind: Any) -> msgspec.json.Decoder[Page[Any]]:  # noqa: ANN401 (a type is the argument)
    return _decoder(Page[kind])


def list_objects(
    client: Client, resource: Resource, kind: type[T], *, fields: str = "", labels: str = "", namespace: str = ""
) -> ObjectList[T]:
    """Every object of a kind, of one version; of one namespace, if it is given.

    Raises:
        NotFoundError: the cluster has no such kind.
        ExpiredError: three lists in a row took longer than the server keeps a version.
    """
    for _ in range(_TRIES - 1):
        try:
            return _objects(client, resource.path(namespace=namespace), resource, kind, fields=fields, labels=labels)
        except ExpiredError:
            # compacted while paging: what was read so far is of a version that is gone
            continue
    return _objects(client, resource.path(namespace=namespace), resource, kind, fields=fields, labels=labels)


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Without the cyclic garbage collector, which would walk every pod again and again: 5 times the decoding itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _objects(
    client: Client, path: str, resource: Resource, kind: type[T], *, fields: str, labels: str
) -> ObjectList[T]:
    good: list[T] = []
    bad: list[InvalidObject] = []
    version = ""
    with gc_paused():
        for raw in client.list_pages(path, fields=fields, labels=labels):
            try:
                page: Page[T] = _page_decoder(kind).decode(raw)
            except msgspec.ValidationError:
                each: Page[msgspec.Raw] = _page_decoder(msgspec.Raw).decode(raw)
                for item in each.items or ():
                    found = decode(bytes(item), resource, kind)
                    if isinstance(found, InvalidObject):
                        bad.append(found)
                    else:
                        good.append(found)
                version = each.metadata.resource_version
            else:
                good.extend(page.items or ())
                version = page.metadata.resource_version
    return ObjectList(objects=tuple(good), invalid=tuple(bad), version=version)


def decode(raw: bytes, resource: Resource, kind: type[T]) -> T | InvalidObject:
    """One object, or why it can't be used."""
    try:
        good: T = _decoder(kind).decode(raw)
    except msgspec.ValidationError:
        pass
    else:
        return good
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(raw)), kind)
    except msgspec.ValidationError as error:
        named = msgspec.json.decode(raw, type=_Named).metadata
        ref = ObjectRef(
            api_version=resource.api_version,
            kind=resource.kind,
            name=named.name,
            namespace=named.namespace,
            uid=named.uid,
        )
        return InvalidObject(ref=ref, problems=(str(error),))


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 (JSON in, JSON out)
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value

"""Lists objects, decoding page by page; an invalid object doesn't hide the others.

A page is decoded at once; only if that fails, each of its objects is decoded on its own, and invalid ones are returned
with the reason. Kubernetes writes some empty lists as ``null``; such objects are valid.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from shared.api.meta import ObjectRef
from shared.base import runtime
from shared.base.struct import Struct, WireStruct
from shared.cluster.errors import ExpiredError, NotFoundError
from shared.snapshot import InvalidObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.api.json_types import Json
    from shared.cluster.client import Client
    from shared.cluster.resources import Resource

T = TypeVar("T")

_ATTEMPTS = 3


class ListMeta(WireStruct, rename="camel"):
    """The resourceVersion of a list."""

    resource_version: str = ""


class Page(WireStruct, Generic[T]):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class _Metadata(WireStruct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _MetadataOnly(WireStruct):
    metadata: _Metadata = _Metadata()


class ObjectList(Struct, Generic[T], kw_only=True):
    """A list: its valid objects, its invalid ones, and its resourceVersion."""

    objects: tuple[T, ...] = ()
    invalid: tuple[InvalidObject, ...] = ()
    version: str = ""


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The cached decoder of a type: creating one costs more than decoding a small object."""
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(kind)
    return _decoders[kind]


def _page_decoder(kind: type[T]) -> msgspec.json.Decoder[Page[T]]:
    return _decoder(Page[kind])  # type: ignore[valid-type]  # a class of this call


def prepare(*kinds: type[Any]) -> None:
    """Make the decoders of these kinds and of their lists, before threads need them.

    A type that two threads use for the first time at once crashes msgspec.
    """
    for kind in kinds:
        _decoder(kind)
        _page_decoder(kind)


def list_objects(
    client: Client,
    resource: Resource,
    kind: type[T],
    *,
    fields: str = "",
    labels: str = "",
    namespace: str = "",
    ignore_invalid: Callable[[bytes], bool] = lambda _raw: False,
    after_page: Callable[[list[T]], None] = lambda _objects: None,
) -> ObjectList[T]:
    """All objects of a kind at one resourceVersion; of one namespace, if it is given.

    ``ignore_invalid``: which invalid objects, given as JSON, are left out. ``after_page`` is called with the valid
    objects of each page.

    Raises:
        NotFoundError: the cluster doesn't have the kind.
        ExpiredError: the resourceVersion expired during three lists in a row.
    """
    pages = partial(client.list_pages, resource.path(namespace=namespace), fields=fields, labels=labels)
    for _ in range(_ATTEMPTS - 1):
        try:
            return _objects(pages(), resource, kind, ignore_invalid, after_page)
        except ExpiredError:
            # The resourceVersion was compacted during paging, so the pages so far are useless.
            continue
    return _objects(pages(), resource, kind, ignore_invalid, after_page)


def version_of(client: Client, resource: Resource) -> str:
    """The resourceVersion that a list of the kind has now; read by a list of a name that no object has.

    It has one page, so none is read ahead.

    Raises:
        ApiError: the API server can't be read.
    """
    page = next(iter(client.list_pages(resource.path(), fields="metadata.name=-", limit=1)))
    return _page_decoder(msgspec.Raw).decode(page).metadata.resource_version


def list_served(client: Client, versions: Iterable[Resource], kind: type[T]) -> ObjectList[T]:
    """All objects of the first of a kind's versions that the cluster serves; none if it serves none."""
    for resource in versions:
        try:
            return list_objects(client, resource, kind)
        except NotFoundError:
            continue
    return ObjectList()


def _objects(
    pages: Iterable[bytes],
    resource: Resource,
    kind: type[T],
    ignore_invalid: Callable[[bytes], bool],
    after_page: Callable[[list[T]], None],
) -> ObjectList[T]:
    valid: list[T] = []
    invalid: list[InvalidObject] = []
    version = ""
    with runtime.gc_paused():
        for raw in pages:
            try:
                page: Page[T] = _page_decoder(kind).decode(raw)
            except msgspec.ValidationError:
                raw_page: Page[msgspec.Raw] = _page_decoder(msgspec.Raw).decode(raw)
                objects: list[T] = []
                for item in raw_page.items or ():
                    decoded = decode(bytes(item), resource, kind)
                    if not isinstance(decoded, InvalidObject):
                        objects.append(decoded)
                    elif not ignore_invalid(bytes(item)):
                        invalid.append(decoded)
                version = raw_page.metadata.resource_version
            else:
                objects = page.items or []
                version = page.metadata.resource_version
            after_page(objects)
            valid.extend(objects)
    return ObjectList(objects=tuple(valid), invalid=tuple(invalid), version=version)


def decode(raw: bytes, resource: Resource, kind: type[T]) -> T | InvalidObject:
    """One decoded object, or the reason why it is invalid."""
    try:
        decoded: T = _decoder(kind).decode(raw)
    except msgspec.ValidationError:
        pass
    else:
        return decoded
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(raw)), kind)
    except msgspec.ValidationError as error:
        metadata = msgspec.json.decode(raw, type=_MetadataOnly).metadata
        ref = ObjectRef(
            api_version=resource.api_version,
            kind=resource.kind,
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
        )
        return InvalidObject(ref=ref, problems=(str(error),))


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value

"""Decodes the objects that kubectl sends as protobuf.

kubectl's create commands (``create namespace``, ``create deployment``) send protobuf and do not fall back to JSON. Only
their kinds are supported; any other field is a 415. Field numbers: ``generated.proto`` of k8s.io/api and apimachinery.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from local.kubernetes import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj
    from shared.api.json_types import Json

_MAGIC = b"k8s\x00"
_VARINT, _LENGTH = 0, 2
_WORD = 64

Message = dict[int, tuple[str, Any]]
"""Field number to name and type: a scalar type, a message, ``[type]`` if repeated, ``{"": type}`` for a map."""

_TIME: Message = {}
_OWNER: Message = {
    1: ("kind", "text"),
    3: ("name", "text"),
    4: ("uid", "text"),
    5: ("apiVersion", "text"),
    6: ("controller", "flag"),
    7: ("blockOwnerDeletion", "flag"),
}
_METADATA: Message = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    8: ("creationTimestamp", _TIME),
    11: ("labels", {"": "text"}),
    12: ("annotations", {"": "text"}),
    13: ("ownerReferences", [_OWNER]),
    14: ("finalizers", ["text"]),
}
_SELECTOR: Message = {
    1: ("matchLabels", {"": "text"}),
    2: ("matchExpressions", [{1: ("key", "text"), 2: ("operator", "text"), 3: ("values", ["text"])}]),
}
_QUANTITIES = {"": "quantity"}
_CONTAINER: Message = {
    1: ("name", "text"),
    2: ("image", "text"),
    3: ("command", ["text"]),
    4: ("args", ["text"]),
    6: (
        "ports",
        [{1: ("name", "text"), 2: ("hostPort", "count"), 3: ("containerPort", "count"), 4: ("protocol", "text")}],
    ),
    7: ("env", [{1: ("name", "text"), 2: ("value", "text")}]),
    8: ("resources", {1: ("limits", _QUANTITIES), 2: ("requests", _QUANTITIES)}),
}
_TEMPLATE: Message = {
    1: ("metadata", _METADATA),
    2: ("spec", {2: ("containers", [_CONTAINER]), 3: ("restartPolicy", "text"), 7: ("nodeSelector", {"": "text"})}),
}
_DEPLOYMENT: Message = {
    1: ("replicas", "count"),
    2: ("selector", _SELECTOR),
    3: ("template", _TEMPLATE),
    4: ("strategy", {1: ("type", "text")}),
}
_RESOURCE_ATTRIBUTES: Message = {
    1: ("namespace", "text"),
    2: ("verb", "text"),
    3: ("group", "text"),
    4: ("version", "text"),
    5: ("resource", "text"),
    6: ("subresource", "text"),
    7: ("name", "text"),
}
_OBJECT: Message = {1: ("metadata", _METADATA)}
_STATUS: Message = {3: ("status", "ignored")}
_KINDS: dict[tuple[str, str], Message] = {
    ("v1", "Namespace"): {**_OBJECT, **_STATUS, 2: ("spec", {1: ("finalizers", ["text"])})},
    ("v1", "ServiceAccount"): _OBJECT,
    ("v1", "ConfigMap"): {**_OBJECT, 2: ("data", {"": "text"})},
    ("v1", "Secret"): {**_OBJECT, 2: ("data", {"": "bytes"}), 3: ("type", "text")},
    ("apps/v1", "Deployment"): {**_OBJECT, **_STATUS, 2: ("spec", _DEPLOYMENT)},
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        **_OBJECT,
        **_STATUS,
        2: (
            "spec",
            {
                1: ("resourceAttributes", _RESOURCE_ATTRIBUTES),
                2: ("nonResourceAttributes", {1: ("path", "text"), 2: ("verb", "text")}),
            },
        ),
    },
}


def decode(body: bytes) -> Obj:
    """The object as JSON.

    Raises:
        ApiError: 400 it is malformed; 415 its kind or a field is not supported.
    """
    if not body.startswith(_MAGIC):
        raise errors.bad_request("the body is not Kubernetes protobuf")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        names = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
        key = (names.get(1, ""), names.get(2, ""))
        message = _KINDS.get(key)
        if message is None:
            raise errors.unsupported_media_type(f"{key[1]} in {key[0]} is not supported as protobuf; send JSON or YAML")
        return {"apiVersion": key[0], "kind": key[1], **_message(envelope.get(2, b""), message)}
    except (IndexError, UnicodeDecodeError, AttributeError) as error:
        raise errors.bad_request("the protobuf body is malformed") from error


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The field numbers with their values, integers or bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if tag & 7 == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
        elif tag & 7 == _LENGTH:
            size, position = _varint(data, position)
            if position + size > len(data):
                raise IndexError(size)
            yield tag >> 3, data[position : position + size]
            position += size
        else:
            raise errors.unsupported_media_type(f"protobuf wire type {tag & 7} is not supported")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return (value - (1 << _WORD) if value >> (_WORD - 1) else value), position


def _message(data: bytes, message: Message) -> Obj:
    decoded: Obj = {}
    for number, raw in _fields(data):
        if number not in message:
            if raw:
                raise errors.unsupported_media_type(f"protobuf field {number} is not supported; send JSON or YAML")
            continue
        name, type_ = message[number]
        if isinstance(type_, list):
            decoded.setdefault(name, []).append(_value(raw, type_[0]))
        elif isinstance(type_, dict) and "" in type_:
            entry = dict(_fields(raw))
            decoded.setdefault(name, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), type_[""])
        elif type_ != "ignored" and (raw or type_ in ("count", "flag")):
            decoded[name] = _value(raw, type_)
    return {name: value for name, value in decoded.items() if value != {}}


def _value(raw: Json, type_: Json) -> Json:
    match type_:
        case "text":
            return raw.decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "quantity":
            return dict(_fields(raw)).get(1, b"").decode()
        case "count":
            return int(raw)
        case "flag":
            return bool(raw)
    return _message(raw, type_)

"""The parameters of a request: its body in any encoding, delete options, and the query's numbers and page tokens."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import msgspec

from local.kubernetes import errors
from local.kubernetes.apiserver import protobuf
from shared.api.yaml_documents import reader

if TYPE_CHECKING:
    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.objects import Key, Obj
    from local.kubernetes.registry.deletion import Propagation
    from shared.api.json_types import Json


def parse_body(request: Request) -> Json:
    """The body from JSON, YAML or protobuf.

    Raises:
        ApiError: 400 it is malformed; 415 protobuf of a kind that is not read.
    """
    if "protobuf" in request.headers.get("content-type", ""):
        return protobuf.decode(request.body)
    try:
        return msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        if "yaml" not in request.headers.get("content-type", ""):
            raise errors.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return reader.document(request.body)
    except reader.YamlError as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error


def object_body(request: Request) -> Obj:
    """The body, which must be a map.

    Raises:
        ApiError: 400, it is not.
    """
    body = parse_body(request)
    if not isinstance(body, dict):
        raise errors.bad_request("the object provided is unrecognized (must be an object)")
    return body


def is_dry_run(request: Request) -> bool:
    """Whether the write must not be stored."""
    return bool(request.query.get("dryRun"))


def delete_options(request: Request) -> dict[str, Any]:
    """DeleteOptions as arguments of ``Store.delete``: from the body, or from the query if there is no body.

    Raises:
        ApiError: 400, an unknown propagation policy or a malformed grace period.
    """
    if request.body:
        body = object_body(request)
    else:
        body = dict(request.query)
        body["gracePeriodSeconds"] = count(request, "gracePeriodSeconds")
    propagation: Propagation | None = body.get("propagationPolicy")
    if propagation not in {None, "Background", "Foreground", "Orphan"}:
        text = f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", "Orphan", "nil"'
        raise errors.invalid_options("DeleteOptions", "propagationPolicy", "FieldValueNotSupported", text)
    if body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] not in {False, "false"} else "Background"
    return {
        "grace_period_seconds": body.get("gracePeriodSeconds"),
        "preconditions": body.get("preconditions"),
        "propagation": propagation,
        "dry_run": bool(body.get("dryRun")),
    }


def count(request: Request, name: str) -> int | None:
    """A non-negative integer of the query; None when it is absent.

    Raises:
        ApiError: 400, it is not a number.
    """
    text = request.query.get(name)
    if not text:
        return None
    if not text.isdigit():
        raise errors.bad_request(f'Invalid value: "{text}": {name} must be a non-negative integer')
    return int(text)


def continue_token(version: int, last: Key) -> str:
    """The ``continue`` of a page that ends with that object, of the list as of that version."""
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *last])).decode().rstrip("=")


def parse_continue_token(token: str) -> tuple[int, Key]:
    """The list's version and the last object of the page before.

    Raises:
        ApiError: 400, the token is malformed.
    """
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        version, namespace, name = msgspec.json.decode(raw, type=tuple[int, str, str])
    except (binascii.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise errors.bad_request("continue key is not valid") from error
    return version, (namespace, name)

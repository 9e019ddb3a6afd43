"""The API's errors: HTTP status, reason, message and details of a ``Status`` object.

The texts are those of kube-apiserver (apimachinery ``api/errors``), because people and clients read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.kubernetes.kinds import Kind


FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


class Cause(Struct):
    """One invalid field: its path, a reason and a message."""

    field: str
    reason: str
    message: str

    def as_json(self) -> dict[str, str]:
        """As in ``status.details.causes``."""
        return {
            "reason": self.reason,
            "message": self.message,
            **({"field": self.field} if self.field else {}),
        }


class ApiError(Exception):
    """An error of the API: HTTP ``status``, ``reason`` as a CamelCase word, message and ``details``."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    def as_json(self) -> dict[str, Any]:
        """The ``Status`` object of the response."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details else {}),
            "code": self.status,
        }


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
    }


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def no_such_path() -> ApiError:
    """404: no such resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str, *, deleting: bool = False) -> ApiError:
    """409: an object of that name exists; ``deleting`` if it is being deleted."""
    prefix = "object is being deleted: " if deleting else ""
    return ApiError(409, "AlreadyExists", f'{prefix}{kind.resource} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: the object is in another state than the request requires."""
    text = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", text, _details(kind, name))


def precondition_failed(kind: Kind, name: str, label: str, required: str, actual: str) -> ApiError:
    """409: the object has another uid or resourceVersion, which ``label`` names, than is required."""
    return conflict(
        kind, name, f"Precondition failed: {label} in precondition: {required}, {label} in object meta: {actual}"
    )


def deletion_conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: as :func:`conflict`, for a deletion, whose errors name the kind and not the resource."""
    qualified_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    text = f'Operation cannot be fulfilled on {qualified_kind} "{name}": {why}'
    return ApiError(409, "Conflict", text, {**_details(kind, name), "kind": kind.kind})


def modified(kind: Kind, name: str) -> ApiError:
    """409: a write with an outdated resourceVersion."""
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def apply_conflict(causes: Sequence[Cause]) -> ApiError:
    """409: server-side apply of fields that another manager owns."""
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: list[str] = []
        for message in sorted({cause.message for cause in causes}):
            lines.append(message.replace("conflict with", "conflicts with", 1) + ":")
            lines += [f"- {cause.field}" for cause in causes if cause.message == message]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", text, {"causes": [c.as_json() for c in causes]})


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object is invalid, with all causes."""
    messages = [f"{c.field}: {c.message}" if c.field else c.message for c in causes]
    listed = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    qualified_kind = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.kind,
        "causes": [c.as_json() for c in causes],
    }
    return ApiError(422, "Invalid", f'{qualified_kind} "{name}" is invalid: {listed}', details)


def version_required(kind: Kind, name: str) -> ApiError:
    """422: an update without a resourceVersion, of a kind that requires one. This error names the resource."""
    text = "Invalid value: 0: must be specified for an update"
    cause = Cause("metadata.resourceVersion", "FieldValueInvalid", text)
    details = {**_details(kind, name), "causes": [cause.as_json()]}
    return ApiError(422, "Invalid", f'{kind.resource} "{name}" is invalid: {cause.field}: {text}', details)


def invalid_options(kind: str, field: str, reason: str, message: str) -> ApiError:
    """422: the options of a request, such as ``DeleteOptions``, are invalid."""
    cause = Cause(field, reason, message)
    details = {"group": "meta.k8s.io", "kind": kind, "causes": [cause.as_json()]}
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {field}: {message}', details)


def binding_conflict(name: str, why: str) -> ApiError:
    """409: the pod can't be bound. This error names the subresource."""
    text = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return ApiError(409, "Conflict", text, {"name": name, "kind": "pods/binding"})


def unprocessable() -> ApiError:
    """422: a patch that can't be applied to the object. A real server doesn't say why."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def too_many_requests(message: str, *, causes: Sequence[Cause] = (), retry_after: int = 0) -> ApiError:
    """429; ``retry_after`` in seconds, 0 for none (as for an eviction that a budget blocks)."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [c.as_json() for c in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", message, details)


def expired(version: int | str) -> ApiError:
    """410: the history no longer has that version; list again."""
    return ApiError(410, "Expired", f"too old resource version: {version}")


def continue_expired() -> ApiError:
    """410 for a page of a list: list again from the start."""
    text = (
        "The provided continue parameter is too old to display a consistent list result. You must start a new list "
        "without the continue parameter."
    )
    return ApiError(410, "Expired", text)


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """403: forbidden, with the reason."""
    quoted = f' "{name}"' if name else ""
    return ApiError(403, "Forbidden", f"{kind.resource}{quoted} is forbidden: {why}", _details(kind, name))


def namespace_terminating(kind: Kind, name: str, namespace: str) -> ApiError:
    """403: nothing is created in a namespace that is being deleted."""
    error = forbidden(
        kind, name, f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = Cause("metadata.namespace", "NamespaceTerminating", f"namespace {namespace} is being terminated")
    return ApiError(error.status, error.reason, error.message, {**_details(kind, name), "causes": [cause.as_json()]})


def bad_request(message: str) -> ApiError:
    """400: a malformed request."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no valid bearer token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405: the resource does not support the verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media_type(message: str) -> ApiError:
    """415: a body in a format that is not supported."""
    return ApiError(415, "UnsupportedMediaType", message)


def internal(why: str) -> ApiError:
    """500: an error that a real server answers with 500, too."""
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def version_too_large(version: int, current: int) -> ApiError:
    """504: a version in the future."""
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    cause = Cause("", "ResourceVersionTooLarge", "Too large resource version")
    return ApiError(504, "Timeout", text, {"causes": [cause.as_json()], "retryAfterSeconds": 1})

"""The API's refusals, as a client sees them: HTTP status, reason, message and details of a ``Status`` object.

The texts are a real apiserver's (apimachinery ``api/errors``), because people and clients read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.kubernetes.kinds import Kind


FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


@dataclass(frozen=True)
class Cause:
    """One field at fault: its path, a machine's word for why, and a sentence."""

    field: str
    reason: str
    message: str

    def as_json(self) -> dict[str, str]:
        """As it stands in ``status.details.causes``."""
        return {
            "reason": self.reason,
            "message": self.message,
            **({"field": self.field} if self.field else {}),
        }


class ApiError(Exception):
    """A refusal: ``status`` is the HTTP code, ``reason`` one CamelCase word, ``details`` names what and why."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    def as_json(self) -> dict[str, Any]:
        """The ``Status`` object that is the answer's body."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.status,
        }


def _about(kind: Kind, name: str) -> dict[str, Any]:
    return {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
    }


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of that name."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _about(kind, name))


def no_such_path() -> ApiError:
    """404: no resource is served there."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', _about(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: the object is not as the caller believes."""
    text = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", text, _about(kind, name))


def modified(kind: Kind, name: str) -> ApiError:
    """409: a write that carries a resourceVersion which is not the newest."""
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def apply_conflict(causes: Sequence[Cause]) -> ApiError:
    """409: a server-side apply of fields that another manager owns."""
    plural = "s" if len(causes) > 1 else ""
    listed = (
        f" {causes[0].message}: {causes[0].field}"
        if len(causes) == 1
        else "".join(f"\n- {c.message}: {c.field}" for c in causes)
    )
    text = f"Apply failed with {len(causes)} conflict{plural}:{listed}"
    return ApiError(409, "Conflict", text, {"causes": [c.as_json() for c in causes]})


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object breaks its kind's rules; every cause is named."""
    told = [f"{c.field}: {c.message}" if c.field else c.message for c in causes]
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    called = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    about = {
        **({"name": name} if name else {}),
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.kind,
        "causes": [c.as_json() for c in causes],
    }
    return ApiError(422, "Invalid", f'{called} "{name}" is invalid: {listed}', about)


def unprocessable(message: str) -> ApiError:
    """422: a patch that can't be carried out on the object as it is."""
    return ApiError(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")


def too_many_requests(message: str, *, causes: Sequence[Cause] = (), retry_after: int = 0) -> ApiError:
    """429; ``retry_after`` in seconds, none when 0 (an eviction that a budget blocks has none)."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [c.as_json() for c in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", message, details)


def expired(version: int | str) -> ApiError:
    """410: the history no longer reaches back to that version; list again."""
    return ApiError(410, "Expired", f"too old resource version: {version}")


def continue_expired() -> ApiError:
    """410 while paging: list again from the start."""
    text = (
        "The provided continue parameter is too old to display a consistent list result. You must start a new list "
        "without the continue parameter."
    )
    return ApiError(410, "Expired", text)


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """403: not allowed, and why."""
    quoted = f' "{name}"' if name else ""
    return ApiError(403, "Forbidden", f"{kind.resource}{quoted} is forbidden: {why}", _about(kind, name))


def bad_request(message: str) -> ApiError:
    """400: not understood."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no valid bearer token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405: the resource does not know that verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media_type(message: str) -> ApiError:
    """415: a body of a kind that is not read here."""
    return ApiError(415, "UnsupportedMediaType", message)


def internal(message: str) -> ApiError:
    """500: what a real server answers with 500, too."""
    return ApiError(500, "InternalError", message)


def version_too_large(version: int, current: int) -> ApiError:
    """504: a version that has not happened yet."""
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    cause = Cause("", "ResourceVersionTooLarge", "Too large resource version")
    return ApiError(504, "Timeout", text, {"causes": [cause.as_json()], "retryAfterSeconds": 1})

"""What can go wrong between us and the Kubernetes API, as types that a caller can act on.

The API answers an error with a ``Status`` object; its HTTP code and ``reason`` choose the type here. A connection that
breaks is the same to a caller as a server that can't serve: :class:`UnavailableError`.
"""

from __future__ import annotations

import msgspec

_LONGEST_TEXT = 500
_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_GONE = 410
_INVALID = 422
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_BUDGET = "DisruptionBudget"


class Cause(msgspec.Struct, frozen=True):
    """One reason within an error: a field that is wrong, or a PodDisruptionBudget that holds."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(RuntimeError):
    """The API refused; ``status`` is the HTTP code (0: no answer), ``reason`` Kubernetes' word for it."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        """Seconds that the server asks to wait before trying again."""


class UnauthorizedError(ApiError):
    """The token isn't accepted: expired, or its principal has no access entry."""


class ForbiddenError(ApiError):
    """The API server's rules (RBAC, quota, admission) don't allow it; the message names verb and resource."""


class NotFoundError(ApiError):
    """No such object, or no such kind."""


class ConflictError(ApiError):
    """The object changed since it was read, or a precondition doesn't hold: read again."""


class AlreadyExistsError(ApiError):
    """An object of that name is there."""


class ExpiredError(ApiError):
    """The resourceVersion or continue token is too old: list again."""


class InvalidError(ApiError):
    """The object or patch isn't valid; the message names the field."""


class TooManyRequestsError(ApiError):
    """The server is throttling, or (an eviction) a PodDisruptionBudget holds."""

    @property
    def by_budget(self) -> bool:
        """Whether a PodDisruptionBudget is what holds."""
        return any(cause.reason == _BUDGET for cause in self.causes)


class UnavailableError(ApiError):
    """The server failed, timed out, or can't be reached."""


class _Details(msgspec.Struct, frozen=True):
    causes: list[Cause] | None = None
    retry_after: int = msgspec.field(default=0, name="retryAfterSeconds")


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_CODE: dict[int, type[ApiError]] = {
    _UNAUTHORIZED: UnauthorizedError,
    _FORBIDDEN: ForbiddenError,
    _NOT_FOUND: NotFoundError,
    _CONFLICT: ConflictError,
    _GONE: ExpiredError,
    _INVALID: InvalidError,
    _TOO_MANY_REQUESTS: TooManyRequestsError,
}


def from_response(code: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The error that an answer stands for.

    ``body`` is a ``Status`` object, or plain text where a proxy or the API server's mux answered; ``retry_after`` is
    the header's text.
    """
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = _Status(message=body.decode(errors="replace")[:_LONGEST_TEXT].strip())
    details = status.details or _Details()
    wait: float | None = float(details.retry_after) if details.retry_after else None
    if retry_after is not None and retry_after.isdigit():
        wait = float(retry_after)
    kind = _BY_CODE.get(code, UnavailableError if code >= _SERVER_ERROR else ApiError)
    if code == _CONFLICT and status.reason == "AlreadyExists":
        kind = AlreadyExistsError
    return kind(
        code,
        status.reason or ("BadRequest" if code == _BAD_REQUEST else "Unknown"),
        status.message or "no explanation given",
        causes=tuple(details.causes or ()),
        retry_after=wait,
    )


def from_watch_event(body: bytes) -> ApiError:
    """The error that an ERROR event of a watch stands for: its object is a ``Status`` with its own code."""
    try:
        code = msgspec.json.decode(body, type=_Status).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        code = 0
    return from_response(code or _SERVER_ERROR, body)

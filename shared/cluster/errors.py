"""The errors of the Kubernetes API, as types that a caller can act on.

An error response is a ``Status`` object; its HTTP code and ``reason`` determine the type. A broken connection and a
server that can't serve are the same to a caller: :class:`UnavailableError`.
"""

from __future__ import annotations

import msgspec

from shared.base.struct import WireStruct

_MAX_TEXT_LENGTH = 500
_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_CONFLICT = 409
_GONE = 410
_INVALID = 422
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_DISRUPTION_BUDGET = "DisruptionBudget"
_NAMESPACE_TERMINATING = "NamespaceTerminating"
_TOO_LARGE = "ResourceVersionTooLarge"


class Cause(WireStruct):
    """One cause of an error: an invalid field, or a PodDisruptionBudget that denies an eviction."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ApiError(RuntimeError):
    """A request failed; ``status`` is the HTTP code (0: no response), ``reason`` is Kubernetes' own."""

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
        """Seconds to wait before the next attempt, as the server requests."""

    @property
    def by_budget(self) -> bool:
        """Whether a PodDisruptionBudget denies the eviction: with 429, or from 1.37 on with 403 where it is behind."""
        return any(cause.reason == _DISRUPTION_BUDGET for cause in self.causes)

    @property
    def is_ahead(self) -> bool:
        """Whether the request names a resourceVersion that the server hasn't reached."""
        return any(cause.reason == _TOO_LARGE for cause in self.causes)

    @property
    def by_namespace(self) -> bool:
        """Whether nothing can be created, evictions included, because the namespace is being deleted."""
        return any(cause.reason == _NAMESPACE_TERMINATING for cause in self.causes)


class UnauthorizedError(ApiError):
    """The token is rejected: it expired, or its principal has no access entry."""


class ForbiddenError(ApiError):
    """RBAC, a quota or admission denies the request; the message names verb and resource."""


class NotFoundError(ApiError):
    """The object or the kind doesn't exist."""


class ConflictError(ApiError):
    """The object changed since it was read, or a precondition failed: read it again."""


class AlreadyExistsError(ApiError):
    """An object of that name exists."""


class ExpiredError(ApiError):
    """The resourceVersion or continue token is too old: list again."""


class InvalidError(ApiError):
    """The object or patch is invalid; the message names the field."""


class TooManyRequestsError(ApiError):
    """The server is throttling, or a PodDisruptionBudget denies an eviction."""


class UnavailableError(ApiError):
    """The server failed, timed out or can't be reached."""


class _Details(WireStruct):
    causes: list[Cause] | None = None
    retry_after: int = msgspec.field(default=0, name="retryAfterSeconds")


class _Status(WireStruct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


# Made before any thread needs it: a type that two threads use for the first time at once crashes msgspec.
_status_decoder = msgspec.json.Decoder(_Status)

_TYPE_BY_CODE: dict[int, type[ApiError]] = {
    _UNAUTHORIZED: UnauthorizedError,
    _FORBIDDEN: ForbiddenError,
    _NOT_FOUND: NotFoundError,
    _CONFLICT: ConflictError,
    _GONE: ExpiredError,
    _INVALID: InvalidError,
    _TOO_MANY_REQUESTS: TooManyRequestsError,
}


def from_response(code: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The error of an HTTP response.

    ``body`` is a ``Status`` object, or plain text from a proxy or the API server's mux; ``retry_after`` is the value of
    the Retry-After header.
    """
    status = _decode_status(body)
    details = status.details or _Details()
    error_type = _TYPE_BY_CODE.get(code, UnavailableError if code >= _SERVER_ERROR else ApiError)
    if code == _CONFLICT and status.reason == "AlreadyExists":
        error_type = AlreadyExistsError
    return error_type(
        code,
        status.reason or ("BadRequest" if code == _BAD_REQUEST else "Unknown"),
        status.message or "no explanation given",
        causes=tuple(details.causes or ()),
        retry_after=_retry_seconds(details, retry_after),
    )


def _decode_status(body: bytes) -> _Status:
    try:
        return _status_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Status(message=body.decode(errors="replace")[:_MAX_TEXT_LENGTH].strip())


def _retry_seconds(details: _Details, header: str | None) -> float | None:
    """The Retry-After header if it is a number, else what the ``Status`` says."""
    if header is not None and header.isdigit():
        return float(header)
    return float(details.retry_after) if details.retry_after else None


def from_watch_event(body: bytes) -> ApiError:
    """The error of a watch's ERROR event, whose object is a ``Status`` with a code."""
    try:
        code = _status_decoder.decode(body).code
    except (msgspec.MsgspecError, UnicodeDecodeError):
        code = 0
    return from_response(code or _SERVER_ERROR, body)

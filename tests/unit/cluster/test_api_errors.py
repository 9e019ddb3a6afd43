"""The error types of API responses."""

from __future__ import annotations

import json

import pytest

from shared.cluster import errors


def status(reason: str, **more: object) -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": "because", **more}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.ApiError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.ExpiredError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.TooManyRequestsError),
        (500, "InternalError", errors.UnavailableError),
        (504, "Timeout", errors.UnavailableError),
    ],
)
def test_each_status_has_its_error_type(code: int, reason: str, kind: type[errors.ApiError]) -> None:
    error = errors.from_response(code, status(reason))
    assert type(error) is kind
    assert str(error) == f"{code} {reason}: because"


def test_a_response_without_a_status_object_keeps_its_text() -> None:
    error = errors.from_response(404, b"404 page not found\n")
    assert isinstance(error, errors.NotFoundError)
    assert error.message == "404 page not found"
    assert isinstance(errors.from_response(502, b"\xff<html>"), errors.UnavailableError)


def test_a_budget_denial_differs_from_throttling() -> None:
    causes = {"causes": [{"reason": "DisruptionBudget", "message": "web needs 3 healthy pods and has 3 currently"}]}
    blocked = errors.from_response(429, status("TooManyRequests", details=causes))
    throttled = errors.from_response(429, status("TooManyRequests"), retry_after="7")
    assert isinstance(blocked, errors.TooManyRequestsError)
    assert isinstance(throttled, errors.TooManyRequestsError)
    assert blocked.by_budget
    assert blocked.causes[0].message.startswith("web needs")
    assert not throttled.by_budget
    assert throttled.retry_after == 7


def test_a_watchs_error_event_has_its_error_type() -> None:
    assert isinstance(errors.from_watch_event(status("Expired", code=410)), errors.ExpiredError)
    assert isinstance(errors.from_watch_event(b"{}"), errors.UnavailableError)

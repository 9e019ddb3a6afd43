"""A finding of a check, and how errors of a check become findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.struct import WireStruct
from shared.cluster.errors import ApiError

Status = Literal["passed", "failed", "unknown"]


class Finding(WireStruct, kw_only=True):
    """The result of a check: what was read, and for a failed one what to do. "unknown": it can't be read."""

    check: str
    status: Status
    summary: str
    action: str = ""


Check = Callable[[], Iterable[Finding]]


def passed(check: str, summary: str) -> Finding:
    """A passed check."""
    return Finding(check=check, status="passed", summary=summary)


def failed(check: str, summary: str, action: str) -> Finding:
    """A failed check, and what to do."""
    return Finding(check=check, status="failed", summary=summary, action=action)


def run(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """The findings of all checks, in order. A check that can't read its input is unknown, and the others still run."""
    for name, check in checks:
        try:
            yield from check()
        except (ApiError, BotoCoreError, ClientError) as error:
            yield Finding(check=name, status="unknown", summary=f"it can't be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        return f"{error.operation_name}: {code}"
    return str(error)

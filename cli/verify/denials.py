"""What IAM and RBAC denied to functions, as their own logs say: CloudTrail takes minutes, and few may read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cli.verify import functions
from cli.verify.result import Proof, StepFailedError
from shared.base.aws import error_code
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.verify.verification import Verification

_PATTERN = '?AccessDenied ?UnauthorizedOperation ?"not authorized" ?forbidden ?Forbidden'
"""A filter pattern of CloudWatch Logs: any of these terms. What it finds is judged by _DENIED."""
_DENIED = (
    re.compile(r"AccessDenied\w*\b.*?calling the (?P<action>\w+) operation"),
    re.compile(r"UnauthorizedOperation\b.*?calling the (?P<action>\w+) operation"),
    re.compile(r"not authorized to perform:? (?P<action>[\w-]+:\w+)"),
    re.compile(r"cannot (?P<action>\w+ resource \\?\"[\w/.-]+\\?\")"),
    re.compile(r"(?P<action>AccessDenied|UnauthorizedOperation|[Ff]orbidden)\b"),
)
_NOT_THERE = "ResourceNotFoundException"


class Denial(Struct, kw_only=True):
    """What a function was denied, and how many log lines say so."""

    function: str
    action: str
    lines: int

    @property
    def sentence(self) -> str:
        """The denial for people."""
        return f"{self.function} is denied {self.action} ({plural(self.lines, 'log line')})"


def denials(run: Verification) -> list[Denial]:
    """The denials since the run began, by function.

    Raises:
        ClientError: logs can't be read.
    """
    counts: dict[tuple[str, str], int] = {}
    for function, configuration in functions.deployed(run).items():
        for line in _lines(run, functions.log_group(configuration)):
            if action := denied(line):
                counts[function, action] = counts.get((function, action), 0) + 1
    return [Denial(function=function, action=action, lines=count) for (function, action), count in counts.items()]


def denied(line: str) -> str:
    """What a log line says was denied; "" if it says no such thing.

    >>> denied('An error occurred (UnauthorizedOperation) when calling the CreateTags operation: no')
    'CreateTags'
    >>> denied('User "f" cannot create resource "pods/eviction" in API group ""')
    'create resource pods/eviction'
    """
    match = next((m for pattern in _DENIED if (m := pattern.search(line))), None)
    return match["action"].replace('"', "").replace("\\", "") if match else ""


def verify(run: Verification) -> Proof:
    """Nothing was denied."""
    denied_actions = denials(run)
    if denied_actions:
        raise StepFailedError("; ".join(denial.sentence for denial in denied_actions))
    return Proof(sentence=f"No function's log has a denial of IAM or RBAC since {run.begun_at:%H:%M} UTC.")


def _lines(run: Verification, log_group: str) -> Iterator[str]:
    request: dict[str, Any] = {
        "logGroupName": log_group,
        "startTime": int(run.begun_at.timestamp() * 1000),
        "filterPattern": _PATTERN,
    }
    try:
        for page in run.aws("logs").get_paginator("filter_log_events").paginate(**request):
            yield from (str(event["message"]) for event in page["events"])
    except ClientError as error:
        if error_code(error) != _NOT_THERE:
            raise

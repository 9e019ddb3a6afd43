"""What log lines of functions say was denied."""

from __future__ import annotations

import pytest

from cli.verify.denials import denied

LINES = [
    ("(UnauthorizedOperation) when calling the TerminateInstances operation: no", "TerminateInstances"),
    ("(AccessDeniedException) when calling the SendMessage operation: no", "SendMessage"),
    ("User: ROLE is not authorized to perform: sqs:SendMessage on resource: QUEUE", "sqs:SendMessage"),
    ('is forbidden: User "f" cannot delete resource "nodeclaims" in', "delete resource nodeclaims"),
    ('{"message": "cannot create resource \\"pods/eviction\\" in"}', "create resource pods/eviction"),
    ("403 Forbidden", "Forbidden"),
    ("OperationNotPermitted: The instance 'i-1' may not be terminated", ""),
    ("InsufficientInstanceCapacity", ""),
]


@pytest.mark.parametrize(("line", "action"), LINES)
def test_a_line_names_the_action(line: str, action: str) -> None:
    assert denied(line) == action

"""What the lookups of selector terms share: EC2 filters, and errors that a user must fix.

Such errors become conditions of the node class. A throttled or failed call says nothing about the class, so its error
is raised, and the lookup is retried.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

from shared.base.aws import error_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from botocore.exceptions import ClientError
    from mypy_boto3_ec2.type_defs import FilterTypeDef

UNAUTHORIZED = "Unauthorized"
"""The reason of a condition where the lookup is denied."""
DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedAccess"})


class NotFoundError(LookupError):
    """What the class selects doesn't exist, or the lookup is denied. ``reason`` is the condition's, CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def raise_denied(error: ClientError, permission: str, context: str) -> NoReturn:
    """Raise which permission is missing if the call was denied, else the error as it is.

    Raises:
        NotFoundError: the call was denied.
        ClientError: it failed otherwise.
    """
    if error_code(error) not in DENIED:
        raise error
    raise NotFoundError("Unauthorized", f"{context}: the function's role needs {permission}") from error


def tag_filters(tags: Mapping[str, str]) -> list[FilterTypeDef]:
    """EC2 filters for the tags of a term; an empty value or ``*`` matches any value of the tag."""
    return [
        {"Name": "tag-key", "Values": [key]} if value in {"", "*"} else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]


def quoted_tags(tags: Mapping[str, str]) -> str:
    """Tags as they are written in a manifest."""
    return json.dumps(dict(sorted(tags.items())), ensure_ascii=False)


def no_match_message(resource: str, terms: Sequence[str]) -> str:
    """The message for terms that select nothing; each term has its path and value."""
    return f"no {resource} matches {' or '.join(terms)}"

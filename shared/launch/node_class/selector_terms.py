"""What looking something up on AWS can end in besides an answer: a refusal that a person must mend.

Only such refusals become conditions; a throttled or failed call is neither, and goes up to be tried again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from botocore.exceptions import ClientError
    from mypy_boto3_ec2.type_defs import FilterTypeDef

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "UnauthorizedAccess"})


class NotFoundError(LookupError):
    """What the class names isn't there, or may not be looked up. ``reason`` is the condition's, CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def code(error: ClientError) -> str:
    """AWS's error code."""
    return error.response.get("Error", {}).get("Code", "")


def denied(error: ClientError, permission: str, what: str) -> NoReturn:
    """Say what is not possible without the permission; any other error goes on as it is.

    Raises:
        NotFoundError: the call was denied.
        ClientError: it failed otherwise.
    """
    if code(error) not in DENIED:
        raise error
    raise NotFoundError("Unauthorized", f"{what}: the function's role needs {permission}") from error


def tag_filters(tags: Mapping[str, str]) -> list[FilterTypeDef]:
    """EC2 filters for the tags of a term; an empty value or ``*`` asks only that the tag is there."""
    return [
        {"Name": "tag-key", "Values": [key]} if value in {"", "*"} else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]


def quoted(tags: Mapping[str, str]) -> str:
    """Tags as they stand in a manifest."""
    return json.dumps(dict(sorted(tags.items())), ensure_ascii=False)


def none_matches(what: str, terms: Sequence[str]) -> str:
    """The sentence for terms that select nothing; each term names its field and value."""
    return f"no {what} matches {' or '.join(terms)}"

"""Removes from a report what must not be attached to a public issue: account ids, ARNs, keys, addresses."""

from __future__ import annotations

import re
from typing import Any

_PATTERNS = (
    (re.compile(r"arn:aws[\w-]*:[^\s\"'<>,;)\]]+"), "ARN"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), "ACCESS-KEY"),
    (re.compile(r"https://[\w.-]+\.eks\.amazonaws\.com[\w.]*"), "ENDPOINT"),
    (re.compile(r"\b\d{12}\b"), "ACCOUNT"),
    (re.compile(r"\b(?:\d{1,3}[.-]){3}\d{1,3}\b"), "ADDRESS"),
    (re.compile(r"\beyJ[\w-]{10,}(?:\.[\w-]+){1,2}"), "TOKEN"),
    (re.compile(r"k8s-aws-v1\.[\w-]+"), "TOKEN"),
)


def redacted(text: str) -> str:
    """The text without them.

    >>> redacted("arn:aws:iam::123456789012:role/r may not, says 123456789012 of ip-10-0-3-7.ec2.internal")
    'ARN may not, says ACCOUNT of ip-ADDRESS.ec2.internal'
    """
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redacted_values(value: object) -> Any:  # noqa: ANN401 (JSON)
    """The JSON value with every text in it redacted; names of fields stay."""
    match value:
        case str():
            return redacted(value)
        case list():
            return [redacted_values(v) for v in value]
        case dict():
            return {name: redacted_values(v) for name, v in value.items()}
    return value

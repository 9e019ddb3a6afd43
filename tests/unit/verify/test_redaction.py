"""Nothing that identifies an account is in a report, and its figures and names stay."""

from __future__ import annotations

import pytest

from cli.verify.redaction import redacted, redacted_values

SECRETS = {
    "arn:aws:iam::123456789012:role/Admin": "ARN",
    "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:queue": "ARN",
    "account 123456789012": "account ACCOUNT",
    "ASIAIOSFODNN7EXAMPLE": "ACCESS-KEY",
    "https://0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com": "ENDPOINT",
    "ip-10-0-12-7.ec2.internal and 10.0.12.7": "ip-ADDRESS.ec2.internal and ADDRESS",
    "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln": "Bearer TOKEN",
    "k8s-aws-v1.aHR0cHM6Ly9zdHM": "TOKEN",
}
KEPT = ["i-0123456789abcdef0", "tenon-verify-1a2b3c4d", "0.1234", "us-east-1", "2026-11-26T22:21:41+00:00", "1.37"]


@pytest.mark.parametrize("text", SECRETS)
def test_it_is_replaced(text: str) -> None:
    assert redacted(text) == SECRETS[text]


@pytest.mark.parametrize("text", KEPT)
def test_it_stays(text: str) -> None:
    assert redacted(text) == text


def test_every_text_of_a_value_is_redacted() -> None:
    value = {"a": ["arn:aws:iam::1:role/r", {"b": "123456789012"}], "count": 3, "passed": True, "none": None}
    assert redacted_values(value) == {"a": ["ARN", {"b": "ACCOUNT"}], "count": 3, "passed": True, "none": None}

"""The bearer token for EKS."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials

from shared.cluster.eks_token import TOKEN_PREFIX, TOKEN_TTL, NoCredentialsError, TokenSource, presign

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Session:
    def __init__(self, credentials: Credentials | None) -> None:
        self.credentials = credentials

    def get_credentials(self) -> Credentials | None:
        return self.credentials


class Expiring(Credentials):
    """Credentials with an expiry, as in botocore."""

    def __init__(self, expiry: datetime) -> None:
        super().__init__("AKIDEXAMPLE", "secret", "session")
        self._expiry_time = expiry


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


def opened(token: str) -> str:
    text = token.removeprefix(TOKEN_PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def test_a_token_is_a_presigned_request_that_names_the_cluster() -> None:
    token = presign(Credentials("AKIDEXAMPLE", "secret", "session"), region="eu-central-1", cluster="demo")
    assert token.startswith(TOKEN_PREFIX)
    assert "=" not in token
    url = urlsplit(opened(token))
    query = parse_qs(url.query)
    assert (url.scheme, url.netloc, url.path) == ("https", "sts.eu-central-1.amazonaws.com", "/")
    assert query["Action"] == ["GetCallerIdentity"]
    assert query["X-Amz-Expires"] == ["60"]
    assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
    assert query["X-Amz-Security-Token"] == ["session"]
    assert query["X-Amz-Credential"][0].endswith("/eu-central-1/sts/aws4_request")


def test_sts_has_another_domain_in_china() -> None:
    token = presign(Credentials("AKIDEXAMPLE", "secret"), region="cn-north-1", cluster="demo")
    assert urlsplit(opened(token)).netloc == "sts.cn-north-1.amazonaws.com.cn"


def test_a_token_is_cached_for_eleven_of_its_fifteen_minutes() -> None:
    clock = Clock()
    session = Session(Credentials("AKIDEXAMPLE", "secret"))
    source = TokenSource(session, region="eu-central-1", cluster="demo", now=clock.now)
    first = source()
    assert source.until == NOW + TOKEN_TTL == NOW + timedelta(minutes=11)
    clock.time += TOKEN_TTL - timedelta(seconds=1)
    assert source() == first
    assert source.until == NOW + TOKEN_TTL
    clock.time += timedelta(seconds=1)
    source()
    assert source.until == clock.time + TOKEN_TTL


def test_a_token_is_not_used_after_the_credentials_expire() -> None:
    end = NOW + timedelta(minutes=4)
    source = TokenSource(Session(Expiring(end)), region="eu-central-1", cluster="demo", now=lambda: NOW)
    source()
    assert source.until == end


def test_changed_credentials_give_a_new_token() -> None:
    session = Session(Credentials("AKIDEXAMPLE", "secret"))
    source = TokenSource(session, region="eu-central-1", cluster="demo", now=lambda: NOW)
    first = source()
    session.credentials = Credentials("AKIDOTHER", "secret")
    assert "AKIDOTHER" in opened(source())
    assert source() != first


def test_missing_credentials_raise() -> None:
    source = TokenSource(Session(None), region="eu-central-1", cluster="demo", now=lambda: NOW)
    with pytest.raises(NoCredentialsError):
        source()

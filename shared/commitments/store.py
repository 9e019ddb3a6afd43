"""The commitments in S3: one object next to the catalog, which functions read only where the deployment counts them.

The catalog function writes it each hour. A warm process asks S3 every five minutes whether it changed. Whatever is
wrong with it is a ``problem`` of the result instead of an error: without commitments all prices are list prices.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from shared.base.aws import error_code
from shared.commitments.commitment import Commitments

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_s3 import S3Client

    from shared.base.runtime import Runtime
    from shared.base.settings import CommitmentSettings

KEY = "commitments.bin"
"""The object's key. Commitments are the account's, so clusters of a fleet share them."""
VERSION = 1
"""The version of the stored form. One of another version counts as missing and is read again."""
ASKED_EVERY = timedelta(minutes=5)
"""How often a warm process asks S3 for newer commitments."""
MAX_AGE = timedelta(hours=6)
"""Commitments that were read before count no more: instances have come and gone, and plans may have ended."""
_NOT_FOUND = frozenset({"NoSuchKey", "404", "NoSuchBucket"})
_NOT_MODIFIED = frozenset({"304", "NotModified"})
_NOT_READ = "the catalog function hasn't read the account's commitments yet; it reads them hourly"


class MalformedCommitmentsError(ValueError):
    """The bytes are not commitments of this version."""


class _Version(msgspec.Struct):
    version: int = 0


class _Stored(msgspec.Struct):
    version: int
    commitments: Commitments


@dataclass
class _Cached:
    etag: str = ""
    commitments: Commitments | None = None
    problem: str = ""
    asked_at: datetime | None = None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Stored)


def load(
    settings: CommitmentSettings, bucket: str, *, s3: Callable[[], S3Client], runtime: Runtime
) -> Commitments | None:
    """The commitments that are active now; None if the deployment doesn't count them, and S3 isn't asked.

    The process (``runtime``) caches them.

    With a ``problem`` and without commitments if there are none in the bucket, or none that can be used.
    """
    if settings.commitments != "on":
        return None
    now = runtime.now()
    cached = _ask_if_due(s3(), bucket, runtime)
    commitments = cached.commitments
    if commitments is None:
        return Commitments(fetched_at=now, problem=cached.problem)
    if now - commitments.fetched_at > MAX_AGE:
        hours = MAX_AGE // timedelta(hours=1)
        problem = f"the last reading is of {commitments.fetched_at:%Y-%m-%d %H:%M} UTC, more than {hours} hours old"
        return Commitments(fetched_at=commitments.fetched_at, problem=problem)
    return commitments.active(now)


def last_reading(s3: S3Client, bucket: str, *, runtime: Runtime) -> Commitments | None:
    """The last reading, of any age; None if there is none that can be used."""
    return _ask_if_due(s3, bucket, runtime).commitments


def save(s3: S3Client, bucket: str, commitments: Commitments, *, runtime: Runtime) -> int:
    """Store the commitments in place of those before; returns their size in bytes.

    Raises:
        ClientError: S3 returned an error.
    """
    stored = encode(commitments)
    s3.put_object(Bucket=bucket, Key=KEY, Body=stored, ContentType="application/octet-stream")
    _cached(bucket, runtime).asked_at = None
    return len(stored)


def encode(commitments: Commitments) -> bytes:
    """The stored form; equal commitments give equal bytes."""
    return zlib.compress(_ENCODER.encode(_Stored(version=VERSION, commitments=commitments)), level=6)


def decode(stored: bytes) -> Commitments:
    """The commitments from their stored form.

    Raises:
        MalformedCommitmentsError: the bytes are not commitments, or of another version.
    """
    try:
        plain = zlib.decompress(stored)
        version = msgspec.msgpack.decode(plain, type=_Version).version
        if version != VERSION:
            raise MalformedCommitmentsError(f"they have version {version}; version {VERSION} is needed")
        return _DECODER.decode(plain).commitments
    except (zlib.error, msgspec.MsgspecError) as error:
        raise MalformedCommitmentsError(f"no commitments: {error}") from error


def _cached(bucket: str, runtime: Runtime) -> _Cached:
    return runtime.cached(f"commitments:{bucket}", _Cached)


def _ask_if_due(s3: S3Client, bucket: str, runtime: Runtime) -> _Cached:
    cached, now = _cached(bucket, runtime), runtime.now()
    if cached.asked_at is None or now - cached.asked_at >= ASKED_EVERY:
        _ask(s3, bucket, cached)
        cached.asked_at = now
    return cached


def _ask(s3: S3Client, bucket: str, cached: _Cached) -> None:
    """What S3 has now; if S3 can't be asked, the cached commitments stay, until they are too old."""
    try:
        if cached.commitments is not None:
            response = s3.get_object(Bucket=bucket, Key=KEY, IfNoneMatch=cached.etag)
        else:
            response = s3.get_object(Bucket=bucket, Key=KEY)
        cached.commitments, cached.etag = decode(response["Body"].read()), response["ETag"]
    except ClientError as error:
        code = error_code(error)
        if code in _NOT_FOUND:
            cached.commitments, cached.problem = None, _NOT_READ
        elif code not in _NOT_MODIFIED:
            cached.problem = f"s3://{bucket}/{KEY} can't be read: {error}"
    except BotoCoreError as error:
        cached.problem = f"s3://{bucket}/{KEY} can't be read: {error}"
    except MalformedCommitmentsError as error:
        cached.commitments, cached.problem = None, f"s3://{bucket}/{KEY}: {error}"

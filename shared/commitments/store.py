"""The commitments in S3: one object next to the catalog, which functions read only where the deployment counts them.

The catalog function writes it each hour. A warm process asks S3 every five minutes whether it changed. Whatever is
wrong with it is a ``problem`` of the result instead of an error: without commitments all prices are list prices.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.blobs import BlobForm
from shared.base.stored_objects import MalformedObjectError, ObjectLocation, StoredObject, read_object
from shared.base.struct import MutableStruct
from shared.commitments.commitment import Commitments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from shared.base.runtime import Runtime
    from shared.base.settings import CommitmentSettings

KEY = "commitments.bin"
"""The object's key. Commitments are the account's, so clusters of a fleet share them."""
FORM = BlobForm(Commitments, version=1, noun="commitments")
"""The stored form. Commitments of another version count as missing and are read again."""
ASKED_EVERY = timedelta(minutes=5)
"""How often a warm process asks S3 for newer commitments."""
MAX_AGE = timedelta(hours=6)
"""Commitments that were read before count no more: instances have come and gone, and plans may have ended."""
_NOT_READ = "the catalog function hasn't read the account's commitments yet; it reads them hourly"


class _Cached(MutableStruct):
    stored: StoredObject[Commitments] | None = None
    problem: str = ""
    asked_at: datetime | None = None


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
    if cached.stored is None:
        return Commitments(fetched_at=now, problem=cached.problem)
    commitments = cached.stored.value
    if now - commitments.fetched_at > MAX_AGE:
        hours = MAX_AGE // timedelta(hours=1)
        problem = f"the last reading is of {commitments.fetched_at:%Y-%m-%d %H:%M} UTC, more than {hours} hours old"
        return Commitments(fetched_at=commitments.fetched_at, problem=problem)
    return commitments.active(now)


def last_reading(s3: S3Client, bucket: str, *, runtime: Runtime) -> Commitments | None:
    """The last reading, of any age; None if there is none that can be used."""
    stored = _ask_if_due(s3, bucket, runtime).stored
    return stored.value if stored is not None else None


def save(s3: S3Client, bucket: str, commitments: Commitments, *, runtime: Runtime) -> int:
    """Store the commitments in place of those before; returns their size in bytes.

    Raises:
        ClientError: S3 returned an error.
    """
    stored = FORM.encode(commitments)
    s3.put_object(Bucket=bucket, Key=KEY, Body=stored, ContentType="application/octet-stream")
    _cached(bucket, runtime).asked_at = None
    return len(stored)


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
    at = ObjectLocation(bucket, KEY)
    try:
        cached.stored = read_object(s3, at, FORM, cached=cached.stored)
    except (BotoCoreError, ClientError) as error:
        cached.problem = f"{at} can't be read: {error}"
    except MalformedObjectError as error:
        cached.stored, cached.problem = None, str(error)
    else:
        cached.problem = _NOT_READ

"""Shadow mode's objects in S3: the record of a cluster, and one object for each day that has ended.

The record is written on the condition that nobody wrote it since it was read, so of two runs at once only one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import ClientError

from shared.base.aws import error_code
from shared.base.stored_objects import MalformedObjectError, ObjectLocation, read_object
from shared.shadow.record import DAY_FORM, FORM, Record

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from shared.shadow.ledger import Day

PREFIX = "shadow/"
_CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})


class RecordChangedError(RuntimeError):
    """Another run wrote the record since it was read."""


class StoredRecord(NamedTuple):
    """The record with its version in S3 ("": there is none yet), and why an older one couldn't be used ("": it was)."""

    record: Record
    etag: str
    problem: str = ""


def record_key(cluster: str) -> str:
    """The record's key."""
    return f"{PREFIX}{cluster}/record.bin"


def day_key(cluster: str, date: str) -> str:
    """The key of a day that has ended."""
    return f"{PREFIX}{cluster}/days/{date}.bin"


def load(s3: S3Client, bucket: str, cluster: str) -> StoredRecord:
    """The cluster's record; a new one if there is none, or none that can be used.

    Raises:
        ClientError: S3 refuses the call.
    """
    try:
        stored = read_object(s3, ObjectLocation(bucket, record_key(cluster)), FORM)
    except MalformedObjectError as error:
        return StoredRecord(Record(), error.etag, str(error))
    return StoredRecord(stored.value, stored.etag) if stored is not None else StoredRecord(Record(), "")


def save(s3: S3Client, bucket: str, cluster: str, record: Record, *, etag: str) -> int:
    """Write the record in place of the one with that ETag ("": if there is none); returns its size in bytes.

    Raises:
        RecordChangedError: another run wrote it.
        ClientError: S3 refuses the call.
    """
    stored = FORM.encode(record)
    key = record_key(cluster)
    try:
        if etag:
            s3.put_object(Bucket=bucket, Key=key, Body=stored, IfMatch=etag)
        else:
            s3.put_object(Bucket=bucket, Key=key, Body=stored, IfNoneMatch="*")
    except ClientError as error:
        if error_code(error) in _CHANGED:
            raise RecordChangedError(f"s3://{bucket}/{key} was written by another run") from error
        raise
    return len(stored)


def archive(s3: S3Client, bucket: str, cluster: str, day: Day) -> None:
    """Keep a day that has ended; writing it again writes the same.

    Raises:
        ClientError: S3 refuses the call.
    """
    s3.put_object(Bucket=bucket, Key=day_key(cluster, day.date), Body=DAY_FORM.encode(day))


def read_day(s3: S3Client, bucket: str, cluster: str, date: str) -> Day | None:
    """A day that has ended; None if it wasn't archived.

    Raises:
        ClientError: S3 refuses the call.
        MalformedObjectError: the object is not a day.
    """
    stored = read_object(s3, ObjectLocation(bucket, day_key(cluster, date)), DAY_FORM)
    return stored.value if stored is not None else None

"""The catalog in S3: one object in a bucket, cached in warm processes until its ETag changes.

Every run of most functions reads it, so a warm process only asks S3 whether it changed, and only every five minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.base import runtime
from shared.instance_types.catalog import InstanceTypeCatalog, MalformedCatalogError, decode, encode

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_s3 import S3Client

ASKED_EVERY = timedelta(minutes=5)
"""How often a warm process asks S3 for a newer catalog."""
_NOT_FOUND = frozenset({"NoSuchKey", "404", "NoSuchBucket"})
_NOT_MODIFIED = frozenset({"304", "NotModified"})


class CatalogMissingError(LookupError):
    """There is no catalog yet, or only one that is too old or of another version."""


@dataclass
class _CachedCatalog:
    etag: str = ""
    catalog: InstanceTypeCatalog | None = None
    asked_at: datetime | None = None

    def must_ask(self, now: datetime, max_age: timedelta | None) -> bool:
        """Whether S3 may have another one that is needed."""
        if self.catalog is None or self.asked_at is None or now - self.asked_at >= ASKED_EVERY:
            return True
        return max_age is not None and now - self.catalog.types_at > max_age


KEY = "catalog.bin"
"""The object's key. Instance types and prices are the account's and Region's, so clusters of a fleet share them."""


def load(s3: S3Client, bucket: str, *, max_age: timedelta | None) -> InstanceTypeCatalog:
    """The catalog in the bucket. ``max_age`` limits the age of its instance types (None: no limit).

    Raises:
        CatalogMissingError: there is no catalog, or no usable one.
    """
    cached, now = _cached(bucket), runtime.now()
    if cached.must_ask(now, max_age):
        _ask(s3, bucket, cached)
        cached.asked_at = now
    if cached.catalog is None:
        raise CatalogMissingError(f"s3://{bucket}/{KEY} is empty")
    age = now - cached.catalog.types_at
    if max_age is not None and age > max_age:
        raise CatalogMissingError(f"the catalog in s3://{bucket}/{KEY} is {age} old, more than {max_age}")
    return cached.catalog


def _cached(bucket: str) -> _CachedCatalog:
    return runtime.cached(f"catalog:{bucket}", _CachedCatalog)


def _ask(s3: S3Client, bucket: str, cached: _CachedCatalog) -> None:
    try:
        if cached.catalog is not None:
            response = s3.get_object(Bucket=bucket, Key=KEY, IfNoneMatch=cached.etag)
        else:
            response = s3.get_object(Bucket=bucket, Key=KEY)
        cached.catalog, cached.etag = decode(response["Body"].read()), response["ETag"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _NOT_FOUND:
            raise CatalogMissingError(f"no catalog in s3://{bucket}/{KEY}") from error
        if code not in _NOT_MODIFIED:
            raise
    except MalformedCatalogError as error:
        raise CatalogMissingError(f"s3://{bucket}/{KEY}: {error}") from error


def save(s3: S3Client, bucket: str, catalog: InstanceTypeCatalog) -> int:
    """Store the catalog in place of the one before; returns its size in bytes."""
    stored = encode(catalog)
    s3.put_object(Bucket=bucket, Key=KEY, Body=stored, ContentType="application/octet-stream")
    _cached(bucket).asked_at = None
    return len(stored)

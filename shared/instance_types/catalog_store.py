"""The catalog in S3: one object in a bucket, cached in warm processes until its ETag changes.

Every run of most functions reads it, so a warm process only asks S3 whether it changed, and only every five minutes.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import runtime
from shared.base.stored_objects import MalformedObjectError, ObjectLocation, StoredObject, read_object
from shared.base.struct import MutableStruct
from shared.instance_types.catalog import FORM, InstanceTypeCatalog

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log = logging.getLogger(__name__)

ASKED_EVERY = timedelta(minutes=5)
"""How often a warm process asks S3 for a newer catalog."""


class CatalogMissingError(LookupError):
    """There is no catalog yet, or only one that is too old or of another version."""


class _CachedCatalog(MutableStruct):
    stored: StoredObject[InstanceTypeCatalog] | None = None
    asked_at: datetime | None = None

    def must_ask(self, now: datetime, max_age: timedelta | None) -> bool:
        """Whether S3 may have another one that is needed."""
        if self.stored is None or self.asked_at is None or now - self.asked_at >= ASKED_EVERY:
            return True
        return max_age is not None and now - self.stored.value.types_at > max_age


KEY = "catalog.bin"
"""The object's key. Instance types and prices are the account's and Region's, so clusters of a fleet share them."""


def load(s3: S3Client, bucket: str, *, max_age: timedelta | None) -> InstanceTypeCatalog:
    """The catalog in the bucket. ``max_age`` limits the age of its instance types (None: no limit).

    Raises:
        CatalogMissingError: there is no catalog, or no usable one.
        ClientError, BotoCoreError: S3 can't be read, and this process hasn't read it before.
    """
    cached, now = _cached(bucket), runtime.now()
    if cached.must_ask(now, max_age):
        _ask(s3, bucket, cached)
        cached.asked_at = now
    if cached.stored is None:
        raise CatalogMissingError(f"no catalog in s3://{bucket}/{KEY}")
    age = now - cached.stored.value.types_at
    if max_age is not None and age > max_age:
        raise CatalogMissingError(f"the catalog in s3://{bucket}/{KEY} is {age} old, more than {max_age}")
    return cached.stored.value


def _cached(bucket: str) -> _CachedCatalog:
    return runtime.cached(f"catalog:{bucket}", _CachedCatalog)


def _ask(s3: S3Client, bucket: str, cached: _CachedCatalog) -> None:
    try:
        cached.stored = read_object(s3, ObjectLocation(bucket, KEY), FORM, cached=cached.stored)
    except MalformedObjectError as error:
        if cached.stored is None:
            raise CatalogMissingError(str(error)) from error
        # The next refresh of prices writes it again.
        _log.error("The catalog can't be read any more; the one before is used: %s", error)
    except (BotoCoreError, ClientError) as error:
        if cached.stored is None:
            raise
        # Types change seldom, and prices of an hour ago are better than no decision.
        _log.warning("The catalog can't be read again; the one before is used: %s", error)


def save(s3: S3Client, bucket: str, catalog: InstanceTypeCatalog) -> int:
    """Store the catalog in place of the one before; returns its size in bytes."""
    stored = FORM.encode(catalog)
    s3.put_object(Bucket=bucket, Key=KEY, Body=stored, ContentType="application/octet-stream")
    _cached(bucket).asked_at = None
    return len(stored)

"""The catalog in S3: one object a cluster, cached in warm processes until its ETag changes.

Every run of the provisioner reads it, so a warm process only asks S3 whether it changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import runtime
from shared.instance_types.catalog import InstanceTypeCatalog, MalformedCatalogError, decode, encode

if TYPE_CHECKING:
    from datetime import timedelta

    from mypy_boto3_s3 import S3Client

_NOT_FOUND = frozenset({"NoSuchKey", "404", "NoSuchBucket"})
_NOT_MODIFIED = frozenset({"304", "NotModified"})


class CatalogMissingError(LookupError):
    """There is no catalog yet, or only one that is too old or of another version."""


@dataclass
class _CachedCatalog:
    etag: str = ""
    catalog: InstanceTypeCatalog | None = None


def key(cluster: str) -> str:
    """The object's key."""
    return f"catalog/{cluster}.bin"


def load(s3: S3Client, bucket: str, cluster: str, *, max_age: timedelta | None) -> InstanceTypeCatalog:
    """The catalog of the cluster. ``max_age`` limits the age of its instance types (None: no limit).

    Raises:
        CatalogMissingError: there is no catalog, or no usable one.
    """
    cached = runtime.current().cached(f"catalog:{bucket}:{cluster}", _CachedCatalog)
    try:
        if cached.catalog is not None:
            response = s3.get_object(Bucket=bucket, Key=key(cluster), IfNoneMatch=cached.etag)
        else:
            response = s3.get_object(Bucket=bucket, Key=key(cluster))
        cached.catalog, cached.etag = decode(response["Body"].read()), response["ETag"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _NOT_FOUND:
            raise CatalogMissingError(f"no catalog in s3://{bucket}/{key(cluster)}") from error
        if code not in _NOT_MODIFIED:
            raise
    except MalformedCatalogError as error:
        raise CatalogMissingError(f"s3://{bucket}/{key(cluster)}: {error}") from error
    if cached.catalog is None:
        raise CatalogMissingError(f"s3://{bucket}/{key(cluster)} is empty")
    age = runtime.current().now() - cached.catalog.types_at
    if max_age is not None and age > max_age:
        raise CatalogMissingError(f"the catalog in s3://{bucket}/{key(cluster)} is {age} old, more than {max_age}")
    return cached.catalog


def save(s3: S3Client, bucket: str, cluster: str, catalog: InstanceTypeCatalog) -> int:
    """Store the catalog in place of the one before; returns its size in bytes."""
    stored = encode(catalog)
    s3.put_object(Bucket=bucket, Key=key(cluster), Body=stored, ContentType="application/octet-stream")
    return len(stored)

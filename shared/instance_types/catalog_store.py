"""Where the catalog is kept: one object a cluster in S3, and in memory for as long as its ETag stays.

Every start of the provisioner reads it, so a warm process asks only whether it changed.
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

_ABSENT = frozenset({"NoSuchKey", "404", "NoSuchBucket"})
_UNCHANGED = frozenset({"304", "NotModified"})


class CatalogMissingError(LookupError):
    """There is no catalog yet, or only one that is too old or of another version; the text says which."""


@dataclass
class _Warm:
    etag: str = ""
    catalog: InstanceTypeCatalog | None = None


def key(cluster: str) -> str:
    """The object's key."""
    return f"catalog/{cluster}.bin"


def load(s3: S3Client, bucket: str, cluster: str, *, max_age: timedelta | None) -> InstanceTypeCatalog:
    """The catalog of the cluster. ``max_age`` bounds the age of its types (None: any age will do).

    Raises:
        CatalogMissingError: there is none, or none that can be used.
    """
    warm = runtime.current().cached(f"catalog:{bucket}:{cluster}", _Warm)
    try:
        if warm.catalog is not None:
            answer = s3.get_object(Bucket=bucket, Key=key(cluster), IfNoneMatch=warm.etag)
        else:
            answer = s3.get_object(Bucket=bucket, Key=key(cluster))
        warm.catalog, warm.etag = decode(answer["Body"].read()), answer["ETag"]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in _ABSENT:
            raise CatalogMissingError(f"no catalog in s3://{bucket}/{key(cluster)}") from error
        if code not in _UNCHANGED:
            raise
    except MalformedCatalogError as error:
        raise CatalogMissingError(f"s3://{bucket}/{key(cluster)}: {error}") from error
    if warm.catalog is None:
        raise CatalogMissingError(f"s3://{bucket}/{key(cluster)} is empty")
    age = runtime.current().now() - warm.catalog.types_at
    if max_age is not None and age > max_age:
        raise CatalogMissingError(f"the catalog in s3://{bucket}/{key(cluster)} is {age} old, more than {max_age}")
    return warm.catalog


def save(s3: S3Client, bucket: str, cluster: str, catalog: InstanceTypeCatalog) -> int:
    """Keep the catalog in place of the one before; returns its size in bytes."""
    stored = encode(catalog)
    s3.put_object(Bucket=bucket, Key=key(cluster), Body=stored, ContentType="application/octet-stream")
    return len(stored)

"""Reads an object of S3 in its stored form, or says that it hasn't changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from botocore.exceptions import ClientError

from shared.base.aws import error_code
from shared.base.blobs import MalformedBlobError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from shared.base.blobs import BlobForm

T = TypeVar("T")
_NOT_FOUND = frozenset({"NoSuchKey", "404", "NoSuchBucket"})
_NOT_MODIFIED = frozenset({"304", "NotModified"})


class MalformedObjectError(ValueError):
    """The object's bytes are malformed; ``etag`` is what a write in its place needs."""

    def __init__(self, why: str, *, etag: str) -> None:
        super().__init__(why)
        self.etag = etag


class StoredObject(NamedTuple, Generic[T]):
    """A value that was read, and the ETag of its object."""

    value: T
    etag: str


class ObjectLocation(NamedTuple):
    """The bucket and the key of an object."""

    bucket: str
    key: str

    def __str__(self) -> str:
        """As messages show it."""
        return f"s3://{self.bucket}/{self.key}"


def read_object(
    s3: S3Client, at: ObjectLocation, form: BlobForm[T], *, cached: StoredObject[T] | None = None
) -> StoredObject[T] | None:
    """The object, or ``cached`` if it hasn't changed since; None if there is none.

    Raises:
        ClientError: S3 refuses the call.
        MalformedObjectError: the object is malformed.
    """
    try:
        if cached is None:
            answer = s3.get_object(Bucket=at.bucket, Key=at.key)
        else:
            answer = s3.get_object(Bucket=at.bucket, Key=at.key, IfNoneMatch=cached.etag)
    except ClientError as error:
        if error_code(error) in _NOT_FOUND:
            return None
        if error_code(error) in _NOT_MODIFIED:
            return cached
        raise
    try:
        return StoredObject(form.decode(answer["Body"].read()), answer["ETag"])
    except MalformedBlobError as error:
        raise MalformedObjectError(f"{at}: {error}", etag=answer["ETag"]) from error

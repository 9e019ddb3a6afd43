"""Uploads of assets to a user's bucket. Keys are hashes of contents, so that what is there is never uploaded twice."""

from __future__ import annotations

import tempfile
import zipfile
from typing import IO, TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError, ParamValidationError

from cli.errors import CommandError, UsageError
from cli.printable import echo
from shared.base.aws import error_code

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of files in archives, so that equal contents are equal archives: the first that the format has."""
_READABLE = 0o644 << 16
_MIB = 1024 * 1024


class Bucket:
    """A bucket, its Region, and the beginning of keys in it: "" or a folder with a slash at its end."""

    def __init__(self, name: str, prefix: str) -> None:
        """Look the bucket up.

        Raises:
            UsageError: there is no such bucket.
            CommandError: it isn't the user's.
            ClientError, BotoCoreError: S3 can't be called.
        """
        self.name = name
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        try:
            description = boto3.client("s3").head_bucket(Bucket=name)
        except ParamValidationError as error:
            raise UsageError(f"--bucket={name}: is no bucket's name") from error
        except ClientError as error:
            match error_code(error):
                case "404" | "NoSuchBucket":
                    raise UsageError(
                        f"--bucket={name}: there is no such bucket; create it: aws s3 mb s3://{name} --region REGION"
                    ) from error
                case "403" | "AccessDenied":
                    raise CommandError(
                        f"--bucket={name}: AWS denies access: it is another account's, or your IAM principal lacks "
                        "s3:ListBucket on it"
                    ) from error
            raise
        self.region = str(description.get("BucketRegion") or "us-east-1")
        self._s3: Any = boto3.client("s3", region_name=self.region)

    def has(self, key: str) -> bool:
        """Whether the bucket has an object."""
        try:
            self._s3.head_object(Bucket=self.name, Key=f"{self.prefix}{key}")
        except ClientError as error:
            if error_code(error) in {"404", "NoSuchKey", "403", "AccessDenied"}:
                return False  # 403: it may be there, but can't be read; an upload says more
            raise
        return True

    def put(self, key: str, body: IO[bytes] | bytes) -> None:
        """Upload an object."""
        self._s3.put_object(Bucket=self.name, Key=f"{self.prefix}{key}", Body=body)

    def url(self, key: str) -> str:
        """The URL of an object, as CloudFormation takes it."""
        suffix = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return f"https://{self.name}.s3.{self.region}.{suffix}/{self.prefix}{key}"


def upload(bucket: Bucket, key: str, path: Path) -> None:
    """Upload a file, or a folder as an archive, unless the bucket has it."""
    if bucket.has(key):
        echo(f"  {bucket.prefix}{key}: is there", err=True)
        return
    with tempfile.TemporaryFile() as archive:
        if path.is_dir():
            _archive(path, archive)
        else:
            archive.write(path.read_bytes())
        size = archive.tell() / _MIB
        archive.seek(0)
        bucket.put(key, archive)
    echo(f"  {bucket.prefix}{key}: uploaded, {size:.1f} MiB", err=True)


def _archive(folder: Path, target: IO[bytes]) -> None:
    """Write the folder as an archive whose bytes only depend on its files."""
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EPOCH)
            entry.external_attr = _READABLE  # Lambda reads it as another user
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())

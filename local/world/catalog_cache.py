"""A cache of the instance type catalog under build/, so that worlds start faster.

Fetching 1,400 instance types from moto takes seconds and always gives the same catalog. It is cached by a hash of all
that it depends on, and gets the time of the world that uses it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from infra import installation
from local.aws.cloud import Cloud
from local.clock import Clock
from shared.base import aws, runtime
from shared.base.struct import with_fields
from shared.instance_types import catalog, catalog_store
from shared.instance_types.refresh import refresh

if TYPE_CHECKING:
    from datetime import datetime

CHECKOUT = Path(__file__).resolve().parent.parent.parent
_SOURCES = (
    "functions/catalog",
    "shared/base/blobs.py",
    "shared/instance_types",
    "local/aws/prices.py",
    "local/aws/pricing_api.py",
    "local/aws/spot_price_history.py",
)


def restore(bucket: str, *, region: str, seed: int, now: datetime) -> bool:
    """Store the cached catalog in the bucket, as the catalog function does. False if none is cached."""
    cached = load(region=region, seed=seed, now=now)
    if cached is None:
        return False
    catalog_store.save(boto3.client("s3"), bucket, cached)
    return True


def load(*, region: str, seed: int, now: datetime) -> catalog.InstanceTypeCatalog | None:
    """The cached catalog with the given time, or None."""
    path = _path(region, seed)
    if not path.is_file():
        return None
    return with_fields(_read(path), types_at=now, prices_at=now)


@functools.lru_cache(maxsize=4)
def _read(path: Path) -> catalog.InstanceTypeCatalog:
    return catalog.FORM.decode(path.read_bytes())


def load_or_fetch(*, region: str, seed: int, now: datetime) -> catalog.InstanceTypeCatalog:
    """The cached catalog; if there is none, it is fetched from a local AWS and cached."""
    cached = load(region=region, seed=seed, now=now)
    if cached is not None:
        return cached
    clock = Clock(now)
    with (
        Cloud(now=clock.now, sleep=clock.sleep, region=region, seed=seed),
        runtime.using(runtime.Runtime(environ={}, now=clock.now, sleep=clock.sleep)),
    ):
        fetched = refresh(aws, None, requested=None, region=region, now=now).catalog
    save(fetched, region=region, seed=seed)
    return fetched


def save_stored(bucket: str, *, region: str, seed: int) -> None:
    """Cache the catalog that the catalog function stored in the bucket."""
    body = boto3.client("s3").get_object(Bucket=bucket, Key=catalog_store.KEY)["Body"].read()
    save(catalog.FORM.decode(body), region=region, seed=seed)


def save(fetched: catalog.InstanceTypeCatalog, *, region: str, seed: int) -> None:
    """Cache a catalog."""
    path = _path(region, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = catalog.FORM.encode(fetched)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(body)
    os.replace(file.name, path)  # noqa: PTH105 - atomic: another process may do the same


@functools.cache
def _path(region: str, seed: int) -> Path:
    digest = hashlib.sha256(f"{region} {seed} {importlib.metadata.version('moto')}".encode())
    for source in _SOURCES:
        path = CHECKOUT / source
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(file.read_bytes())
    return installation.build_folder(installation.ROOT) / "catalog" / f"{digest.hexdigest()[:16]}.bin"

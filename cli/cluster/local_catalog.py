"""EC2's instance types where AWS isn't asked: those of the local world, with made-up prices.

A wheel has those of one Region, so that commands that read files need no local world.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infra import installation
from shared.base.struct import with_fields
from shared.instance_types import catalog

if TYPE_CHECKING:
    from datetime import datetime

REGION = "us-east-1"
"""The Region whose instance types a wheel has."""
IN_WHEEL = Path(__file__).with_name("local_catalog.bin")


def read(region: str, now: datetime) -> catalog.InstanceTypeCatalog:
    """The catalog of a Region that exists, as of now.

    Raises:
        MissingExtraError: it isn't in the wheel, and the local world isn't installed.
    """
    if region == REGION and IN_WHEEL.is_file():
        return with_fields(catalog.FORM.decode(IN_WHEEL.read_bytes()), types_at=now, prices_at=now)
    installation.require("demo", f"the catalog of {region} without AWS")
    from local.world import catalog_cache  # noqa: PLC0415 (slow to import: the local AWS)

    return catalog_cache.load_or_fetch(region=region, seed=0, now=now)

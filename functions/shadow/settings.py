"""Settings of the shadow function, from environment variables."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec

from shared.base.settings import Settings


class ShadowSettings(Settings, frozen=True, kw_only=True):
    """The bucket of the catalog and the record, the minutes between two runs, and the NodePools to decide with.

    ``shadow_pools`` are NodePools and node classes (:func:`pack`); empty: the cluster's own.
    """

    catalog_bucket: str
    shadow_interval: int
    shadow_pools: str = ""

    @property
    def pools(self) -> list[dict[str, Any]]:
        """The NodePools and node classes, as JSON."""
        return unpack(self.shadow_pools) if self.shadow_pools else []


def pack(objects: list[dict[str, Any]]) -> str:
    """Objects as the text of an environment variable."""
    return base64.b85encode(zlib.compress(msgspec.json.encode(objects), level=9)).decode()


def unpack(text: str) -> list[dict[str, Any]]:
    """The objects of :func:`pack`."""
    objects: list[dict[str, Any]] = msgspec.json.decode(zlib.decompress(base64.b85decode(text)))
    return objects

"""The environment variables of the catalog function."""

from __future__ import annotations

from shared.settings import Settings


class CatalogSettings(Settings, frozen=True, kw_only=True):
    """The bucket of the catalog."""

    catalog_bucket: str

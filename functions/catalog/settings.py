"""What the catalog function is told by its environment."""

from __future__ import annotations

from shared.settings import Settings


class CatalogSettings(Settings, frozen=True, kw_only=True):
    """The bucket that holds the catalog."""

    catalog_bucket: str

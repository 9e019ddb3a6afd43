"""What provisioning is told by the environment of the function that provisions."""

from __future__ import annotations

from shared.settings import Settings


class ProvisioningSettings(Settings, frozen=True, kw_only=True):
    """The bus asks for a catalog, the table keeps unavailable offerings, the bucket holds the catalog."""

    event_bus_name: str
    table_name: str
    catalog_bucket: str
    node_instance_profile: str

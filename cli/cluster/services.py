"""The Services of the cluster that a command reads, for what is shown of traffic between zones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.traffic.service import Service
from shared.base.struct import Struct
from shared.cluster import listing
from shared.cluster.errors import ApiError
from shared.cluster.resources import Resource

if TYPE_CHECKING:
    from shared.cluster.client import Client

SERVICES = Resource(plural="services", kind="Service", namespaced=True)


class ObservedServices(Struct, kw_only=True):
    """The Services; ``problem`` is why they aren't known, empty if they are."""

    services: tuple[Service, ...] = ()
    problem: str = ""


def read_services(client: Client) -> ObservedServices:
    """All Services of the cluster; only what is shown needs them, so an error is no more than a problem."""
    try:
        return ObservedServices(services=listing.list_objects(client, SERVICES, Service).objects)
    except ApiError as error:
        return ObservedServices(problem=f"Services can't be read: {error}")

"""Control planes of their own for comparisons: an API server alone, or a cluster with a scheduler."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kubernetes.client.rest import RESTClientObject

from local.clock import RealTimeClock
from local.real import binary
from local.real.control_plane import ControlPlane
from local.real.store import RemoteStore
from shared.api import crds
from tests.real.differential.object_servers import RealServer
from tests.real.scheduling import RealCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.cluster.client import Client


@contextlib.contextmanager
def api_server(kubernetes: str = binary.EMBEDDED) -> Iterator[tuple[RealServer, RemoteStore]]:
    """An API server without controllers, with Karpenter's definitions, and its objects."""
    with (
        ControlPlane(kubernetes=kubernetes, components=()) as control_plane,
        _objects(control_plane) as (store, client),
    ):
        transport = RESTClientObject(client._configuration)
        server = RealServer(transport, control_plane.url, control_plane.admin_token)
        try:
            server.prepare(crds.load())
            yield server, store
        finally:
            transport.pool_manager.clear()


@contextlib.contextmanager
def scheduler(kubernetes: str = binary.EMBEDDED) -> Iterator[RealCluster]:
    """A cluster with a scheduler and controllers, and without nodes."""
    with ControlPlane(kubernetes=kubernetes) as control_plane, _objects(control_plane) as (store, _):
        yield RealCluster(store, kubernetes, control_plane.pending_pods)


@contextlib.contextmanager
def _objects(control_plane: ControlPlane) -> Iterator[tuple[RemoteStore, Client]]:
    """The control plane's objects, and the client that reads them."""
    client = control_plane.client()
    store = RemoteStore(client, now=RealTimeClock().now)
    try:
        yield store, client
    finally:
        store.close()
        client.close()

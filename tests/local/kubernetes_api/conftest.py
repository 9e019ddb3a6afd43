from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import kubernetes.client
import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Cluster:
    """A served store, and the official client for it."""

    store: Store
    server: Server
    client: Any

    def pod(self, name: str, *, node: str = "", **metadata: object) -> dict[str, Any]:
        body = {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}
        pod = self.store.create(kinds.PODS, body)
        return self.store.bind("default", name, node) if node else pod


def client_of(server: Server, folder: Path, token: str = ADMIN_TOKEN) -> Any:
    authority = folder / "ca.pem"
    authority.write_text(server.ca_pem)
    configuration = kubernetes.client.Configuration()
    configuration.host = server.url
    configuration.ssl_ca_cert = str(authority)
    configuration.api_key = {"authorization": token}
    configuration.api_key_prefix = {"authorization": "Bearer"}
    return kubernetes.client.ApiClient(configuration)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = Store(now=lambda: datetime.now(UTC))
    with Server(store) as server:
        client = client_of(server, tmp_path)
        yield Cluster(store, server, client)
        client.rest_client.pool_manager.clear()

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store
from shared.cluster.client import Client
from shared.cluster.connect import configuration
from shared.cluster.resources import (
    NODE_CLAIMS,
    NODE_CLASSES,
    NODE_POOLS,
    NODE_TEMPLATES,
    PODS,
    PROVISIONERS,
    Resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFINITIONS = Resource(
    group="apiextensions.k8s.io", plural="customresourcedefinitions", kind="CustomResourceDefinition"
)


class Clock:
    """A clock that tests set; sleeping advances it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 21, 12, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[Server]:
    with Server(Store(now=clock.now)) as running:
        yield running


@pytest.fixture
def make_client(server: Server, clock: Clock) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def make() -> Client:
        client = Client(
            configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), sleep=clock.sleep, jitter=lambda: 1.0
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client: Callable[[], Client]) -> Client:
    return make_client()


def define(client: Client, resource: Resource) -> None:
    """Define a kind that accepts any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    client.create(
        DEFINITIONS.path(),
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": DEFINITIONS.kind,
            "metadata": {"name": f"{resource.plural}.{resource.group}"},
            "spec": {
                "group": resource.group,
                "names": {
                    "plural": resource.plural,
                    "singular": resource.kind.lower(),
                    "kind": resource.kind,
                    "listKind": f"{resource.kind}List",
                },
                "scope": "Cluster",
                "versions": [version],
            },
        },
    )


@pytest.fixture
def karpenter(client: Client) -> None:
    for resource in (NODE_POOLS, NODE_CLAIMS, NODE_CLASSES, PROVISIONERS, NODE_TEMPLATES):
        define(client, resource)


def pod(name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
    }


@pytest.fixture
def add_pod(client: Client) -> Callable[..., None]:
    def add(name: str, **spec: object) -> None:
        client.create(PODS.path(namespace="default"), pod(name, **spec))

    return add


@pytest.fixture
def add(client: Client) -> Callable[..., None]:
    """Create a cluster-scoped object of any kind."""

    def create(resource: Resource, name: str, **fields: object) -> None:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
        client.create(resource.path(), obj)

    return create


@pytest.fixture
def stored(server: Server) -> Callable[[], list[str]]:
    """The names of all pods in the server."""
    from local.kubernetes import kinds  # noqa: PLC0415 (keeps the fixture's needs with it)

    return lambda: sorted(obj["metadata"]["name"] for obj in server.store.list(kinds.PODS))

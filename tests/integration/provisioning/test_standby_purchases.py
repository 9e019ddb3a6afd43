"""When NodePools may buy standby nodes: at most once a minute each, whatever other NodePools buy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes.apiserver.server import ADMIN_TOKEN, Server
from local.kubernetes.registry.store import Store
from shared.cluster.client import Client
from shared.cluster.connect import configuration
from shared.scheduling.decision import CheapestOffering, PlannedNodeClaim
from shared.standby.purchases import StandbyPlan, reserve

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def client() -> Iterator[Client]:
    with Server(Store(now=lambda: NOW)) as server:
        client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN))
        yield client
        client.close()


def allowed(client: Client, *missing: str, seconds: int) -> list[str]:
    """The NodePools that may buy at that second, of those that miss standby nodes."""
    plan = StandbyPlan(by_pool={pool: (standby(pool),) for pool in missing}, problems={})
    reserved = reserve(client, plan, cluster="demo", now=NOW + timedelta(seconds=seconds))
    return [claim.node_pool for claim in reserved]


def standby(pool: str) -> PlannedNodeClaim:
    return PlannedNodeClaim(
        node_pool=pool,
        pods=(),
        instance_types=("m5.large",),
        requirements=(),
        requests={},
        labels={},
        taints=(),
        cheapest=CheapestOffering(instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand", price=0.1),
    )


def test_a_nodepool_buys_once_a_minute_although_another_has_bought_meanwhile(client: Client) -> None:
    assert allowed(client, "red", seconds=0) == ["red"]
    assert allowed(client, "red", "blue", seconds=30) == ["blue"]
    assert allowed(client, "red", seconds=40) == []
    assert allowed(client, "red", "blue", seconds=60) == ["red"]

"""Spot with open eyes: interruptions that were lived move pods elsewhere, and annotations bound what is launched."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.interruption.interruption_records import PoolNotices, add
from local.world import World, sample_objects
from shared.api import labels as names
from shared.base import aws, runtime
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
REQUESTS = {"cpu": "900m", "memory": "900Mi"}
SPOT = {"karpenter.sh/capacity-type": ["spot"], "karpenter.k8s.aws/instance-cpu": ["2", "4"]}


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def start(world: World, requirements: dict[str, list[str]] = SPOT, **annotations: str) -> None:
    """A NodePool with these annotations, and one pod with its node."""
    full = {f"tenon.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    pool = sample_objects.node_pool(requirements, annotations=full, disruption=disruption)
    world.apply([sample_objects.node_class(world), pool, sample_objects.deployment("web", 1, REQUESTS)])
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)


def pools(world: World) -> list[tuple[str, str]]:
    """The instance type and zone of each node."""
    return [(n["metadata"]["labels"][names.INSTANCE_TYPE], n["metadata"]["labels"][names.ZONE]) for n in world.nodes()]


def condition(world: World) -> dict[str, Any] | None:
    """The NodePool's condition of its annotations."""
    pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    return next((c for c in pool["status"]["conditions"] if c["type"] == "SpotOptionsValid"), None)


@pytest.mark.flow
def test_a_pool_with_many_interruptions_is_more_expensive_for_launches_and_consolidation(world: World) -> None:
    start(world)
    (risky,), (before,) = pools(world), world.claims()
    environ = world.aws.deployed.function("interruption").environ
    with runtime.using(runtime.Runtime(environ=environ, now=world.clock.now)):
        lived = PoolNotices(pool=risky, notices=500, interrupted_hours=300, running_hours=0)
        add(aws.dynamodb(), environ["TENON_TABLE_NAME"], [lived], now=world.clock.now())
    world.scale("default", "web", 6)
    world.run_until(lambda: len(world.pods(phase="Running")) == 6, limit=5 * MINUTE)
    world.run_for(3 * MINUTE)
    assert pools(world).count(risky) == 1
    (claim,) = (c for c in world.claims() if c["metadata"]["name"] == before["metadata"]["name"])
    (blocked,) = (
        e for e in events(world, "Unconsolidatable") if e["involvedObject"]["name"] == claim["status"]["nodeName"]
    )
    assert "saving $0.00" in blocked["message"]  # as much as two nodes of a calm pool, and its pod's restart costs more


def test_nodeclaims_list_as_many_types_as_the_annotation_says(world: World) -> None:
    start(world, spot_diversity="20", spot_allocation_strategy="capacity-optimized")
    (claim,) = world.claims()
    (listed,) = (r["values"] for r in claim["spec"]["requirements"] if r["key"] == names.INSTANCE_TYPE)
    assert len(listed) >= 20
    assert condition(world) is None


def test_no_spot_instance_above_the_share_of_the_on_demand_price(world: World) -> None:
    start(world, {**SPOT, "karpenter.sh/capacity-type": ["spot", "on-demand"]}, max_spot_price_share="0.01")
    (node,) = world.nodes()
    assert node["metadata"]["labels"][names.CAPACITY_TYPE] == names.ON_DEMAND


def test_an_invalid_annotation_has_a_condition_and_its_default(world: World) -> None:
    start(world, spot_diversity="lots")
    world.run_for(2 * MINUTE)
    stated = condition(world)
    assert stated is not None
    assert (stated["status"], stated["reason"]) == ("False", "InvalidAnnotation")
    assert 'tenon.sh/spot-diversity: "lots" must be a number from 1 to 60' in stated["message"]
    assert [e for e in events(world, "InvalidAnnotation") if e["involvedObject"]["kind"] == "NodePool"]

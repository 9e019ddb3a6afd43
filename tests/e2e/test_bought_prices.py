"""What is bought costs what was planned, the log says so, and EC2's partial capacity changes only what it must."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from local.world.sample_objects import deployment
from shared.base import aws, decision_log, runtime
from shared.instance_types import interruption_rates
from shared.launch.ec2_cloud_provider import read_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.base.decision_log import LaunchRecord

pytestmark = pytest.mark.flow

SPOT = {"karpenter.sh/capacity-type": ["spot"], "kubernetes.io/arch": ["amd64"]}


@pytest.fixture(scope="module")
def mixed() -> Iterator[World]:
    """200 pods of ten Deployments with random requests, running."""
    rng = random.Random(1)  # noqa: S311 - the sizes of pods
    with World(cluster="demo") as world:
        for i in range(10):
            requests = {
                "cpu": f"{rng.choice((100, 250, 500, 750, 1500))}m",
                "memory": f"{rng.choice((256, 768, 2048))}Mi",
            }
            world.apply(deployment(f"mix-{i}", 20, requests))
        world.run_for(timedelta(seconds=20))
        requirements = SPOT | {"karpenter.k8s.aws/instance-category": ["c", "m", "r"]}
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements, disruption=disruption)])
        world.run_until(lambda: len(world.pods(phase="Running")) == 200)
        world.run_for(timedelta(minutes=3))
        yield world


def launches(world: World) -> tuple[LaunchRecord, ...]:
    """The decision log's launches."""
    environ = world.aws.deployed.function("provisioner").environ
    with runtime.using(runtime.Runtime(environ=environ, now=world.clock.now)):
        start = world.timeline.all[0].at
        return decision_log.launches_since(aws.dynamodb(), environ["TENON_TABLE_NAME"], start)


def price_of_nodes(world: World) -> float:
    """USD per hour of all nodes."""
    return sum(world.aws.prices.spot(*pool_of(node)) for node in world.nodes())


def pool_of(node: dict[str, Any]) -> tuple[str, str]:
    """The instance type and zone of a node."""
    labels = node["metadata"]["labels"]
    return labels["node.kubernetes.io/instance-type"], labels["topology.kubernetes.io/zone"]


def test_bought_is_at_most_two_percent_above_planned(mixed: World) -> None:
    records = launches(mixed)
    planned, bought = sum(r.planned for r in records), sum(r.bought for r in records)
    assert 0 < planned <= bought <= 1.02 * planned
    assert bought == pytest.approx(price_of_nodes(mixed), rel=1e-6)


def test_realised_is_the_price_of_all_nodes_once_the_pods_of_the_decision_run(mixed: World) -> None:
    records = launches(mixed)
    assert sum(r.nodes for r in records) == len(mixed.nodes())
    assert records[0].before == 0.0
    assert records[0].pods == 200
    assert [r.realised for r in records] == [pytest.approx(price_of_nodes(mixed), rel=1e-6)] * len(records)
    lines = [
        line
        for invocation in mixed.aws.functions.invocations
        for line in invocation.logs
        if line["message"] == "The pods of a decision run"
    ]
    assert sorted(line["decision"] for line in lines) == sorted(r.decision for r in records)


def test_interruptions_are_counted_by_pool(mixed: World) -> None:
    node = mixed.nodes()[0]
    mixed.interrupt_spot([node["spec"]["providerID"].rpartition("/")[2]])
    mixed.run_for(timedelta(minutes=1))
    environ = mixed.aws.deployed.function("interruption").environ
    with runtime.using(runtime.Runtime(environ=environ, now=mixed.clock.now)):
        table, now = environ["TENON_TABLE_NAME"], mixed.clock.now()
        rates = read_conditions(aws.dynamodb(), table, commitments=None, now=now).interruption_rates
    assert rates.keys() == {pool_of(node)}
    assert rates[pool_of(node)] == pytest.approx(interruption_rates.rate(1, 0), rel=0.01)  # it has run for minutes

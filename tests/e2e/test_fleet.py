"""Two clusters of one fleet share a catalog, an alarm's metric and a queue of undelivered events."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from cli.status import deployment
from infra.cluster import resource_names
from local.kubernetes import kinds
from local.world.fleet_world import FleetWorld, MemberCluster
from shared.base import hints, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLEET = "prod"
OWNER = resource_names.of_fleet(FLEET)
UNDELIVERED = resource_names.queue(OWNER, "undelivered", fifo=False)


@pytest.fixture
def fleet() -> Iterator[FleetWorld]:
    with FleetWorld(fleet=FLEET, clusters=("blue", "green")) as world:
        yield world
        assert world.denied_requests() == []


@pytest.fixture
def with_pools(fleet: FleetWorld, load: Callable[[str], list[dict[str, Any]]]) -> FleetWorld:
    for name, member in fleet.clusters.items():
        member.apply(json.loads(json.dumps(load("spot-default.yaml")).replace('"demo"', f'"{name}"')))
    return fleet


def scale(member: MemberCluster, replicas: int) -> None:
    member.control_plane.store.patch(
        kinds.DEPLOYMENTS, "inflate", {"spec": {"replicas": replicas}}, namespace="default"
    )


def reports(world: FleetWorld, dimension: str) -> list[dict[str, Any]]:
    """What was written as the metric of what isn't well, with this one dimension."""
    written = (line for invocation in world.aws.functions.invocations for line in invocation.metrics)
    return [
        line
        for line in written
        if metrics.UNWELL in line and line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [[dimension]]
    ]


def reasons(world: FleetWorld) -> set[tuple[str, str]]:
    return {(line["cluster"], line["reason"]) for line in reports(world, metrics.FLEET)}


def test_the_roles_of_the_fleets_functions_are_enforced_like_those_of_its_clusters(fleet: FleetWorld) -> None:
    for deployed in fleet.aws.stacks:
        for function in deployed.role_names():
            assert fleet.aws.enforcement.statements(function)


@pytest.mark.flow
def test_pending_pods_of_each_cluster_get_nodes_with_the_one_catalog(with_pools: FleetWorld) -> None:
    world = with_pools
    (bucket,) = (b["Name"] for b in boto3.client("s3").list_buckets()["Buckets"] if "cdk" not in b["Name"])
    boto3.client("s3").delete_object(Bucket=bucket, Key="catalog.bin")  # a hint of a cluster has it fetched
    for member in world.clusters.values():
        scale(member, 3)
    world.run_until(lambda: all(len(m.pods(phase="Running")) == 3 for m in world.clusters.values()))
    for name, member in world.clusters.items():
        tag = f"kubernetes.io/cluster/{name}"
        running = world.aws.instances.running.values()
        own = [i for i in running if tag in {t["key"] for t in i.get_tags()}]
        assert len(own) == len(member.nodes()) >= 1
    stored = boto3.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert [stored_object["Key"] for stored_object in stored] == ["catalog.bin"]
    senders = {i.event["detail"]["cluster"] for i in world.invocations("", "catalog") if "detail" in i.event}
    assert senders
    assert senders <= set(world.clusters)
    world.run_for(timedelta(minutes=40))  # longer than a cluster's silence may be from its deployment on
    assert world.failures() == []
    assert reasons(world) == set()


def test_an_undelivered_event_is_in_the_fleets_queue_and_its_cluster_is_named(fleet: FleetWorld) -> None:
    detail = json.dumps({"cluster": "blue", "keys": 7})
    boto3.client("events").put_events(
        Entries=[
            {
                "EventBusName": "tenon-blue",
                "Source": hints.RELAY,
                "DetailType": hints.NODES_CHANGED,
                "Detail": detail,
            }
        ]
    )
    fleet.run_for(timedelta(minutes=8))
    (letter,) = fleet.aws.dead_letters()
    record = json.loads(letter.body)
    assert letter.queue == UNDELIVERED
    assert record["requestContext"]["functionArn"].endswith(":function:tenon-blue-lifecycle:$LATEST")
    assert record["requestPayload"]["detail"]["cluster"] == "blue"
    assert reasons(fleet) == {("blue", "dead-letters"), ("blue", "function-errors")}
    # The alarm reads the fleet's metric. The cluster's has the same values, for a graph that says which one it is.
    (first, *_) = (line for line in reports(fleet, metrics.FLEET) if line["reason"] == "dead-letters")
    assert (first["fleet"], first[metrics.UNWELL]) == (FLEET, [metrics.ALARMING])
    assert "tenon-blue-lifecycle" in first["why"]
    assert {line["cluster"] for line in reports(fleet, metrics.CLUSTER)} == {"blue"}
    blue, green = (deployment.read(name, None, now=fleet.clock.now()) for name in fleet.clusters)
    assert [q.dead for q in blue.queues if q.name == "undelivered"] == [1]
    assert {(status.fleet, status.healthy) for status in (blue, green)} == {(FLEET, False)}
    troubles = [*(f.trouble for f in green.functions), *(q.trouble for q in green.queues)]
    assert not any(troubles)


def test_a_cluster_whose_functions_dont_run_is_reported_and_no_other(fleet: FleetWorld) -> None:
    fleet.run_for(timedelta(minutes=6))
    boto3.client("events").disable_rule(Name=resource_names.rule("green", "Sweep"))
    # Ten minutes of silence, of which the last sweep's event may have come late, and a check every five minutes.
    fleet.run_until(lambda: bool(reasons(fleet)), limit=timedelta(minutes=20))
    fleet.run_for(timedelta(minutes=10))
    assert reasons(fleet) == {("green", "cluster-silent")}
    assert {tuple(line[metrics.UNWELL]) for line in reports(fleet, metrics.FLEET)} == {(metrics.ALARMING,)}


def test_a_cluster_that_never_ran_is_reported_half_an_hour_after_it_was_added(fleet: FleetWorld) -> None:
    boto3.client("events").disable_rule(Name=resource_names.rule("green", "Sweep"))
    fleet.run_for(timedelta(minutes=29))
    assert reasons(fleet) == set()
    fleet.run_for(timedelta(minutes=4))
    assert reasons(fleet) == {("green", "cluster-silent")}


def test_clusters_go_on_without_what_they_share(with_pools: FleetWorld) -> None:
    world = with_pools
    for id_ in ("RefreshPrices", "RefreshTypes", "CheckFleet"):
        boto3.client("events").disable_rule(Name=resource_names.rule(OWNER, id_))
    boto3.client("dynamodb").delete_table(TableName=resource_names.table(OWNER, "sweeps"))
    boto3.client("sqs").delete_queue(QueueUrl=boto3.client("sqs").get_queue_url(QueueName=UNDELIVERED)["QueueUrl"])
    world.run_for(timedelta(hours=2))
    for member in world.clusters.values():
        scale(member, 4)
    world.run_until(lambda: all(len(m.pods(phase="Running")) == 4 for m in world.clusters.values()))
    assert world.failures() == []

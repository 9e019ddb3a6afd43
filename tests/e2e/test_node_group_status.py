"""ConfigMap cluster-autoscaler-status says what happens to node groups, in Cluster Autoscaler's words."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml

from infra.cluster.kubernetes.cluster_manifests import bus_name
from local.kubelets.behavior import Timing
from local.kubernetes import kinds
from local.world import World, sample_objects
from shared.base import metrics
from tests.e2e.node_groups import LARGE, LIMIT, all_run, managed_node_group, node_of, options, scaling, sizes, two_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)
NAME = "cluster-autoscaler-status"
UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo", options=scaling()) as world:
        yield world


def config_map(world: World) -> dict[str, Any] | None:
    return next((c for c in world.store.list(kinds.CONFIG_MAPS) if c["metadata"]["name"] == NAME), None)


def status(world: World) -> dict[str, Any]:
    stored = config_map(world)
    return dict(yaml.safe_load(stored["data"]["status"])) if stored is not None else {}


def of_group(world: World, name: str, part: str) -> dict[str, Any]:
    groups = {group["name"]: group for group in status(world).get("nodeGroups", ())}
    return dict(groups.get(name, {}).get(part, {}))


def of_cluster(world: World, part: str) -> dict[str, Any]:
    return dict(status(world).get("clusterWide", {}).get(part, {}))


def test_a_scale_up_is_in_progress_until_its_nodes_are_ready() -> None:
    # The nodes take longer than from one sweep to the next.
    slow = Timing(boot=(90.0, 100.0))
    with World(cluster="demo", options=scaling(timing=slow)) as world:
        group = managed_node_group(world)
        world.run_for(2 * MINUTE)
        assert of_group(world, group, "scaleUp")["status"] == "NoActivity"
        idle_since = of_group(world, group, "scaleUp")["lastTransitionTime"]
        world.apply(sample_objects.deployment("job", 3, LARGE))
        world.run_until(lambda: of_group(world, group, "scaleUp")["status"] == "InProgress", limit=LIMIT)
        assert of_cluster(world, "scaleUp")["status"] == "InProgress"
        health = of_group(world, group, "health")
        assert (health["minSize"], health["cloudProviderTarget"], health["maxSize"]) == (0, 3, 6)
        assert health["nodeCounts"]["unregistered"] + health["nodeCounts"]["registered"]["total"] == 3
        world.run_until(lambda: all_run(world, 3), limit=LIMIT)
        world.run_until(lambda: of_group(world, group, "scaleUp")["status"] == "NoActivity", limit=2 * MINUTE)
        assert of_group(world, group, "scaleUp")["lastTransitionTime"] > idle_since
        registered = of_group(world, group, "health")["nodeCounts"]["registered"]
        assert registered == {"total": 3, "ready": 3, "notStarted": 0, "unready": {"total": 0, "resourceUnready": 0}}
        assert world.failures() == []


@pytest.mark.flow
def test_a_group_without_capacity_backs_off(world: World) -> None:
    without = managed_node_group(world, "without", instance_type="m5.large")
    fallback = managed_node_group(world, "fallback", instance_type="m5.xlarge")
    world.aws.capacity.set("on-demand", "m5.large", "*", 0)
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_until(lambda: of_group(world, without, "scaleUp").get("status") == "Backoff", limit=LIMIT)
    info = of_group(world, without, "scaleUp")["backoffInfo"]
    assert info["errorCode"] == "placeholder-cannot-be-fulfilled"
    assert "capacity" in info["errorMessage"]
    assert of_group(world, fallback, "scaleUp")["status"] in {"InProgress", "NoActivity"}
    world.run_until(lambda: of_group(world, without, "scaleUp")["status"] == "NoActivity", limit=2 * LIMIT)


def test_unneeded_nodes_are_candidates(world: World) -> None:
    _, underused = two_nodes(world)
    world.run_until(lambda: of_cluster(world, "scaleDown").get("status") == "CandidatesPresent", limit=LIMIT)
    assert of_cluster(world, "scaleDown")["candidates"] == 1
    world.run_until(lambda: underused not in {n["metadata"]["name"] for n in world.nodes()}, limit=LIMIT)
    world.run_for(2 * MINUTE)
    assert of_cluster(world, "scaleDown")["status"] == "NoCandidates"
    assert "candidates" not in of_cluster(world, "scaleDown")
    assert node_of(world, "large")


def test_an_unchanged_status_is_written_each_five_minutes(world: World) -> None:
    managed_node_group(world)
    world.run_for(2 * MINUTE)
    versions = set()
    for _ in range(20):
        world.run_for(MINUTE)
        stored = config_map(world)
        assert stored is not None
        versions.add(stored["metadata"]["resourceVersion"])
        assert stored["metadata"]["annotations"][UPDATED] == status(world)["time"]
    assert 4 <= len(versions) <= 5


def test_a_status_that_cluster_autoscaler_left_is_continued(world: World) -> None:
    metadata = {"name": NAME, "namespace": "kube-system", "labels": {"owner": "it"}}
    left = {"status": "Cluster-autoscaler status at 2023-01-01", "other": "kept"}
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": left})
    group = managed_node_group(world)
    world.run_for(2 * MINUTE)
    assert of_group(world, group, "health")["status"] == "Healthy"
    stored = config_map(world)
    assert stored is not None
    assert (stored["metadata"]["labels"], stored["data"]["other"]) == ({"owner": "it"}, "kept")


def test_nothing_is_written_while_cluster_autoscaler_runs(world: World) -> None:
    group = managed_node_group(world)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "it",
            "renewTime": f"{world.clock.now() + 5 * MINUTE:%Y-%m-%dT%H:%M:%S.%fZ}",
        },
    }
    world.apply(lease)
    world.run_for(5 * MINUTE)
    assert config_map(world) is None
    world.run_for(3 * MINUTE)
    assert of_group(world, group, "health")["cloudProviderTarget"] == sizes(group)[1] == 0


def test_groups_that_arent_scaled_arent_in_it(world: World) -> None:
    managed_node_group(world, "others")
    group = managed_node_group(world, "batch")
    world.apply(options({"groups": group}))
    world.run_for(2 * MINUTE)
    assert {g["name"] for g in status(world)["nodeGroups"]} == {group}


def counted(world: World, metric: metrics.Metric) -> float:
    lines = (line for invocation in world.aws.functions.invocations for line in invocation.metrics)
    return sum(sum(line.get(metric.name, [0.0])) for line in lines)


def test_others_can_listen_on_the_bus(world: World) -> None:
    """A rule of the user's on the cluster's bus gets what groups do, and only once each."""
    sqs = boto3.client("sqs")
    queue = sqs.create_queue(QueueName="listener")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events = boto3.client("events")
    bus = bus_name(world.cluster)
    pattern = json.dumps({"detail-type": [{"prefix": "Node Group "}]})
    events.put_rule(Name="listener", EventBusName=bus, EventPattern=pattern)
    events.put_targets(Rule="listener", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
    without = managed_node_group(world, "without", instance_type="m5.large")
    fallback = managed_node_group(world, "fallback", instance_type="m5.xlarge")
    world.aws.capacity.set("on-demand", "m5.large", "*", 0)
    world.apply([options({"scale-down-unneeded-time": "1m", "scale-down-delay-after-add": "1m"})])
    world.apply(sample_objects.deployment("job", 1, LARGE))
    world.run_until(lambda: all_run(world, 1), limit=LIMIT)
    world.scale("default", "job", 0)
    world.run_until(lambda: sizes(fallback)[1] == 0 and not world.nodes(), limit=LIMIT)
    received = []
    while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        received += [json.loads(message["Body"]) for message in messages]
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    details = {(event["detail-type"], event["detail"]["group"]): event["detail"] for event in received}
    assert len(details) == len(received)
    assert (details["Node Group Scaled Up", fallback]["from"], details["Node Group Scaled Up", fallback]["to"]) == (
        0,
        1,
    )
    assert details["Node Group Scaled Down", fallback]["to"] == 0
    assert "capacity" in details["Node Group Backed Off", without]["why"]
    assert (counted(world, metrics.GROUP_NODES_ADDED), counted(world, metrics.GROUP_NODES_REMOVED)) == (2, 1)

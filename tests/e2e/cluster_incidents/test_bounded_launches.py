"""Pods that can't use what is bought for them, or are gone before it is there: what is bought stays bounded."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.kubernetes import kinds
from local.world import sample_objects
from tests.e2e.cluster_incidents.small_pool import pool, web
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from local.world import World

MINUTE = timedelta(minutes=1)


def test_a_daemon_for_a_label_that_comes_after_the_node_takes_its_room_a_bounded_number_of_times(world: World) -> None:
    pool(world)
    daemon = sample_objects.daemon_set("agent", {"cpu": "1200m"})
    daemon["spec"]["template"]["spec"] |= {
        "nodeSelector": {"example.com/late": "yes"},
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
    }
    world.apply([daemon, web(2)])
    launched = []
    for _ in range(4):
        for _ in range(50):
            world.run_for(timedelta(seconds=12))
            for node in world.nodes():
                label = {"metadata": {"labels": {"example.com/late": "yes"}}}
                world.store.patch(kinds.NODES, node["metadata"]["name"], label)
        launched.append(len(world.aws.instances.all))
    assert launched[2] <= 6
    assert launched[3] <= 10  # it is tried again after half an hour
    assert len(world.instances()) <= 4


def test_pods_that_are_deleted_at_once_never_have_more_nodes_than_they_need(world: World) -> None:
    pool(world)
    number, most = 0, 0
    for _ in range(20):
        for pod in world.pods():
            world.store.delete(kinds.PODS, pod["metadata"]["name"], namespace="default")
        for _ in range(60):
            number += 1
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m"}}}
            spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"job-{number}"}, "spec": spec}
            world.store.create(kinds.PODS, pod, namespace="default")
        world.run_for(timedelta(seconds=10))
        most = max(most, len(world.instances()))
    assert most <= 20  # three of 60 pods fit on a node
    assert len(world.aws.instances.all) <= 30
    assert world.failures() == []


def test_all_nodes_that_have_expired_meanwhile_go_within_budgets(world: World) -> None:
    pool(world, budgets="1", expireAfter="1h")
    world.apply(web(6))
    world.run_until(lambda: len(running(world, "web")) == 6)
    world.run_for(MINUTE)
    world.clock.skip_to(world.clock.now() + timedelta(hours=3))  # no function has run for that long
    first = {c["metadata"]["name"] for c in world.claims()}
    for _ in range(40):
        world.run_for(timedelta(seconds=20))
        assert len(running(world, "web")) >= 5
        assert sum("deletionTimestamp" in c["metadata"] for c in world.claims()) <= 1
    assert len(first & {c["metadata"]["name"] for c in world.claims()}) <= 3

"""The main job: pending pods become nodes, and empty nodes go."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from shared.api.decode import node_claim
from tests.e2e.hostile_bounds import shutdown_delay
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World


def fleet_calls(world: World) -> int:
    return world.aws.calls.count()["ec2", "CreateFleet"]


@pytest.mark.flow
def test_five_pods_get_spot_nodes_and_the_nodes_go_when_the_pods_have(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    assert len(running(world)) == 5
    assert 1 <= fleet_calls(world) <= 2
    assert {n["metadata"]["labels"]["karpenter.sh/capacity-type"] for n in world.nodes()} == {"spot"}
    assert all(n["metadata"]["labels"]["karpenter.sh/initialized"] == "true" for n in world.nodes())
    assert len(world.instances()) == len(world.claims()) == len(world.nodes())

    world.scale("default", "inflate", 0)
    world.run_until_idle()
    last_pod = {h.details["node"]: h.at for h in world.timeline.of("pod deleted")}
    gone = {h.name: h.at for h in world.timeline.of("node deleted")}
    assert set(gone) == set(last_pod)
    for node, at in gone.items():
        assert timedelta(seconds=30) <= at - last_pod[node] <= timedelta(seconds=60) + shutdown_delay()
    assert world.nodes() == world.claims() == world.instances() == []
    assert world.dead_letters() == []
    assert world.failures() == []


@pytest.mark.flow
def test_every_node_carries_what_its_pool_and_class_ask_for(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 1)
    world.run_until_idle()
    (node,) = world.nodes()
    (claim,) = world.claims()
    labels = node["metadata"]["labels"]
    assert labels["karpenter.sh/nodepool"] == "default"
    assert labels["karpenter.k8s.aws/ec2nodeclass"] == "default"
    assert labels["topology.kubernetes.io/zone"].startswith("us-east-1")
    assert labels["karpenter.k8s.aws/instance-cpu"].isdigit()
    assert node["metadata"]["finalizers"] == ["karpenter.sh/termination"]
    assert node["spec"]["providerID"] == claim["status"]["providerID"]
    assert not node["spec"].get("taints")
    assert node_claim(claim).problems == ()
    conditions = {c["type"]: c["status"] for c in claim["status"]["conditions"]}
    assert {conditions[t] for t in ("Launched", "Registered", "Initialized", "Ready")} == {"True"}
    assert claim["status"]["providerID"] == node["spec"]["providerID"]
    (instance,) = world.instances()
    tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
    assert tags["kubernetes.io/cluster/demo"] == "owned"
    assert tags["karpenter.sh/nodeclaim"] == claim["metadata"]["name"]


@pytest.mark.flow
def test_more_pods_fill_the_free_room_before_anything_is_bought(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 4)
    world.run_until_idle()
    before = len(world.claims())
    world.scale("default", "inflate", 3)
    world.run_for(timedelta(seconds=5))
    world.scale("default", "inflate", 4)
    world.run_until_idle()
    assert len(running(world)) == 4
    assert len(world.claims()) == before


@pytest.mark.flow
def test_delivering_every_message_again_launches_nothing_and_breaks_nothing(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    instances, calls = {i.id for i in world.instances()}, fleet_calls(world)
    assert world.redeliver() > 0
    world.run_until_idle()
    assert {i.id for i in world.instances()} == instances
    assert fleet_calls(world) == calls
    assert len(running(world)) == 5

    world.scale("default", "inflate", 0)
    world.run_until_idle()
    assert world.redeliver() > 0
    world.run_until_idle()
    assert world.instances() == world.nodes() == world.claims() == []
    assert fleet_calls(world) == calls
    assert world.dead_letters() == []


@pytest.mark.flow
def test_a_nodeclaim_or_node_that_is_deleted_is_drained_and_its_pods_run_elsewhere(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    claim = world.store.kind("karpenter.sh/v1", "NodeClaim")
    first = {c["metadata"]["name"] for c in world.claims()}
    world.store.delete(claim, min(first))
    world.run_until_idle()
    assert len(running(world)) == 2
    assert min(first) not in {c["metadata"]["name"] for c in world.claims()}

    node = world.nodes()[0]["metadata"]["name"]
    world.store.delete(kinds.NODES, node)
    world.run_until_idle()
    assert len(running(world)) == 2
    assert node not in {n["metadata"]["name"] for n in world.nodes()}
    assert len(world.instances()) == len(world.claims())


@pytest.mark.flow
def test_a_pool_that_is_deleted_takes_its_nodes_with_it(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    world.store.delete(world.store.kind("karpenter.sh/v1alpha5", "Provisioner"), "default")
    world.run_until(lambda: not world.instances() and not world.nodes(), limit=timedelta(minutes=15))
    assert world.claims() == []
    assert len(running(world)) == 0


@pytest.mark.flow
def test_a_spot_warning_moves_the_pods_before_the_machine_goes(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    doomed = world.instances()[0]
    world.interrupt_spot([doomed.id])
    world.run_until_idle()
    assert len(running(world)) == 2
    assert doomed.id not in {i.id for i in world.instances()}
    node = next(
        h.details["node"]
        for h in world.timeline.of("claim launched", "claim deleted")
        if h.details["instance"] == doomed.id and h.details["node"]
    )
    left = [h.at for h in world.timeline.of("pod deleted") if h.details["node"] == node]
    warned = world.timeline.of("interruption")[0].at
    assert max(left) - warned < timedelta(minutes=2)


@pytest.mark.flow
def test_pods_of_a_team_run_on_its_pools_nodes_alone(
    spot_default: World, load: Callable[[str], list[dict[str, Any]]]
) -> None:
    world = spot_default
    docs = load("team1.yaml")
    anti = docs[1]["spec"]["template"]["spec"]["affinity"].pop("podAntiAffinity")
    assert anti
    world.apply(docs)
    world.scale("default", "inflate-team1", 3)
    world.run_until_idle()
    pools = Counter(n["metadata"]["labels"]["karpenter.sh/nodepool"] for n in world.nodes())
    assert set(pools) == {"team1"}
    assert {n["metadata"]["labels"]["karpenter.sh/capacity-type"] for n in world.nodes()} == {"on-demand"}
    assert len(running(world)) == 3


@pytest.mark.flow
def test_pods_of_a_class_without_a_provisioner_run_in_the_zones_of_its_volumes(spot_default: World) -> None:
    world = spot_default
    meta = {"namespace": "default"}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    world.apply({**kind, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
    for i, zone in enumerate(("us-east-1b", "us-east-1c")):
        term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}
        common = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        volume = {"capacity": {"storage": "5Gi"}, "nodeAffinity": affinity, "local": {"path": "/mnt/data"}}
        claim = {"resources": {"requests": {"storage": "5Gi"}}}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        mounted = {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{i}"}}
        world.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": f"disk-{i}"},
                    "spec": common | volume,
                },
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": f"data-{i}", **meta},
                    "spec": common | claim,
                },
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"db-{i}", **meta},
                    "spec": {"containers": [container], "volumes": [mounted]},
                },
            ]
        )
    world.run_until_idle()
    zone_of_node = {
        n["metadata"]["name"]: n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in world.nodes()
    }
    zones = [
        zone_of_node[pod["spec"]["nodeName"]] for pod in world.pods(phase="Running") if "db-" in str(pod["metadata"])
    ]
    assert sorted(zones) == ["us-east-1b", "us-east-1c"]


def test_a_second_pod_with_a_claim_for_one_pod_waits_without_a_node(spot_default: World) -> None:
    """ReadWriteOncePod: kube-scheduler puts it on no node, so none is bought for it, until the first pod is gone."""
    world = spot_default
    meta = {"namespace": "default"}
    mounted = {"name": "journal", "persistentVolumeClaim": {"claimName": "journal"}}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}

    def writer(name: str) -> dict[str, Any]:
        spec = {"containers": [container], "volumes": [mounted]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}

    world.apply(
        [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "fast"},
                "provisioner": "ebs.csi.aws.com",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "journal", **meta},
                "spec": {
                    "storageClassName": "fast",
                    "accessModes": ["ReadWriteOncePod"],
                    "resources": {"requests": {"storage": "3Gi"}},
                },
            },
            writer("first"),
            writer("second"),
        ]
    )
    world.run_for(timedelta(minutes=4))
    (running,) = world.pods(phase="Running")
    (waiting,) = world.pods(phase="Pending")
    assert len(world.nodes()) == 1
    reason = f"pod default/{running['metadata']['name']} uses it"
    assert any(reason in e["message"] for e in world.store.list(kinds.EVENTS) if e["reason"] == "FailedScheduling")
    world.store.delete(kinds.PODS, running["metadata"]["name"], namespace="default")
    world.run_until(
        lambda: [p["metadata"]["name"] for p in world.pods(phase="Running")] == [waiting["metadata"]["name"]]
    )
    assert len(world.nodes()) == 1

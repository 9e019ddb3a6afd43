"""Shadow mode next to Cluster Autoscaler and EKS Auto Mode, whose nodes have no NodePool of Tenon's kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from functions.shadow.real_fleet import transition_time
from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.kubernetes.apiserver.rbac import Use
from local.kubernetes.objects import timestamp
from tests.e2e.node_groups import managed_node_group
from tests.e2e.shadow.objects import FIVE, MINUTE, START, node_class, node_pool, pod, put, real_node
from tests.e2e.shadow.shadow_cluster import ShadowCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from local.kubernetes.objects import Obj

GROUP = "eks.amazonaws.com/nodegroup"


@pytest.fixture
def cluster() -> Iterator[ShadowCluster]:
    with ShadowCluster(START - 10 * MINUTE) as running:
        yield running
        assert running.aws.enforcement.denied == []
        assert running.control_plane.denied_requests() == []


def lease(renewed: datetime) -> Obj:
    """Cluster Autoscaler's."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {"holderIdentity": "cluster-autoscaler-1", "renewTime": timestamp(renewed).replace("Z", ".000000Z")},
    }


def instances_of(cluster: ShadowCluster, group: str) -> list[tuple[str, str]]:
    """The instances of an Auto Scaling group, with their zones, once they run."""
    for _ in range(6):
        cluster.clock.skip_to(cluster.clock.now() + MINUTE / 2)
        for actor in cluster.aws.actors():
            if actor not in (cluster.aws.event_buses, cluster.aws.functions):
                actor.step(cluster.clock.now())
    answer = boto3.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    return [(i["InstanceId"], i["AvailabilityZone"]) for i in answer["AutoScalingGroups"][0]["Instances"]]


def group_nodes(cluster: ShadowCluster, name: str, count: int, *, maximum: int, **labels: str) -> list[Obj]:
    """The nodes of a managed node group of m5.xlarge."""
    world: Any = cluster  # what the helper reads of a world
    group = managed_node_group(
        world, name, desired=count, minimum=count, maximum=maximum, instance_type="m5.xlarge", labels=labels
    )
    instances = instances_of(cluster, group)
    assert len(instances) == count
    nodes = []
    own = {GROUP: name, "eks.amazonaws.com/capacityType": "ON_DEMAND", **labels}
    for number, (instance, zone) in enumerate(instances):
        (node,) = real_node(f"{name}-{number}", labels=own)
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone
        node["spec"]["providerID"] = f"aws:///{zone}/{instance}"
        nodes.append(node)
    return nodes


def test_nodes_of_groups_that_cluster_autoscaler_scales_are_compared(cluster: ShadowCluster) -> None:
    """The group that can't grow stays; of the other, Tenon consolidates two half-empty nodes."""
    system = group_nodes(cluster, "system", 1, maximum=1)
    batch = group_nodes(cluster, "batch", 2, maximum=5, team="batch")
    put(cluster, lease(START), system, batch)
    put(cluster, pod("dns", "system-0", cpu="3500m"))
    put(cluster, *(pod(str(i), f"batch-{i}", nodeSelector={"team": "batch"}) for i in range(2)))
    for i in range(3):
        put(cluster, lease(START + i * FIVE))
        assert cluster.run(START + i * FIVE).ok
    record = cluster.record()
    (pool,) = record.derived
    assert pool.spec.template.metadata.labels == {"team": "batch"}
    assert {r.autoscaler for r in record.real.values()} == {"Cluster Autoscaler", ""}
    (day,) = cluster.days().values()
    assert day.adopted == 2
    assert day.moved >= 1
    last = day.samples[-1]
    assert last.real_nodes == 2
    assert last.shadow < last.real
    assert "NodePools are derived" in " ".join(record.notes) or "is derived" in " ".join(record.notes)


def test_a_restart_of_cluster_autoscaler_changes_nothing_and_its_end_does(cluster: ShadowCluster) -> None:
    put(cluster, lease(START), group_nodes(cluster, "batch", 1, maximum=5), pod("1", "batch-0", cpu="3"))
    cluster.run(START)
    cluster.run(START + 6 * FIVE)
    assert {r.autoscaler for r in cluster.record().real.values()} == {"Cluster Autoscaler"}
    cluster.run(START + 13 * FIVE)
    assert cluster.record().days[-1].samples[-1].pods == 0


def test_without_cluster_autoscaler_its_tags_mean_nothing(cluster: ShadowCluster) -> None:
    """EKS gives the tags to every managed node group."""
    put(cluster, group_nodes(cluster, "batch", 1, maximum=5), pod("1", "batch-0"))
    cluster.run(START)
    record = cluster.record()
    assert {r.autoscaler for r in record.real.values()} == {""}
    assert record.nodes == []
    assert any("nothing to compare" in note for note in record.notes)


def test_nodes_of_auto_mode_are_compared(cluster: ShadowCluster) -> None:
    labels = {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "general-purpose"}
    labels["karpenter.sh/capacity-type"] = "on-demand"
    put(cluster, *(real_node(name, labels=labels) for name in "ab"), pod("1", "a"), pod("2", "b"))
    for i in range(3):
        assert cluster.run(START + i * FIVE).ok
    record = cluster.record()
    assert {r.autoscaler for r in record.real.values()} == {"EKS Auto Mode"}
    assert record.days[-1].samples[-1].shadow < record.days[-1].samples[-1].real


def test_a_deployments_own_pools_are_used_instead(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    given = node_pool()
    given["metadata"]["name"] = "trial"
    plain = {**node_class(), "metadata": {"name": "default"}}
    plain.pop("status")
    file.write_text(f"{json.dumps(given)}\n---\n{json.dumps(plain)}\n")
    with ShadowCluster(START, {"shadowPools": str(file)}) as cluster:
        put(cluster, real_node("a"), pod("1", "a"))
        assert cluster.run(START).ok
        record = cluster.record()
        (node,) = record.nodes
        assert node.claim.metadata.labels["karpenter.sh/nodepool"] == "trial"
        assert (record.days[-1].adopted, record.days[-1].launched) == (0, 1)
        assert cluster.aws.enforcement.denied == []


def test_ec2_says_when_instances_began_and_ended(cluster: ShadowCluster) -> None:
    """A node that joined late counts from its launch, one that is gone until EC2 ended it."""
    nodes = group_nodes(cluster, "batch", 2, maximum=5)
    put(cluster, node_class(), node_pool(), lease(START), nodes[0], pod("1", "batch-0", cpu="3"))
    cluster.run(START)
    ids = [node["spec"]["providerID"].rpartition("/")[2] for node in nodes]
    backend = {instance.id: instance for instance in cluster.aws.instances.all}
    backend[ids[1]].launch_time = (START + MINUTE).replace(tzinfo=None)
    nodes[1]["metadata"]["creationTimestamp"] = timestamp(START + 3 * MINUTE)
    put(cluster, lease(START + FIVE), nodes[1])
    cluster.run(START + FIVE)
    cluster.clock.skip_to(START + 7 * MINUTE)
    boto3.client("ec2").terminate_instances(InstanceIds=[ids[1]])
    backend[ids[1]]._reason = f"User initiated ({START + 7 * MINUTE:%Y-%m-%d %H:%M:%S} GMT)"
    cluster.remove("Node", "batch-1")
    cluster.run(START + 2 * FIVE)
    (day,) = cluster.days().values()
    assert sum(used.seconds for used in day.usage if used.fleet == "real") == 10 * 60 + (7 - 1) * 60
    assert (day.real_started, day.real_ended) == (1, 1)


@pytest.mark.parametrize(
    ("reason", "time"),
    [
        ("User initiated (2026-03-02 10:07:00 GMT)", START + 7 * MINUTE),
        ("Server.SpotInstanceTermination: Spot instance termination", None),
        ("", None),
    ],
)
def test_the_time_of_a_transition_is_read_from_ec2s_text(reason: str, time: datetime | None) -> None:
    assert transition_time(reason) == time


def test_every_right_of_its_clusterrole_is_used(cluster: ShadowCluster) -> None:
    put(cluster, node_class(), node_pool(), real_node("a"), pod("1", "a"), lease(START))
    cluster.run(START)
    roles = [o for o in cluster_manifests.access([function_sizes.SHADOW]) if o["kind"] in {"ClusterRole", "Role"}]
    granted = {
        Use("tenon:shadow", verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    unused = granted - cluster.control_plane.rbac.uses
    # Pods and nodes are watched in large clusters; workloads are read where CapacityBuffers name them, PodGroups where
    # pods do, CSIDrivers where nodes differ in their drivers, ProvisioningRequests where a queue brought the kind.
    assert {(use.verb, use.resource) for use in unused} == {
        ("watch", "pods"),
        ("watch", "nodes"),
        ("list", "csidrivers"),
        ("list", "provisioningrequests"),
        *(("get", kind) for kind in ("podtemplates", "deployments", "replicasets", "statefulsets", "podgroups")),
    }

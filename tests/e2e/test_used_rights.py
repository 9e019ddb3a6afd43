"""The rights that functions and relay have in the cluster, compared with those that their requests use."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
import pytest

from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.kubernetes import kinds
from local.kubernetes.apiserver.rbac import Use
from local.world import Options, World, sample_objects
from local.world.control_plane import EmbeddedControlPlane
from shared.api.pod_references import COSCHEDULING, KUBERNETES, VOLCANO
from shared.cluster import watched_objects
from shared.cluster.watched_objects import MIN_PODS_TO_WATCH
from tests.e2e.node_groups import node_of, options, two_nodes
from tests.unit.instance_types.node_overlays import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj

MINUTE = timedelta(minutes=1)
_CLASSES = ("awsnodetemplates", "ec2nodeclasses")
_POOLS = ("nodepools", "provisioners")
_LEGACY = {
    ("lifecycle", "patch", "karpenter.sh", "provisioners/status"),
    ("lifecycle", "patch", "karpenter.k8s.aws", "awsnodetemplates/status"),
}
"""Of a cluster with objects of Karpenter's alpha versions (test_migration.py)."""
_AFTER_CONFLICTS = {
    *(("lifecycle", "get", "karpenter.sh", pool) for pool in _POOLS),
    *(("lifecycle", "get", "karpenter.k8s.aws", class_) for class_ in _CLASSES),
    *((name, "get", "", "nodes") for name in ("lifecycle", "nodegroups")),
    *(("lifecycle", "get", "karpenter.sh", resource) for resource in ("nodeclaims", "nodeoverlays")),
    *((name, "get", "autoscaling.x-k8s.io", "capacitybuffers") for name in ("lifecycle", "buffers")),
    ("lifecycle", "get", "autoscaling.x-k8s.io", "provisioningrequests"),
}
"""Objects are read again after a write that met another writer's (shared/cluster/writes.py)."""
EVENT_WRITERS = cluster_manifests.RULES.keys() & (set(function_sizes.ALL) - {function_sizes.RELAY})
_REPEATED_EVENTS = {(function, verb, "", "events") for function in EVENT_WRITERS for verb in ("create", "get", "patch")}
"""An event that another invocation has written is read, and its count patched; not every function meets one."""
_CREATED_ALREADY = {
    (function, "get", "karpenter.sh", "nodeclaims") for function in ("provisioner", "disruption", "interruption")
}
"""A NodeClaim that a replayed decision has created before is read."""
_WHEN_UNDONE = {
    # A launch that fails; a node that doesn't register.
    ("provisioner", "delete", "karpenter.sh", "nodeclaims"),
    ("lifecycle", "delete", "karpenter.sh", "nodeclaims"),
    # A disrupted node's replacement, and an interrupted node's, that can't be launched.
    ("disruption", "create", "karpenter.sh", "nodeclaims"),
    ("interruption", "create", "karpenter.sh", "nodeclaims"),
    # Over its terminationGracePeriod.
    ("termination", "delete", "", "pods"),
    # At the deadline of an interrupted node of a group.
    ("nodegroups", "delete", "", "pods"),
    # Of a node that had volumes.
    ("termination", "list", "", "persistentvolumeclaims"),
    # Of an instance without a NodeClaim, which may have a node.
    ("termination", "list", "", "nodes"),
    # Of a node that reboots in place (test_reboots.py).
    ("lifecycle-reboot", "create", "", "pods/eviction"),
    # Of a node whose NodeClaim was lost with its NodePool (test_lost_definitions.py).
    ("lifecycle", "create", "karpenter.sh", "nodeclaims"),
    # Of a node whose Lease its kubelet made without an owner.
    ("lifecycle", "delete", "coordination.k8s.io", "leases"),
}
"""What continues after failures and deadlines (test_crashes_and_aws_errors.py, test_drains.py)."""
_FIRST = {
    (function, "create", "coordination.k8s.io", "leases")
    for function in ("provisioner", "disruption", "interruption", "nodegroups")
}
"""The lease is created by whichever function decides first in a cluster: which one is chance where they run at once."""
_WHERE_DRIVERS_DIFFER = {
    (function, "list", "storage.k8s.io", "csidrivers")
    for function in ("provisioner", "disruption", "interruption", "lifecycle", "nodegroups")
}
"""CSIDrivers are listed where a node lacks a driver that another has (tests/real/test_local_volumes.py)."""
_WHERE_DEVICES_ARE_WAITED_FOR = {
    ("lifecycle", "list", "resource.k8s.io", kind) for kind in ("deviceclasses", "resourceslices")
}
"""Where a node lacks nothing but an extended resource (test_dynamic_resources.py)."""
_WHERE_PODS_ARE_GANGS = {
    (function, "get", group, "podgroups")
    for function in ("provisioner", "disruption", "interruption", "lifecycle", "nodegroups")
    for group in (COSCHEDULING, KUBERNETES, VOLCANO)
}
"""PodGroups that pods without a node name (test_gangs.py, tests/real/test_gangs.py)."""
_WITH_A_QUEUE = {
    *(
        (function, "list", "autoscaling.x-k8s.io", "provisioningrequests")
        for function in ("provisioner", "disruption", "interruption", "lifecycle", "nodegroups", "relay")
    ),
    ("relay", "watch", "autoscaling.x-k8s.io", "provisioningrequests"),
    ("lifecycle", "patch", "autoscaling.x-k8s.io", "provisioningrequests/status"),
}
"""Where a queue such as Kueue brought ProvisioningRequests (test_provisioning_requests.py)."""
RARE = {
    *_WITH_A_QUEUE,
    *_WHERE_DRIVERS_DIFFER,
    *_WHERE_PODS_ARE_GANGS,
    *_WHERE_DEVICES_ARE_WAITED_FOR,
    *_FIRST,
    *_LEGACY,
    *_AFTER_CONFLICTS,
    *_REPEATED_EVENTS,
    *_CREATED_ALREADY,
    *_WHEN_UNDONE,
}


def granted() -> Iterator[tuple[Use, str]]:
    """Each right of a role's rules, with the role's name."""
    # The relay is a pod here; as a function it has the same rights, and a Lease (tests/e2e/relay_function).
    functions = [name for name in function_sizes.ALL if name != function_sizes.RELAY]
    objects = [*cluster_manifests.access(functions, node_groups=True, reboot=True), *cluster_manifests.relay_access()]
    for role in (obj for obj in objects if obj["kind"] in ("ClusterRole", "Role")):
        binding = next(
            obj
            for obj in objects
            if obj["kind"] == f"{role['kind']}Binding" and obj["metadata"]["name"] == role["metadata"]["name"]
        )
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        use = Use(_subject(binding["subjects"][0]), verb, group, resource)
                        yield use, role["metadata"]["name"].removeprefix("tenon-")


def _subject(subject: Obj) -> str:
    if subject["kind"] == "Group":
        return str(subject["name"])
    return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


def gated(count: int) -> Obj:
    """Pods that nobody schedules, so that functions watch pods as in a large cluster."""
    return sample_objects.deployment("gated", count, {"cpu": "1m"}, schedulingGates=[{"name": "example.com/wait"}])


def buffers() -> Iterator[Obj]:
    """CapacityBuffers of each kind of object that they may name, none of which exists, and of a queue."""
    references: dict[str, Obj] = {
        kind.lower(): {"scalableRef": {"apiGroup": "apps", "kind": kind, "name": "missing"}}
        for kind in ("Deployment", "StatefulSet", "ReplicaSet")
    }
    for name, reference in {**references, "podtemplate": {"podTemplateRef": {"name": "missing"}}}.items():
        yield {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": name, "namespace": "default", "annotations": {"tenon.sh/sqs-queue": "orders"}},
            "spec": {**reference, "replicas": 1},
        }


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster with all functions, which watch nodes as in a large one, and a queue with a message."""
    monkeypatch.setattr(watched_objects, "MIN_NODES_TO_WATCH", 1)
    monkeypatch.setattr(watched_objects, "NODE_SILENCE_SECONDS", 0.05)  # few nodes seldom report
    with World(options=Options(context={"bufferQueues": "orders", "nodeGroups": "on", "reboot": "on"})) as world:
        boto3.client("sqs").create_queue(QueueName="orders")
        world.aws.queues.send("orders", "an order")
        yield world


def test_every_right_in_the_cluster_is_used(world: World) -> None:
    plane = world.control_plane
    assert isinstance(plane, EmbeddedControlPlane)
    world.apply(options({"scale-down-unneeded-time": "1m", "scale-down-delay-after-add": "1m"}))
    kept, removed = two_nodes(world)
    world.run_until(lambda: removed not in {n["metadata"]["name"] for n in world.nodes()}, limit=10 * MINUTE)
    assert node_of(world, "small") == kept
    for name in ("large", "small"):
        world.scale("default", name, 0)
    world.run_until(lambda: not world.nodes(), limit=10 * MINUTE)

    requirements = {"karpenter.sh/capacity-type": ["spot"], "karpenter.k8s.aws/instance-cpu": ["4"]}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements, disruption=disruption)])
    world.apply(gated(MIN_PODS_TO_WATCH))
    world.apply(sample_objects.budget("web", 1))
    world.apply(sample_objects.deployment("web", 8, {"cpu": "900m", "memory": "1Gi"}))
    world.apply(buffers())
    world.apply(manifest("dear", priceAdjustment="+1%"))
    world.run_until(lambda: len(world.pods(phase="Running")) == 8, limit=5 * MINUTE)
    for _ in range(2):
        world.interrupt_spot([world.instances()[0].id])
        world.run_for(4 * MINUTE)
    world.apply(sample_objects.daemon_set("agent", {"cpu": "1"}))  # more than a full node has left
    world.run_for(4 * MINUTE)
    world.store.delete(kinds.NODES, world.nodes()[0]["metadata"]["name"])
    world.run_for(4 * MINUTE)
    world.scale("default", "web", 0)
    world.run_until(lambda: not (world.nodes() or world.claims()), limit=20 * MINUTE)

    used = plane.rbac.uses
    unused = {(role, use.verb, use.group, use.resource) for use, role in granted() if use not in used}
    assert sorted(unused - RARE) == []
    assert not unused >= _FIRST
    assert RARE - {(role, use.verb, use.group, use.resource) for use, role in granted()} == set()


def test_owner_references_need_no_further_right(spot_default: World) -> None:
    # Admission plugin OwnerReferencesPermissionEnforcement asks for the right to delete an object whose references
    # change, and for the right to update finalizers of an owner whose deletion is blocked.
    world = spot_default
    world.apply(sample_objects.deployment("web", 1, {"cpu": "900m"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)

    assert [node["metadata"].get("ownerReferences", []) for node in world.nodes()] == [[]]
    owners = [owner for claim in world.claims() for owner in claim["metadata"]["ownerReferences"]]
    assert [(owner["name"], owner.get("blockOwnerDeletion", False)) for owner in owners] == [("default", False)]

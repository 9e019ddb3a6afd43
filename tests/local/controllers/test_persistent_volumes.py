"""Volume claims and the pods that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds

if TYPE_CHECKING:
    from tests.local.controllers.environment import Environment, Json

ZONE = "topology.kubernetes.io/zone"
EBS = "ebs.csi.aws.com"


def storage_class(env: Environment, *, mode: str = "WaitForFirstConsumer", zones: tuple[str, ...] = ()) -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else []
    env.store.create(
        kinds.STORAGE_CLASSES,
        {"metadata": {"name": "gp3"}, "provisioner": EBS, "volumeBindingMode": mode, "allowedTopologies": terms},
    )


def claim(env: Environment, name: str, **spec: object) -> Json:
    body = {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "gp3",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }
    return env.store.create(kinds.PERSISTENT_VOLUME_CLAIMS, body, namespace="default")


def mounting(name: str) -> list[Json]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


@pytest.fixture
def zones(env: Environment) -> Environment:
    for zone in "ab":
        env.node(f"n-{zone}", zone=zone)
    return env


def test_a_claim_that_waits_gets_its_volume_in_the_zone_of_its_first_pod(zones: Environment) -> None:
    storage_class(zones)
    claim(zones, "data")
    zones.settle()
    assert zones.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data")["status"]["phase"] == "Pending"
    zones.pod("db", volumes=mounting("data"), nodeSelector={ZONE: "b"})
    zones.run(seconds=0.5)
    selected = zones.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data")["metadata"]["annotations"]
    assert selected["volume.kubernetes.io/selected-node"] == "n-b"
    assert zones.node_of("db") == ""
    zones.settle()
    assert zones.node_of("db") == "n-b"
    volume = zones.get(
        kinds.PERSISTENT_VOLUMES, zones.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data")["spec"]["volumeName"]
    )
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}


def test_a_pod_is_scheduled_in_the_zone_of_its_volume(zones: Environment) -> None:
    storage_class(zones)
    claim(zones, "data")
    zones.pod("db", volumes=mounting("data"), nodeSelector={ZONE: "b"})
    zones.settle()
    zones.store.delete(kinds.PODS, "db", namespace="default", grace_period_seconds=0)
    zones.store.delete(kinds.NODES, "n-b")
    zones.pod("db2", volumes=mounting("data"))
    zones.settle()
    reason = "1 node(s) didn't match PersistentVolume's node affinity"
    assert zones.unschedulable_reason("db2")[1] == f"0/1 nodes are available: {reason}"
    zones.node("n-b2", zone="b")
    zones.settle()
    assert zones.node_of("db2") == "n-b2"


def test_allowed_topologies_limit_the_zones_of_volumes(zones: Environment) -> None:
    storage_class(zones, zones=("b",))
    claim(zones, "data")
    zones.pod("db", volumes=mounting("data"))
    zones.settle()
    assert zones.node_of("db") == "n-b"


def test_an_immediate_claim_has_its_volume_before_any_pod(zones: Environment) -> None:
    storage_class(zones, mode="Immediate", zones=("a",))
    claim(zones, "data")
    zones.settle()
    assert zones.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data")["status"]["phase"] == "Bound"
    zones.pod("db", volumes=mounting("data"))
    zones.settle()
    assert zones.node_of("db") == "n-a"


@pytest.mark.parametrize(
    ("exists", "reason"),
    [
        (False, 'persistentvolumeclaim "data" not found'),
        (True, "pod has unbound immediate PersistentVolumeClaims"),
    ],
)
def test_a_claim_without_a_volume_makes_its_pod_unschedulable(zones: Environment, reason: str, *, exists: bool) -> None:
    if exists:
        claim(zones, "data", storageClassName="missing")
    zones.pod("db", volumes=mounting("data"))
    zones.settle()
    assert zones.unschedulable_reason("db")[1] == f"0/2 nodes are available: {reason}"


def test_a_nodes_volume_limit_holds(env: Environment) -> None:
    storage_class(env)
    env.machine("n1", max_volumes=2)
    for i in range(3):
        claim(env, f"data-{i}")
        env.pod(f"db-{i}", volumes=mounting(f"data-{i}"))
    env.settle()
    assert sum(bool(p["spec"].get("nodeName")) for p in env.pods()) == 2
    waiting = next(p["metadata"]["name"] for p in env.pods() if not p["spec"].get("nodeName"))
    assert env.unschedulable_reason(waiting)[0] == "Unschedulable"


def test_a_volume_is_detached_some_time_after_its_last_pod(zones: Environment) -> None:
    storage_class(zones)
    claim(zones, "data")
    zones.pod("db", volumes=mounting("data"))
    zones.settle()
    (attachment,) = zones.store.list(kinds.VOLUME_ATTACHMENTS)
    assert attachment["spec"]["nodeName"] == zones.node_of("db")
    assert attachment["status"]["attached"]
    zones.store.delete(kinds.PODS, "db", namespace="default", grace_period_seconds=0)
    zones.run(seconds=1)
    assert zones.store.list(kinds.VOLUME_ATTACHMENTS)
    zones.run(seconds=2)
    assert not zones.store.list(kinds.VOLUME_ATTACHMENTS)


def test_a_generic_ephemeral_volume_comes_and_goes_with_its_pod(zones: Environment) -> None:
    storage_class(zones)
    spec = {
        "storageClassName": "gp3",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    zones.pod("db", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}])
    zones.settle()
    assert zones.node_of("db")
    assert zones.exists(kinds.PERSISTENT_VOLUME_CLAIMS, "db-scratch")
    zones.store.delete(kinds.PODS, "db", namespace="default", grace_period_seconds=0)
    zones.settle()
    assert not zones.exists(kinds.PERSISTENT_VOLUME_CLAIMS, "db-scratch")
    assert not zones.store.list(kinds.PERSISTENT_VOLUMES)

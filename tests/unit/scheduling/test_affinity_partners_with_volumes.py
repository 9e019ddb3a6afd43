"""A pod that must share a zone with one whose volume is in a zone goes there, whatever room other zones have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]
ZONE = "topology.kubernetes.io/zone"
ZONES = ("z-a", "z-b", "z-c")


def bound_volume(name: str, zone: str) -> list[Raw]:
    """A volume in a zone, and its claim of the same name."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "storageClassName": "gp3",
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageClassName": "gp3", "volumeName": f"pv-{name}", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    }
    return [volume, claim]


def mounting(*claims: str) -> Raw:
    return {"volumes": [{"name": f"v-{c}", "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def near(app: str) -> Raw:
    """Must be in the zone of pods of that app."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def zones(decision: Raw, nodes: dict[str, str]) -> dict[str, str]:
    """The zone of each pod."""
    assert decision["errors"] == {}
    of_new = {
        pod: values
        for claim in decision["nodeClaims"]
        for r in claim["requirements"]
        if r["key"] == ZONE
        for pod in claim["pods"]
        for values in r["values"]
    }
    return of_new | {pod: nodes[node] for node, pods in decision["existingNodes"].items() for pod in pods}


@pytest.mark.parametrize("size", ["200m", "1500m", "3"])
@pytest.mark.parametrize("replicas", [1, 3, 9])
def test_replicas_that_must_be_together_join_the_one_with_a_volume(
    decide: Decide, clusters: ModuleType, replicas: int, size: str
) -> None:
    group = clusters.pods("queue", replicas + 1, size, **near("queue"))
    for index in (0, replicas):
        group[index]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = size if index == 0 else "400m"
    group[replicas]["spec"].update(mounting("journal"))
    node = clusters.node("roomy", 48, zone=ZONES[0])
    document = clusters.document(clusters.pool(), node, *bound_volume("journal", ZONES[2]), group)
    assert set(zones(decide(document), {"roomy": ZONES[0]}).values()) == {ZONES[2]}


def test_followers_go_where_the_volume_of_their_leader_is(decide: Decide, clusters: ModuleType) -> None:
    leader = clusters.pods("leader", 1, "250m", **mounting("ledger"))
    followers = clusters.pods("follower", 4, "2", **near("leader"))
    distant = clusters.pods("audit", 2, "1", **near("follower"))
    nodes = {f"n{i}": zone for i, zone in enumerate(ZONES[:2])}
    existing = [clusters.node(name, 32, zone=zone) for name, zone in nodes.items()]
    document = clusters.document(
        clusters.pool(), existing, *bound_volume("ledger", ZONES[1]), distant, followers, leader
    )
    assert set(zones(decide(document), nodes).values()) == {ZONES[1]}


def test_groups_with_volumes_in_two_zones_part(decide: Decide, clusters: ModuleType) -> None:
    pods, volumes = [], []
    for app, zone in (("east", ZONES[0]), ("west", ZONES[2])):
        group = clusters.pods(app, 3, "700m", **near(app))
        group[1]["spec"].update(mounting(f"disk-{app}"))
        pods += group
        volumes += bound_volume(f"disk-{app}", zone)
    node = clusters.node("middle", 24, zone=ZONES[1])
    zone_of = zones(decide(clusters.document(clusters.pool(), node, volumes, pods)), {"middle": ZONES[1]})
    assert {zone for pod, zone in zone_of.items() if "/east-" in pod} == {ZONES[0]}
    assert {zone for pod, zone in zone_of.items() if "/west-" in pod} == {ZONES[2]}


def test_volumes_of_two_zones_in_one_group_leave_only_the_pods_out_that_contradict(
    decide: Decide, clusters: ModuleType
) -> None:
    group = clusters.pods("torn", 4, "600m", **near("torn"))
    group[0]["spec"].update(mounting("one"))
    group[3]["spec"].update(mounting("two"))
    volumes = [*bound_volume("one", ZONES[0]), *bound_volume("two", ZONES[1])]
    decision = decide(clusters.document(clusters.pool(), volumes, group))
    assert len(decision["errors"]) == 1
    assert sum(len(claim["pods"]) for claim in decision["nodeClaims"]) == 3

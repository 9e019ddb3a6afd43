"""What pods ask for one rule at a time: labels by all operators, spread in all its forms, sizes, ports and volumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
SPREAD = "karpenter.sh/capacity-spread"
FAMILY = "karpenter.k8s.aws/instance-family"
Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]


def terms(*expressions: Raw) -> Raw:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def spread(app: str, key: str = ZONE, **more: object) -> Raw:
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": app}}, **more}]}


def values(claim: Raw, key: str) -> list[str]:
    return [v for r in claim["requirements"] if r["key"] == key and r["operator"] == "In" for v in r["values"]]


def by(answer: Raw, key: str) -> Counter[str]:
    """Pods by the one value of a label that their claim is pinned to."""
    found: Counter[str] = Counter()
    for claim in answer["nodeClaims"]:
        (value,) = values(claim, key)
        found[value] += len(claim["pods"])
    return found


@pytest.mark.parametrize(
    ("operator", "wanted", "families"),
    [
        ("In", ["c1", "g1"], {"c1", "g1"}),
        ("NotIn", ["c1"], {"m1", "g1"}),
        ("Exists", [], {"c1", "m1", "g1"}),
        ("DoesNotExist", [], set()),
        ("Gt", ["4"], {"8", "16"}),
        ("Lt", ["4"], {"2"}),
        ("Gte", ["8"], {"8", "16"}),
        ("Lte", ["4"], {"2", "4"}),
    ],
)
def test_each_operator_allows_the_types_that_it_says(
    decide: Decide, world: ModuleType, operator: str, wanted: list[str], families: set[str]
) -> None:
    document = world.document(world.pool())
    for t in document["instanceTypes"]:
        t["labels"]["karpenter.k8s.aws/instance-cpu"] = t["capacity"]["cpu"]
    numeric = operator in {"Gt", "Lt", "Gte", "Lte"}
    key = "karpenter.k8s.aws/instance-cpu" if numeric else FAMILY
    document["objects"] += world.pods("a", 1, "100m", **terms({"key": key, "operator": operator, "values": wanted}))
    answer = decide(document)
    cpus = {t["name"]: t["capacity"]["cpu"] for t in document["instanceTypes"]}
    listed = {t for c in answer["nodeClaims"] for t in c["instanceTypes"]}
    assert {cpus[t] if numeric else t.partition(".")[0] for t in listed} == families
    assert bool(answer["errors"]) == (not families)


def test_a_preferred_taint_is_borne_only_where_nothing_else_is_left(decide: Decide, world: ModuleType) -> None:
    soft = world.pool("soft", weight=50, taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    beside = decide(world.document(soft, world.pool("plain"), world.pods("a", 3)))
    assert {c["nodePool"] for c in beside["nodeClaims"]} == {"plain"}
    alone = decide(world.document(soft, world.pods("a", 3)))
    assert {c["nodePool"] for c in alone["nodeClaims"]} == {"soft"}


def test_startup_taints_keep_nobody_away(decide: Decide, world: ModuleType) -> None:
    pool = world.pool()
    pool["spec"]["template"]["spec"]["startupTaints"] = [{"key": "boot", "effect": "NoSchedule"}]
    assert not decide(world.document(pool, world.pods("a", 3)))["errors"]


def test_min_domains_beyond_what_there_is_lets_one_in_a_domain(decide: Decide, world: ModuleType) -> None:
    answer = decide(world.document(world.pool(), world.pods("a", 5, **spread("a", minDomains=4))))
    assert by(answer, ZONE) == {"z-a": 1, "z-b": 1, "z-c": 1}
    assert len(answer["errors"]) == 2


def test_revisions_are_spread_each_by_itself(decide: Decide, world: ModuleType) -> None:
    pods = world.pods("a", 6, **spread("a", matchLabelKeys=["pod-template-hash"]))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["pod-template-hash"] = "old" if i < 3 else "new"
    answer = decide(world.document(world.pool(), pods))
    for revision in (range(3), range(3, 6)):
        names = {f"default/a-{i:04d}" for i in revision}
        zones = Counter(values(c, ZONE)[0] for c in answer["nodeClaims"] for p in c["pods"] if p in names)
        assert zones == {"z-a": 1, "z-b": 1, "z-c": 1}


def test_spread_counts_the_zones_of_any_of_its_affinity_terms(decide: Decide, world: ModuleType) -> None:
    either = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [z]}]} for z in ("z-a", "z-b")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": either}}}
    answer = decide(world.document(world.pool(), world.pods("a", 4, affinity=affinity, **spread("a"))))
    assert by(answer, ZONE) == {"z-a": 2, "z-b": 2}


def test_spread_over_zones_places_none_where_its_resource_is_not_to_be_had(decide: Decide, world: ModuleType) -> None:
    document = world.document(world.pool(), world.pods("a", 4, **spread("a")))
    gpu = world.instance_type("p1.xlarge", 8, 32, 1.0, zones="ab")
    gpu["capacity"]["nvidia.com/gpu"] = "8"
    document["instanceTypes"] = [*document["instanceTypes"], gpu]
    for pod in document["objects"][1:]:
        pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    answer = decide(document)
    assert by(answer, ZONE) == {"z-a": 1, "z-b": 1}  # a third would be two above z-c, where none can be
    assert len(answer["errors"]) == 2


@pytest.mark.parametrize(
    ("policy", "placed"),
    [
        ("Honor", {"z-a": 2, "z-b": 2}),
        ("Ignore", {"z-a": 1, "z-b": 1}),  # the third zone's pool counts, though its taint keeps the pods away
    ],
)
def test_whether_tainted_nodes_count_is_the_pods_choice(
    decide: Decide, world: ModuleType, policy: str, placed: dict[str, int]
) -> None:
    def zones(*names: str) -> list[Raw]:
        return [{"key": ZONE, "operator": "In", "values": list(names)}]

    far = world.pool("far", requirements=zones("z-c"), taints=[{"key": "k", "effect": "NoSchedule"}])
    pods = world.pods("a", 4, **spread("a", nodeTaintsPolicy=policy))
    assert by(decide(world.document(world.pool(requirements=zones("z-a", "z-b")), far, pods)), ZONE) == placed


def test_a_ratio_of_capacity_types_is_kept_by_a_custom_label(decide: Decide, world: ModuleType) -> None:
    def pool(name: str, capacity_type: str, *shares: str) -> Raw:
        wanted = [
            {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
            {"key": SPREAD, "operator": "In", "values": list(shares)},
        ]
        made: Raw = world.pool(name, requirements=wanted)
        return made

    pools = [pool("spot", "spot", "2", "3", "4", "5"), pool("on-demand", "on-demand", "1")]
    answer = decide(world.document(pools, world.pods("a", 20, **spread("a", SPREAD))))
    assert not answer["errors"]
    assert by(answer, CAPACITY_TYPE) == {"spot": 16, "on-demand": 4}


def test_a_wish_for_spread_is_kept_where_it_can_be_and_refuses_nobody(decide: Decide, world: ModuleType) -> None:
    soft = spread("a", whenUnsatisfiable="ScheduleAnyway")
    assert by(decide(world.document(world.pool(), world.pods("a", 6, **soft))), ZONE) == {"z-a": 2, "z-b": 2, "z-c": 2}
    where = [{"key": ZONE, "operator": "In", "values": ["z-b"]}]
    assert not decide(world.document(world.pool(requirements=where), world.pods("a", 6, **soft)))["errors"]


def test_a_hosts_port_is_one_pods_by_protocol_and_address(decide: Decide, world: ModuleType) -> None:
    def listening(app: str, count: int, **port: object) -> list[Raw]:
        pods: list[Raw] = world.pods(app, count, "100m", "100Mi")
        for pod in pods:
            pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "ports": [{"containerPort": 80, **port}]}]
        return pods

    assert len(decide(world.document(world.pool(), listening("a", 3, hostPort=80)))["nodeClaims"]) == 3
    apart = [listening("a", 1, hostPort=80), listening("b", 1, hostPort=80, protocol="UDP")]
    apart.append(listening("c", 1, hostPort=81))
    assert len(decide(world.document(world.pool(), *apart))["nodeClaims"]) == 1
    one, other = (listening(f"ip{i}", 1, hostPort=80, hostIP=f"10.0.0.{i}") for i in (1, 2))
    assert len(decide(world.document(world.pool(), one, other))["nodeClaims"]) == 1
    assert len(decide(world.document(world.pool(), one, listening("all", 1, hostPort=80)))["nodeClaims"]) == 2


@pytest.mark.parametrize(
    ("extra", "requested"),
    [
        ({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]}, "3"),
        (
            {"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]},
            "1500m",
        ),
        (
            {
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "i", "resources": {"requests": {"cpu": "2"}}},
                ]
            },
            "3",
        ),
        ({"overhead": {"cpu": "250m"}}, "750m"),
    ],
    ids=["an init container's peak", "a sidecar beside the rest", "an init container beside a sidecar", "overhead"],
)
def test_what_a_pod_takes_is_counted_as_the_kubelet_does(
    decide: Decide, world: ModuleType, extra: Raw, requested: str
) -> None:
    (claim,) = decide(world.document(world.pool(), world.pods("a", 1, "500m", "1Gi", **extra)))["nodeClaims"]
    assert claim["requests"]["cpu"] == requested


def claimed(name: str, **spec: object) -> list[Raw]:
    meta = {"name": name, "namespace": "default"}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gp3"}}
    kind |= {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta}
    return [{**claim, "spec": {"storageClassName": "gp3", **spec}}, kind]


def mounting(claim: str) -> Raw:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


@pytest.mark.parametrize(("claims", "there"), [(1, 4), (4, 2)])
def test_a_node_attaches_no_more_volumes_than_its_driver_can_and_counts_a_shared_one_once(
    decide: Decide,
    world: ModuleType,
    claims: int,
    there: int,
) -> None:
    pods = world.pods("a", 4, "100m", "100Mi")
    made = [o for i in range(claims) for o in claimed(f"data-{i}")[: 1 if i else 2]]
    for i, pod in enumerate(pods):
        pod["spec"].update(mounting(f"data-{i % claims}"))
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "old", "allocatable": {"count": 2}}]
    csi = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "old"}}
    answer = decide(world.document(world.pool(), world.node("old"), {**csi, "spec": {"drivers": drivers}}, made, pods))
    assert len(answer["existingNodes"]["old"]) == there
    assert not answer["errors"]


def test_capacity_that_is_paid_for_goes_first(decide: Decide, world: ModuleType) -> None:
    document = world.document(world.pool(), world.pods("a", 1))
    reserved = world.instance_type("m1.xlarge", 4, 16, 0.2)
    reserved["offerings"] = [{"zone": "z-b", "capacityType": "reserved", "price": 0.0}, *reserved["offerings"]]
    rest = [t for t in document["instanceTypes"] if t["name"] != "m1.xlarge"]
    (claim,) = decide({**document, "instanceTypes": [*rest, reserved]})["nodeClaims"]
    assert claim["cheapest"] == {"instanceType": "m1.xlarge", "zone": "z-b", "capacityType": "reserved", "price": 0.0}

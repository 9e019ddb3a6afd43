"""Rules of pods one at a time: label operators, topology spread, requests, host ports, volumes."""

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


def by(decision: Raw, key: str) -> Counter[str]:
    """Pods by the one value of a label that their claim is pinned to."""
    counts: Counter[str] = Counter()
    for claim in decision["nodeClaims"]:
        (value,) = values(claim, key)
        counts[value] += len(claim["pods"])
    return counts


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
def test_each_operator_allows_the_right_instance_types(
    decide: Decide, clusters: ModuleType, operator: str, wanted: list[str], families: set[str]
) -> None:
    document = clusters.document(clusters.pool())
    for t in document["instanceTypes"]:
        t["labels"]["karpenter.k8s.aws/instance-cpu"] = t["capacity"]["cpu"]
    numeric = operator in {"Gt", "Lt", "Gte", "Lte"}
    key = "karpenter.k8s.aws/instance-cpu" if numeric else FAMILY
    document["objects"] += clusters.pods("a", 1, "100m", **terms({"key": key, "operator": operator, "values": wanted}))
    decision = decide(document)
    cpus = {t["name"]: t["capacity"]["cpu"] for t in document["instanceTypes"]}
    listed = {t for c in decision["nodeClaims"] for t in c["instanceTypes"]}
    assert {cpus[t] if numeric else t.partition(".")[0] for t in listed} == families
    assert bool(decision["errors"]) == (not families)


def test_prefer_no_schedule_taints_are_tolerated_last(decide: Decide, clusters: ModuleType) -> None:
    soft = clusters.pool("soft", weight=50, taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    host_affinity_rule = decide(clusters.document(soft, clusters.pool("plain"), clusters.pods("a", 3)))
    assert {c["nodePool"] for c in host_affinity_rule["nodeClaims"]} == {"plain"}
    alone = decide(clusters.document(soft, clusters.pods("a", 3)))
    assert {c["nodePool"] for c in alone["nodeClaims"]} == {"soft"}


def test_startup_taints_are_ignored(decide: Decide, clusters: ModuleType) -> None:
    pool = clusters.pool()
    pool["spec"]["template"]["spec"]["startupTaints"] = [{"key": "boot", "effect": "NoSchedule"}]
    assert not decide(clusters.document(pool, clusters.pods("a", 3)))["errors"]


def test_min_domains_above_the_number_of_domains_counts_the_global_minimum_as_zero(
    decide: Decide, clusters: ModuleType
) -> None:
    decision = decide(clusters.document(clusters.pool(), clusters.pods("a", 5, **spread("a", minDomains=4))))
    assert by(decision, ZONE) == {"z-a": 1, "z-b": 1, "z-c": 1}
    assert len(decision["errors"]) == 2


def test_match_label_keys_spread_each_revision_by_itself(decide: Decide, clusters: ModuleType) -> None:
    pods = clusters.pods("a", 6, **spread("a", matchLabelKeys=["pod-template-hash"]))
    for i, pod in enumerate(pods):
        pod["metadata"]["labels"]["pod-template-hash"] = "old" if i < 3 else "new"
    decision = decide(clusters.document(clusters.pool(), pods))
    for revision in (range(3), range(3, 6)):
        names = {f"default/a-{i:04d}" for i in revision}
        zones = Counter(values(c, ZONE)[0] for c in decision["nodeClaims"] for p in c["pods"] if p in names)
        assert zones == {"z-a": 1, "z-b": 1, "z-c": 1}


def test_spread_counts_the_zones_of_any_node_affinity_term(decide: Decide, clusters: ModuleType) -> None:
    either = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [z]}]} for z in ("z-a", "z-b")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": either}}}
    decision = decide(clusters.document(clusters.pool(), clusters.pods("a", 4, affinity=affinity, **spread("a"))))
    assert by(decision, ZONE) == {"z-a": 2, "z-b": 2}


def test_spread_ignores_zones_without_the_requested_resource(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(clusters.pool(), clusters.pods("a", 4, **spread("a")))
    gpu = clusters.instance_type("p1.xlarge", 8, 32, 1.0, zones="ab")
    gpu["capacity"]["nvidia.com/gpu"] = "8"
    document["instanceTypes"] = [*document["instanceTypes"], gpu]
    for pod in document["objects"][1:]:
        pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    decision = decide(document)
    assert by(decision, ZONE) == {"z-a": 1, "z-b": 1}  # a third would be two above z-c, where none can be
    assert len(decision["errors"]) == 2


@pytest.mark.parametrize(
    ("policy", "placed"),
    [
        ("Honor", {"z-a": 2, "z-b": 2}),
        ("Ignore", {"z-a": 1, "z-b": 1}),  # the third zone's pool counts, though its taint keeps the pods away
    ],
)
def test_node_taints_policy_decides_whether_tainted_nodes_count(
    decide: Decide, clusters: ModuleType, policy: str, placed: dict[str, int]
) -> None:
    def zones(*names: str) -> list[Raw]:
        return [{"key": ZONE, "operator": "In", "values": list(names)}]

    far = clusters.pool("far", requirements=zones("z-c"), taints=[{"key": "k", "effect": "NoSchedule"}])
    pods = clusters.pods("a", 4, **spread("a", nodeTaintsPolicy=policy))
    assert by(decide(clusters.document(clusters.pool(requirements=zones("z-a", "z-b")), far, pods)), ZONE) == placed


def test_a_custom_label_keeps_a_ratio_of_capacity_types(decide: Decide, clusters: ModuleType) -> None:
    def pool(name: str, capacity_type: str, *shares: str) -> Raw:
        wanted = [
            {"key": CAPACITY_TYPE, "operator": "In", "values": [capacity_type]},
            {"key": SPREAD, "operator": "In", "values": list(shares)},
        ]
        node_pool: Raw = clusters.pool(name, requirements=wanted)
        return node_pool

    pools = [pool("spot", "spot", "2", "3", "4", "5"), pool("on-demand", "on-demand", "1")]
    decision = decide(clusters.document(pools, clusters.pods("a", 20, **spread("a", SPREAD))))
    assert not decision["errors"]
    assert by(decision, CAPACITY_TYPE) == {"spot": 16, "on-demand": 4}


def test_schedule_anyway_spread_is_kept_where_possible_and_excludes_no_pod(
    decide: Decide, clusters: ModuleType
) -> None:
    soft = spread("a", whenUnsatisfiable="ScheduleAnyway")
    assert by(decide(clusters.document(clusters.pool(), clusters.pods("a", 6, **soft))), ZONE) == {
        "z-a": 2,
        "z-b": 2,
        "z-c": 2,
    }
    where = [{"key": ZONE, "operator": "In", "values": ["z-b"]}]
    assert not decide(clusters.document(clusters.pool(requirements=where), clusters.pods("a", 6, **soft)))["errors"]


def test_host_ports_conflict_by_protocol_and_address(decide: Decide, clusters: ModuleType) -> None:
    def listening(app: str, count: int, **port: object) -> list[Raw]:
        pods: list[Raw] = clusters.pods(app, count, "100m", "100Mi")
        for pod in pods:
            pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "ports": [{"containerPort": 80, **port}]}]
        return pods

    assert len(decide(clusters.document(clusters.pool(), listening("a", 3, hostPort=80)))["nodeClaims"]) == 3
    anti_affinity = [listening("a", 1, hostPort=80), listening("b", 1, hostPort=80, protocol="UDP")]
    anti_affinity.append(listening("c", 1, hostPort=81))
    assert len(decide(clusters.document(clusters.pool(), *anti_affinity))["nodeClaims"]) == 1
    first, second = (listening(f"ip{i}", 1, hostPort=80, hostIP=f"10.0.0.{i}") for i in (1, 2))
    assert len(decide(clusters.document(clusters.pool(), first, second))["nodeClaims"]) == 1
    assert len(decide(clusters.document(clusters.pool(), first, listening("all", 1, hostPort=80)))["nodeClaims"]) == 2


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
    ids=["an init container's peak", "a sidecar with the rest", "an init container with a sidecar", "overhead"],
)
def test_pod_requests_are_counted_as_the_kubelet_does(
    decide: Decide, clusters: ModuleType, extra: Raw, requested: str
) -> None:
    (claim,) = decide(clusters.document(clusters.pool(), clusters.pods("a", 1, "500m", "1Gi", **extra)))["nodeClaims"]
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
def test_volume_limits_hold_and_a_shared_volume_counts_once(
    decide: Decide,
    clusters: ModuleType,
    claims: int,
    there: int,
) -> None:
    pods = clusters.pods("a", 4, "100m", "100Mi")
    volume_objects = [o for i in range(claims) for o in claimed(f"data-{i}")[: 1 if i else 2]]
    for i, pod in enumerate(pods):
        pod["spec"].update(mounting(f"data-{i % claims}"))
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "old", "allocatable": {"count": 2}}]
    csi = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "old"}}
    decision = decide(
        clusters.document(
            clusters.pool(), clusters.node("old"), {**csi, "spec": {"drivers": drivers}}, volume_objects, pods
        )
    )
    assert len(decision["existingNodes"]["old"]) == there
    assert not decision["errors"]


@pytest.mark.parametrize(
    ("prevents", "drivers", "created", "is_used"),
    [
        (True, ["ebs.csi.aws.com"], "2026-01-01T00:00:00Z", True),
        (True, ["efs.csi.aws.com"], "2026-01-01T00:00:00Z", False),
        (True, None, "2026-01-01T00:00:00Z", False),
        (True, [], "2999-01-01T00:00:00Z", True),
        (False, [], "2026-01-01T00:00:00Z", True),
    ],
    ids=["has it", "has another", "has no CSINode", "is new", "isn't asked for"],
)
def test_a_node_takes_volumes_of_a_driver_that_must_be_there_only_if_it_has_it_or_is_new(
    decide: Decide, clusters: ModuleType, *, prevents: bool, drivers: list[str] | None, created: str, is_used: bool
) -> None:
    """``preventPodSchedulingIfMissing``: kube-scheduler looks at it from 1.37 on."""
    (pod,) = clusters.pods("a", 1, "100m", "100Mi")
    pod["spec"].update(mounting("data"))
    storage = {"apiVersion": "storage.k8s.io/v1"}
    spec = {"preventPodSchedulingIfMissing": prevents}
    driver = {**storage, "kind": "CSIDriver", "metadata": {"name": "ebs.csi.aws.com"}, "spec": spec}
    installed = [{"name": name, "nodeID": "old"} for name in drivers or ()]
    csi = {**storage, "kind": "CSINode", "metadata": {"name": "old"}, "spec": {"drivers": installed}}
    node = clusters.node("old")
    node["metadata"]["creationTimestamp"] = created
    objects = [node, driver, *([csi] if drivers is not None else ()), claimed("data"), pod]

    decision = decide(clusters.document(clusters.pool(), *objects))

    assert (len(decision["nodeClaims"]), "old" in decision["existingNodes"]) == (0 if is_used else 1, is_used)
    assert not decision["errors"]


def local_volume(name: str, zone: str, size: str = "10Gi", **spec: object) -> Raw:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "local",
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        },
        "status": {"phase": "Available"},
    }


def local_claim(provisioner: str = "kubernetes.io/no-provisioner") -> list[Raw]:
    requests = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    claim, storage_class = claimed("data", storageClassName="local", **requests)
    return [claim, {**storage_class, "metadata": {"name": "local"}, "provisioner": provisioner}]


UNSUITABLE_VOLUMES = [
    local_volume("small", "z-a", "9Gi"),
    local_volume("other-class", "z-a", storageClassName="gp3"),
    local_volume("block", "z-a", volumeMode="Block"),
    local_volume("read-only", "z-a", accessModes=["ReadOnlyMany"]),
    local_volume("anothers", "z-a", claimRef={"namespace": "default", "name": "other", "uid": "u"}),
    {**local_volume("released", "z-a"), "status": {"phase": "Released"}},
]


def test_a_class_without_a_provisioner_takes_the_zone_of_an_available_volume(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("a", 1, **mounting("data"))
    volumes = [*UNSUITABLE_VOLUMES, local_volume("suitable", "z-b")]
    decision = decide(clusters.document(clusters.pool(), local_claim(), volumes, pods))
    (claim,) = decision["nodeClaims"]
    assert claim["cheapest"]["zone"] == "z-b"


def test_without_an_available_volume_and_a_provisioner_the_pod_is_unschedulable(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("a", 1, **mounting("data"))
    decision = decide(clusters.document(clusters.pool(), local_claim(), UNSUITABLE_VOLUMES, pods))
    (error,) = decision["errors"].values()
    assert "StorageClass local has no provisioner, and no available PersistentVolume satisfies the claim" in str(error)
    assert not decision["nodeClaims"]


def test_a_class_with_a_provisioner_is_not_bound_to_the_zones_of_available_volumes(
    decide: Decide, clusters: ModuleType
) -> None:
    pods = clusters.pods("a", 1, nodeSelector={ZONE: "z-a"}, **mounting("data"))
    objects = [*local_claim("ebs.csi.aws.com"), local_volume("suitable", "z-b")]
    (claim,) = decide(clusters.document(clusters.pool(), objects, pods))["nodeClaims"]
    assert claim["cheapest"]["zone"] == "z-a"


def test_reserved_capacity_is_used_first(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(clusters.pool(), clusters.pods("a", 1))
    reserved = clusters.instance_type("m1.xlarge", 4, 16, 0.2)
    reserved["offerings"] = [{"zone": "z-b", "capacityType": "reserved", "price": 0.0}, *reserved["offerings"]]
    rest = [t for t in document["instanceTypes"] if t["name"] != "m1.xlarge"]
    (claim,) = decide({**document, "instanceTypes": [*rest, reserved]})["nodeClaims"]
    assert claim["cheapest"] == {"instanceType": "m1.xlarge", "zone": "z-b", "capacityType": "reserved", "price": 0.0}


@pytest.mark.parametrize("key", [ZONE, HOST])
@pytest.mark.parametrize("unsatisfiable", ["DoNotSchedule", "ScheduleAnyway"])
@pytest.mark.parametrize("more", [{}, {"minDomains": 4}], ids=["plain", "minDomains"])
def test_a_spread_without_a_selector_counts_no_pods_and_limits_nothing(
    decide_unchecked: Decide, clusters: ModuleType, key: str, unsatisfiable: str, more: dict[str, int]
) -> None:
    """The API server accepts it, and a nil selector matches nothing."""
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": unsatisfiable}
    extra = more if unsatisfiable == "DoNotSchedule" else {}
    spread = clusters.pods("loose", 9, cpu="300m", topologySpreadConstraints=[{**rule, **extra}])
    decision = decide_unchecked(clusters.document(clusters.pool(), spread))
    plain = decide_unchecked(clusters.document(clusters.pool(), clusters.pods("loose", 9, cpu="300m")))
    assert decision["errors"] == {}
    assert sum(c["cheapest"]["price"] for c in decision["nodeClaims"]) == pytest.approx(
        sum(c["cheapest"]["price"] for c in plain["nodeClaims"])
    )

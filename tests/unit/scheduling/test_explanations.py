"""Explanations of unschedulable pods: the failed criterion, what was requested, and the nearest miss."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cli import problem_files
from shared.base.struct import with_fields
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from types import ModuleType

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
FAMILY = "karpenter.k8s.aws/instance-family"
Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]


def asks(requests: Raw) -> Raw:
    return {"containers": [{"name": "app", "resources": {"requests": requests}}]}


def affinity_rule(app: str, key: str, kind: str = "podAffinity") -> Raw:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def architectures(*names: str) -> Raw:
    """A node affinity with a term for each architecture, of which one has to be satisfied."""
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": [name]}]} for name in names
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def daemon(cpu: str) -> Raw:
    template = {"metadata": {}, "spec": asks({"cpu": cpu})}
    meta = {"name": "agent", "namespace": "kube-system", "uid": "agent"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {"template": template}}


def reason(decision: Raw) -> str:
    assert list(decision["errors"]) == ["default/bad-0000"]
    message: str = decision["errors"]["default/bad-0000"]
    return message.removeprefix("unschedulable: NodePool default: ")


FAMILIES = [{"key": FAMILY, "operator": "Exists", "minValues": 3}]
ENI = "vpc.amazonaws.com/pod-eni"


@pytest.mark.parametrize(
    ("pool", "spec", "expected"),
    [
        pytest.param(
            {},
            asks({"cpu": "20"}),
            "of 12 instance types, none has enough cpu: requested 20 plus 200m for DaemonSets, largest is c1.4xlarge "
            "with 15700m",
            id="resources, with what daemons take and the nearest miss",
        ),
        pytest.param(
            {},
            asks({"cpu": "10", "memory": "70Gi"}),
            "of 12 instance types, none has enough memory: requested 70Gi, largest is g1.4xlarge with 65280Mi",
            id="the resource that is short, not the one that fits",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"kubernetes.io/arch": "s390x"}},
            "of 12 instance types, kubernetes.io/arch In s390x excludes 12; none left",
            id="architecture",
        ),
        pytest.param(
            {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]},
            {},
            "did not tolerate taint team=red:NoSchedule",
            id="taint",
        ),
        pytest.param(
            {},
            affinity_rule("ghost", ZONE),
            f"pod affinity not satisfied: no pod matches app=ghost in any {ZONE}",
            id="affinity to an app that isn't there, by zone",
        ),
        pytest.param(
            {},
            affinity_rule("ghost", HOST),
            f"pod affinity not satisfied: no pod matches app=ghost in any {HOST}",
            id="affinity to an app that isn't there, by host",
        ),
        pytest.param(
            {},
            {"affinity": {**affinity_rule("ghost", ZONE)["affinity"], **architectures("s390x", "amd64")}},
            f"pod affinity not satisfied: no pod matches app=ghost in any {ZONE}",
            id="affinity to an app that isn't there, where the second term of its node affinity can be satisfied",
        ),
        pytest.param(
            {"limits": {"cpu": "1"}},
            {},
            "exceeds its limits: cpu 1 left, smallest instance type for the pod has 2",
            id="limits",
        ),
        pytest.param({"limits": {"nodes": "0"}}, {}, "exceeds its limits: nodes 0 left", id="limit of nodes"),
        pytest.param(
            {},
            asks({"cpu": "3310m", ENI: "1"}),
            f"of 12 instance types, none has {ENI} (requested 1)",
            id="pod-eni, which no type has",
        ),
        pytest.param(
            {},
            asks({"cpu": "3310m", "example.com/fpga": "1"}),
            "of 12 instance types, none has example.com/fpga (requested 1): if a DeviceClass "
            "(spec.extendedResourceName) or device plugin provides it, let spec.capacity of a NodeOverlay name the "
            "instance types that have it",
            id="a device that EC2 doesn't tell of",
        ),
        pytest.param(
            {},
            asks({"cpu": "3310m", "deviceclass.resource.kubernetes.io/fpga": "1"}),
            "of 12 instance types, none has deviceclass.resource.kubernetes.io/fpga (requested 1): if DeviceClass fpga "
            "provides it, let spec.capacity of a NodeOverlay name the instance types that have it",
            id="a device of a DeviceClass",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"kubernetes.io/arch": "arm64"}, **asks({"cpu": "3310m", ENI: "1"})},
            f"of 12 instance types, kubernetes.io/arch In arm64 excludes 8; of the remaining 4, none has {ENI} "
            "(requested 1)",
            id="pod-eni, which no allowed type has",
        ),
        pytest.param(
            {},
            {"nodeSelector": {"example.com/team": "red"}},
            "incompatible requirements: label example.com/team has no known values (required: In red)",
            id="a label that the pool doesn't define",
        ),
        pytest.param(
            {"labels": {"example.com/team": "blue"}},
            {"nodeSelector": {"example.com/team": "red"}},
            "incompatible requirements: example.com/team In red is not in In blue",
            id="a label that the pool defines otherwise",
        ),
        pytest.param(
            {"requirements": FAMILIES},
            {"nodeSelector": {"kubernetes.io/arch": "amd64"}},
            f"minValues not met: {FAMILY} requires 3 values, instance types for the pod have 2",
            id="minValues",
        ),
        pytest.param(
            {"requirements": [{"key": FAMILY, "operator": "In", "values": ["x9"]}]},
            {},
            "the NodePool's requirements exclude all instance types",
            id="a pool that allows nothing",
        ),
    ],
)
def test_the_reason_names_the_first_failed_criterion(
    decide: Decide, clusters: ModuleType, pool: Raw, spec: Raw, expected: str
) -> None:
    bad = clusters.pods("bad", 1)
    bad[0]["spec"].update(spec)
    assert reason(decide(clusters.document(clusters.pool(**pool), daemon("200m"), bad))).startswith(expected)


def test_a_zone_that_volumes_require_is_named_as_theirs(decide: Decide, clusters: ModuleType) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv", "storageClassName": "gp3"},
    }
    zone = {"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["z-q"]}
    where = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"nodeAffinity": where},
    }
    bad = clusters.pods("bad", 1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    expected = f"of 12 instance types, {ZONE} In z-q (of its volumes) excludes 12; none left"
    assert reason(decide(clusters.document(clusters.pool(), claim, volume, bad))) == expected


@pytest.mark.parametrize(
    ("zones", "selector", "expected"),
    [
        ("abc", {}, "none of 12 instance types has an available offering"),
        ("b", {ZONE: "z-b"}, f"of 12 instance types, {ZONE} In z-b leaves 12 without an available offering; none left"),
    ],
)
def test_unavailable_offerings_are_distinguished_from_excluded_instance_types(
    decide: Decide, clusters: ModuleType, zones: str, selector: Raw, expected: str
) -> None:
    document = clusters.document(clusters.pool(), clusters.pods("bad", 1, nodeSelector=selector))
    document["instanceTypes"] = copy.deepcopy(clusters.TYPES)
    for offering in (o for t in document["instanceTypes"] for o in t["offerings"]):
        offering["available"] = offering["zone"][-1] not in zones
    assert reason(decide(document)) == expected


def test_the_nearest_instance_type_is_named_when_each_lacks_something(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(clusters.pool(), clusters.pods("bad", 1, "6", "20Gi"))
    document["instanceTypes"] = [
        clusters.instance_type("c9.big", 16, 8, 1.0),
        clusters.instance_type("r9.big", 4, 64, 1.0),
    ]
    assert reason(decide(document)) == (
        "of 2 instance types, none has enough of all requests (cpu 6, memory 20Gi, pods 1); nearest is c9.big, "
        "insufficient memory"
    )


def test_daemonsets_that_leave_no_capacity_are_named(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(), daemon("100"), clusters.pods("bad", 1)))
    assert reason(decision) == "DaemonSets leave no capacity on any instance type"


def test_each_nodepool_has_its_own_reason(clusters: ModuleType) -> None:
    document = clusters.document(clusters.pool("a"), clusters.pool("b", limits={"cpu": "1"}), clusters.pods("bad", 1))
    documents = problem_files.Document(objects=document["objects"], instance_types=document["instanceTypes"])
    problem = problem_files.simulation_input(documents, now=datetime(2026, 11, 21, tzinfo=UTC)).problem
    not_ready_problem = with_fields(problem, not_ready={"a": 'its EC2NodeClass "web" does not exist'})
    unschedulable = schedule(not_ready_problem).pod_errors["default/bad-0000"]
    assert unschedulable.criteria == {
        "a": 'its EC2NodeClass "web" does not exist',
        "b": "exceeds its limits: cpu 1 left, smallest instance type for the pod has 2",
    }
    assert unschedulable.message.startswith(
        'unschedulable on all 2 NodePools: NodePool a: its EC2NodeClass "web" does not'
    )


def test_nodepools_with_the_same_reason_are_listed_together(decide: Decide, clusters: ModuleType) -> None:
    pools = [clusters.pool(name, taints=[{"key": "k", "effect": "NoSchedule"}]) for name in ("a", "b", "c")]
    decision = decide(clusters.document(pools, clusters.pods("bad", 1)))
    assert decision["errors"]["default/bad-0000"] == (
        "unschedulable: NodePools a, b, c: did not tolerate taint k:NoSchedule"
    )

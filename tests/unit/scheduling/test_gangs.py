"""Gangs: the pods of a PodGroup get nodes for its minimum at once, or none, and the reason says what is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from shared.api.kubernetes import Pod, PodSpec, PodStatus
from shared.api.meta import Condition
from shared.api.pod_references import PodSchedulingGroup
from shared.api.pods import is_unschedulable

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
Decide = Callable[[Raw], Raw]

KUBERNETES, COSCHEDULING, VOLCANO = (
    "scheduling.k8s.io/v1beta1",
    "scheduling.x-k8s.io/v1alpha1",
    "scheduling.volcano.sh/v1beta1",
)
APIS = (KUBERNETES, COSCHEDULING, VOLCANO)


def pod_group(name: str, minimum: int, api_version: str = COSCHEDULING, **fields: Any) -> Raw:
    spec: Raw = {"minMember": minimum}
    if api_version == KUBERNETES:
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": {**spec, **fields}}


def members(
    clusters: ModuleType, group: str, count: int, cpu: str = "1700m", *, api_version: str = COSCHEDULING, **spec: Any
) -> list[Raw]:
    """Pods of the PodGroup; of the default size, each fills a node of two CPUs."""
    if api_version == KUBERNETES:
        spec = {**spec, "schedulingGroup": {"podGroupName": group}}
    pods: list[Raw] = clusters.pods(group, count, cpu, **spec)
    for pod in pods:
        if api_version == COSCHEDULING:
            pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group
        if api_version == VOLCANO:
            pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group}
    return pods


def limited(clusters: ModuleType, cpu: int, **spec: Any) -> Raw:
    pool: Raw = clusters.pool(limits={"cpu": str(cpu)}, **spec)
    return pool


def placed(decision: Raw) -> set[str]:
    on_new = {pod for claim in decision["nodeClaims"] for pod in claim["pods"]}
    return on_new | {pod for pods in decision["existingNodes"].values() for pod in pods}


def zones(decision: Raw) -> set[str]:
    return {claim["cheapest"]["zone"] for claim in decision["nodeClaims"]}


@pytest.mark.parametrize("api_version", APIS)
def test_a_gang_within_limits_gets_all_its_nodes(decide: Decide, clusters: ModuleType, api_version: str) -> None:
    pods = members(clusters, "train", 4, api_version=api_version)
    decision = decide(clusters.document(limited(clusters, 8), pod_group("train", 4, api_version), pods))
    assert decision["errors"] == {}
    assert len(placed(decision)) == 4


@pytest.mark.parametrize("api_version", APIS)
def test_a_gang_that_does_not_fit_whole_gets_nothing(decide: Decide, clusters: ModuleType, api_version: str) -> None:
    pods = members(clusters, "train", 5, api_version=api_version)
    decision = decide(clusters.document(limited(clusters, 8), pod_group("train", 5, api_version), pods))
    assert placed(decision) == set()
    assert len(decision["errors"]) == 5
    for message in decision["errors"].values():
        assert message.startswith(
            "PodGroup default/train: 4 of the 5 pods that it needs at once would fit; pod default/"
        )
        assert "limit" in message


def test_without_a_gang_the_part_that_fits_is_launched(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(limited(clusters, 8), clusters.pods("web", 5, "1700m")))
    assert len(placed(decision)) == 4


def test_pods_beyond_the_minimum_are_launched_as_far_as_they_fit(decide: Decide, clusters: ModuleType) -> None:
    pods = members(clusters, "train", 5)
    decision = decide(clusters.document(limited(clusters, 8), pod_group("train", 3), pods))
    assert len(placed(decision)) == 4


def test_room_that_a_refused_gang_leaves_is_for_others(decide: Decide, clusters: ModuleType) -> None:
    pods = [*members(clusters, "train", 5), *clusters.pods("web", 2, "1700m")]
    decision = decide(clusters.document(limited(clusters, 8), pod_group("train", 5), pods))
    assert placed(decision) == {"default/web-0000", "default/web-0001"}


def test_of_two_gangs_that_compete_the_older_is_whole(decide: Decide, clusters: ModuleType) -> None:
    groups = [
        pod_group("a", 3, metadata={"creationTimestamp": "2026-05-01T11:00:00Z"}),
        pod_group("b", 3, metadata={"creationTimestamp": "2026-05-01T10:00:00Z"}),
    ]
    pods = [*members(clusters, "a", 3), *members(clusters, "b", 3)]
    decision = decide(clusters.document(limited(clusters, 8), groups, pods))
    assert placed(decision) == {f"default/b-000{i}" for i in range(3)}
    assert set(decision["errors"]) == {f"default/a-000{i}" for i in range(3)}


def test_a_higher_priority_comes_before_age(decide: Decide, clusters: ModuleType) -> None:
    groups = [
        pod_group("a", 3, metadata={"creationTimestamp": "2026-05-01T11:00:00Z"}),
        pod_group("b", 3, metadata={"creationTimestamp": "2026-05-01T10:00:00Z"}),
    ]
    pods = [*members(clusters, "a", 3, priority=1000), *members(clusters, "b", 3)]
    decision = decide(clusters.document(limited(clusters, 8), groups, pods))
    assert placed(decision) == {f"default/a-000{i}" for i in range(3)}


def test_nothing_is_launched_before_all_pods_exist(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(), pod_group("train", 4), members(clusters, "train", 3)))
    assert placed(decision) == set()
    assert "3 exist of 4 pods that it needs" in decision["errors"]["default/train-0000"]


def test_pods_that_run_count_for_the_minimum(decide: Decide, clusters: ModuleType) -> None:
    pods = members(clusters, "train", 4)
    for pod in pods[:3]:
        pod["spec"]["nodeName"] = "big"
        pod["status"] = {"phase": "Running"}
    pods[2]["status"]["phase"] = "Succeeded"
    decision = decide(clusters.document(clusters.pool(), clusters.node("big", 4), pod_group("train", 4), pods))
    assert placed(decision) == {"default/train-0003"}


def test_a_gang_is_kept_in_one_zone(decide: Decide, clusters: ModuleType) -> None:
    pods = members(clusters, "train", 4)
    nodes = [clusters.node("b1", 2, 8, "z-b"), clusters.node("c1", 2, 8, "z-c")]
    decision = decide(clusters.document(clusters.pool(), pod_group("train", 4), pods, nodes))
    assert len(zones(decision)) == 1
    assert len(placed(decision)) == 4


@pytest.mark.parametrize("why", ["topology", "efa"])
def test_where_one_zone_is_a_must_none_is_launched_across_zones(decide: Decide, clusters: ModuleType, why: str) -> None:
    """Two nodes of two zones have room for a pod each, and nothing can be launched."""
    nodes = [clusters.node(f"{zone}1", 2, 8, f"z-{zone}", labels={"karpenter.sh/nodepool": ""}) for zone in ("a", "b")]
    constraint = {"schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]}}
    pods = members(clusters, "train", 2, api_version=KUBERNETES)
    if why == "efa":
        for pod in pods:
            pod["spec"]["containers"] = [
                {"name": "app", "resources": {"requests": {"cpu": "1700m", "vpc.amazonaws.com/efa": "1"}}}
            ]
        for node in nodes:
            for size in (node["status"]["capacity"], node["status"]["allocatable"]):
                size["vpc.amazonaws.com/efa"] = "1"
    group = pod_group("train", 2, KUBERNETES, **(constraint if why == "topology" else {}))
    decision = decide(clusters.document(limited(clusters, 0), group, pods, nodes))
    assert placed(decision) == set()
    assert "have to be in one zone" in decision["errors"]["default/train-0000"]
    anywhere = decide(
        clusters.document(limited(clusters, 0), pod_group("train", 2, KUBERNETES), members(clusters, "train", 2), nodes)
    )
    assert len(placed(anywhere)) == 2


@pytest.mark.parametrize(
    ("group", "why"),
    [
        (pod_group("train", 2, KUBERNETES, parentCompositePodGroupName="all"), "spec.parentCompositePodGroupName"),
        (pod_group("train", 2, KUBERNETES, resourceClaims=[{"name": "a"}]), "spec.resourceClaims"),
        (
            pod_group("train", 2, KUBERNETES, schedulingConstraints={"topology": [{"key": "example.net/rack"}]}),
            "example.net/rack",
        ),
    ],
)
def test_what_is_not_supported_is_named(decide: Decide, clusters: ModuleType, group: Raw, why: str) -> None:
    decision = decide(clusters.document(clusters.pool(), group, members(clusters, "train", 2, api_version=KUBERNETES)))
    assert placed(decision) == set()
    assert why in decision["errors"]["default/train-0000"]


def test_a_pod_group_that_does_not_exist_is_waited_for(decide: Decide, clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(), members(clusters, "train", 2, api_version=KUBERNETES)))
    assert placed(decision) == set()


@pytest.mark.parametrize("api_version", [COSCHEDULING, VOLCANO])
def test_a_label_without_a_pod_group_means_nothing(decide: Decide, clusters: ModuleType, api_version: str) -> None:
    decision = decide(clusters.document(clusters.pool(), members(clusters, "train", 2, api_version=api_version)))
    assert len(placed(decision)) == 2


def test_a_group_of_basic_policy_is_no_gang(decide: Decide, clusters: ModuleType) -> None:
    group = pod_group("train", 2, KUBERNETES)
    group["spec"]["schedulingPolicy"] = {"basic": {}}
    pods = members(clusters, "train", 5, api_version=KUBERNETES)
    decision = decide(clusters.document(limited(clusters, 8), group, pods))
    assert len(placed(decision)) == 4


# --- random mixes ---


def mix(clusters: ModuleType, seed: int) -> tuple[dict[str, int], list[Raw], list[Raw]]:
    """The least numbers of pods by gang, the PodGroups, and the pods of gangs and of none."""
    source = random.Random(seed)  # noqa: S311 (no cryptography)
    minimums = {f"gang-{i}": source.randint(2, 8) for i in range(source.randint(1, 4))}
    pods: list[Raw] = []
    for name, minimum in minimums.items():
        cpu = source.choice(["400m", "900m", "1700m", "3500m"])
        pods += members(clusters, name, minimum + source.choice([-1, 0, 0, 0, 2]), cpu)
    for i in range(source.randint(0, 3)):
        pods += clusters.pods(f"web-{i}", source.randint(1, 6), source.choice(["250m", "1100m", "2"]))
    return minimums, [pod_group(name, minimum) for name, minimum in minimums.items()], pods


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_mix_no_gang_gets_a_part(decide: Decide, clusters: ModuleType, seed: int) -> None:
    minimums, groups, pods = mix(clusters, seed)
    for cpu in (8, 24):
        decision = decide(clusters.document(limited(clusters, cpu), groups, pods))
        for name, minimum in minimums.items():
            with_node = [pod for pod in placed(decision) if pod.startswith(f"default/{name}-")]
            assert not with_node or len(with_node) >= minimum


@pytest.mark.parametrize("seed", range(40))
def test_where_nothing_limits_them_gangs_cost_two_percent_more_at_most(
    decide: Decide, clusters: ModuleType, seed: int
) -> None:
    """Than the same pods without PodGroups; gangs of which too few pods exist are left out of both."""
    minimums, groups, pods = mix(clusters, seed)
    for name, minimum in minimums.items():
        own = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        if len(own) < minimum:
            pods = [pod for pod in pods if pod not in own]

    def price(*objects: Any) -> float:
        decision = decide(clusters.document(clusters.pool(), *objects))
        assert decision["errors"] == {}
        return float(sum(claim["cheapest"]["price"] for claim in decision["nodeClaims"]))

    assert price(groups, pods) <= 1.02 * price(pods)


@pytest.mark.parametrize(
    ("group", "reason", "expected"),
    [
        ("train", "Unschedulable", True),
        ("train", "SchedulerError", True),
        ("", "SchedulerError", False),
        ("train", "SchedulingGated", False),
    ],
)
def test_a_scheduler_error_of_a_pod_group_means_that_there_is_no_node(
    group: str, reason: str, *, expected: bool
) -> None:
    spec = PodSpec(scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None)
    unscheduled = Condition(type="PodScheduled", status="False", reason=reason)
    assert is_unschedulable(Pod(spec=spec, status=PodStatus(conditions=[unscheduled]))) is expected

"""Bad node classes, for resources that don't exist or options that AWS forbids: each error names the field."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.kubernetes import kinds
from local.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.flow

V1 = Path(__file__).parent.parent.parent / "cli" / "demo" / "manifests" / "v1.yaml"
MINUTES = 12


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A mistake in a class (``spec`` over a good one's) or in its pool, and the condition that must report it.

    ``pool_says`` where its pool doesn't repeat it.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    pool: list[dict[str, Any]] = field(default_factory=list)
    on: str = "EC2NodeClass"
    condition: str
    reason: str
    says: tuple[str, ...]
    pool_says: str = ""


CASES = {
    "role": Bad(
        spec={"role": "NobodyKnows"},
        condition="InstanceProfileReady",
        reason="RoleNotFound",
        says=("spec.role", '"NobodyKnows"'),
    ),
    "profile": Bad(
        spec={"instanceProfile": "NobodyKnows"},
        without=("role",),
        condition="InstanceProfileReady",
        reason="InstanceProfileNotFound",
        says=("spec.instanceProfile", '"NobodyKnows"'),
    ),
    "image": Bad(
        spec={"amiFamily": "AL2023", "amiSelectorTerms": [{"name": "never-made-*", "owner": "self"}]},
        condition="AMIsReady",
        reason="AMINotFound",
        says=("spec.amiSelectorTerms[0]", "never-made-*"),
    ),
    "subnets": Bad(
        spec={"subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "nowhere"}}]},
        condition="SubnetsReady",
        reason="SubnetsNotFound",
        says=("spec.subnetSelectorTerms[0].tags", "nowhere"),
    ),
    "groups": Bad(
        spec={"securityGroupSelectorTerms": [{"name": "nobodys"}]},
        condition="SecurityGroupsReady",
        reason="SecurityGroupsNotFound",
        says=("spec.securityGroupSelectorTerms[0].name", '"nobodys"'),
    ),
    "zones": Bad(
        pool=[{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1f"]}],
        on="NodePool",
        condition="NodeClassReady",
        reason="ZonesConflict",
        says=("spec.subnetSelectorTerms", "us-east-1a", "topology.kubernetes.io/zone In us-east-1f"),
    ),
    "tag-of-aws": Bad(
        spec={"tags": {"aws:owner": "us"}},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.tags", '"aws:owner"', "set by Tenon, EKS or AWS"),
        pool_says="no valid EC2NodeClass",
    ),
    "tag-of-ours": Bad(
        spec={"tags": {"kubernetes.io/cluster/other": "owned"}},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.tags", '"kubernetes.io/cluster/other"'),
        pool_says="no valid EC2NodeClass",
    ),
    "mime": Bad(
        spec={"userData": "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nno parts\n"},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.userData", "MIME"),
    ),
    "toml": Bad(
        spec={"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "[settings\nmotd = hello"},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.userData", "TOML", "line 1"),
    ),
    "cores": Bad(
        spec={"cpuOptions": {"cores": 2}},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.cpuOptions.cores", "coreCount"),
    ),
    "interfaces": Bad(
        spec={"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "trunk"}]},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.networkInterfaces[0].interfaceType", '"trunk"', "efa-only"),
    ),
    "kubelet": Bad(
        spec={"kubelet": {"maxPod": 30}},
        condition="ValidationSucceeded",
        reason="InvalidKubeletConfiguration",
        says=("spec.kubelet.maxPod: 30 is not allowed", "no such setting"),
        pool_says="no valid EC2NodeClass",
    ),
    "kubelet-of-family": Bad(
        spec={"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "kubelet": {"failSwapOn": False}},
        condition="ValidationSucceeded",
        reason="UnsupportedKubeletConfiguration",
        says=("spec.kubelet.failSwapOn: false is not supported by Bottlerocket",),
    ),
    "expression": Bad(
        spec={"kubelet": {"maxPods": "cpus * 10"}},
        condition="ValidationSucceeded",
        reason="KubeletExpressionInvalid",
        says=("spec.kubelet.maxPods", '"cpus * 10"', "known are vcpus"),
    ),
    "expression-without-value": Bad(
        spec={"kubelet": {"maxPods": "100 / (vcpus - 64)"}},
        condition="ValidationSucceeded",
        reason="KubeletExpressionEvaluationFailed",
        says=("spec.kubelet.maxPods", '"100 / (vcpus - 64)" on '),
    ),
    "placement": Bad(
        spec={"placementGroupSelector": {"name": "a", "id": "pg-0123"}},
        condition="ValidationSucceeded",
        reason="Invalid",
        says=("spec.placementGroupSelector", "either name or id"),
    ),
}


def class_and_pool(name: str, bad: Bad, pool: dict[str, Any], node_class: dict[str, Any]) -> list[dict[str, Any]]:
    """A class with the mistake, and a pool of it that would be preferred."""
    spec = {key: value for key, value in node_class["spec"].items() if key not in bad.without}
    template = pool["spec"]["template"]
    reference = {**template["spec"]["nodeClassRef"], "name": name}
    requirements = [*template["spec"]["requirements"], *bad.pool]
    of_pool = {**template, "spec": {**template["spec"], "nodeClassRef": reference, "requirements": requirements}}
    return [
        {**node_class, "metadata": {"name": name}, "spec": {**spec, **bad.spec}},
        {**pool, "metadata": {"name": name}, "spec": {**pool["spec"], "weight": 100, "template": of_pool}},
    ]


@pytest.fixture(scope="module")
def bad_world() -> Iterator[World]:
    """A cluster in which all these mistakes have been made at once, for a while, next to one good class."""
    with World(cluster="demo") as world:
        pool, node_class = _v1(world)
        bad = [obj for name, case in CASES.items() for obj in class_and_pool(name, case, pool, node_class)]
        world.apply([pool, node_class, *bad])
        world.apply(_web(2))
        world.run_for(timedelta(minutes=MINUTES))
        yield world
        # A role that the deployment doesn't name may not be passed: one of the mistakes.
        assert all("iam:PassRole" in text for text in world.denied_requests())
        world.expect_denials()


def _v1(world: World) -> list[dict[str, Any]]:
    return [doc for doc in yaml.safe_load_all(V1.read_text().replace("CLUSTER", world.cluster)) if doc]


def _web(replicas: int) -> dict[str, Any]:
    container = {"name": "web", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def _of(world: World, kind: str, name: str) -> dict[str, Any]:
    group = "karpenter.sh/v1" if kind == "NodePool" else "karpenter.k8s.aws/v1"
    obj: dict[str, Any] = world.store.get(world.store.kind(group, kind), name)
    return obj


def _conditions(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {c["type"]: c for c in obj["status"]["conditions"]}


@pytest.mark.parametrize("name", CASES)
def test_a_condition_and_an_event_name_the_field(bad_world: World, name: str) -> None:
    bad = CASES[name]
    conditions = _conditions(_of(bad_world, bad.on, name))
    condition = conditions[bad.condition]
    assert (condition["status"], condition["reason"]) == ("False", bad.reason)
    assert conditions["Ready"]["status"] == "False"
    for part in bad.says:
        assert part in condition["message"]
        assert part in conditions["Ready"]["message"]
    events = [
        e
        for e in bad_world.store.list(kinds.EVENTS)
        if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (bad.on, name)
    ]
    # Checked each minute, but the event is sent once and its count raised every five minutes.
    (event,) = [e for e in events if all(part in e["message"] for part in bad.says)]
    assert event["type"] == "Warning"
    assert 2 <= event["count"] <= 1 + MINUTES // 5
    assert len(events) == 1


@pytest.mark.parametrize("name", CASES)
def test_its_pool_reports_it_and_launches_nothing(bad_world: World, name: str) -> None:
    ready = _conditions(_of(bad_world, "NodePool", name))["Ready"]
    assert ready["status"] == "False"
    bad = CASES[name]
    assert all(part in ready["message"] for part in ((bad.pool_says,) if bad.pool_says else bad.says))
    assert bad_world.nodes(name) == []


def test_the_good_class_is_still_used(bad_world: World) -> None:
    assert len(bad_world.pods(phase="Running")) == 2
    assert {n["metadata"]["labels"]["karpenter.sh/nodepool"] for n in bad_world.nodes()} == {"default"}
    assert _conditions(_of(bad_world, "EC2NodeClass", "default"))["Ready"]["status"] == "True"
    assert bad_world.failures() == []
    assert bad_world.dead_letters() == []


def test_a_corrected_class_is_used_at_once(bad_world: World) -> None:
    pool, node_class = _v1(bad_world)
    mended = class_and_pool("toml", Bad(condition="", reason="", says=()), pool, node_class)
    bad_world.apply(mended)
    bad_world.run_for(timedelta(minutes=2))
    assert _conditions(_of(bad_world, "EC2NodeClass", "toml"))["Ready"]["status"] == "True"
    bad_world.scale("default", "web", 12)
    bad_world.run_until(lambda: len(bad_world.pods(phase="Running")) == 12, limit=timedelta(minutes=5))
    assert bad_world.nodes("toml")

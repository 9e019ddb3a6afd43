"""``kubectl wait`` on each of our kinds: conditions are of the object's generation, also after an edit of its spec.

``kubectl wait`` and the checks of docs/gitops.md ignore a condition whose ``observedGeneration`` is older than its
object's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import Options, World, sample_objects
from shared.api.labels import CAPACITY_TYPE, DRIFT_WAVES, INSTANCE_TYPE
from tests.unit.instance_types.node_overlays import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

MINUTE = timedelta(minutes=1)
GROUP = "karpenter.sh/v1"
TYPES = {CAPACITY_TYPE: ["on-demand"], INSTANCE_TYPE: ["m5.large"]}
TERMS = {"karpenter.sh/discovery": "demo"}
NODE_CLASS = ("karpenter.k8s.aws/v1", "EC2NodeClass", "default")
NODE_POOL = (GROUP, "NodePool", "default")
INVALID = ("karpenter.sh/v1alpha5", "Provisioner", "broken")
PROVISIONER = ("karpenter.sh/v1alpha5", "Provisioner", "old")
TEMPLATE = ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate", "old")
OVERLAY = ("karpenter.sh/v1alpha1", "NodeOverlay", "discount")
BUFFER = ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "warm")
EDITS: dict[tuple[str, str, str], Json] = {
    NODE_CLASS: {"tags": {"team": "web"}},
    NODE_POOL: {"weight": 7, "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "50%"}]}},
    INVALID: {"weight": 7},
    PROVISIONER: {"weight": 7},
    TEMPLATE: {"tags": {"team": "web"}},
    OVERLAY: {"priceAdjustment": "-10%"},
    BUFFER: {"replicas": 2},
}
"""By object: an edit of its spec that leaves it as healthy as it was."""
NEEDS_KUBECTL = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed on this machine")


def legacy_objects() -> list[Json]:
    template = {"subnetSelector": TERMS, "securityGroupSelector": TERMS, "instanceProfile": "KarpenterInstanceProfile"}
    return [
        {"apiVersion": TEMPLATE[0], "kind": TEMPLATE[1], "metadata": {"name": "old"}, "spec": template},
        {
            "apiVersion": PROVISIONER[0],
            "kind": PROVISIONER[1],
            "metadata": {"name": "old"},
            "spec": {"providerRef": {"name": "old"}},
        },
        {
            "apiVersion": INVALID[0],
            "kind": INVALID[1],
            "metadata": {"name": "broken"},
            "spec": {
                "providerRef": {"name": "old"},
                "requirements": [{"key": CAPACITY_TYPE, "operator": "Is", "values": ["spot"]}],
            },
        },
    ]


def buffer_objects() -> list[Json]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "warm", "namespace": "default"},
            "template": {"spec": {"containers": [container]}},
        },
        {
            "apiVersion": BUFFER[0],
            "kind": BUFFER[1],
            "metadata": {"name": "warm", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "warm"}, "replicas": 1},
        },
    ]


@pytest.fixture
def world() -> Iterator[World]:
    """Each of our kinds, with a node; the pools have conditions that only some have (paused, stopped drift)."""
    with World(cluster="demo", options=Options()) as world:
        pool = sample_objects.node_pool(
            TYPES, disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}, weight=100
        )
        pool["metadata"]["annotations"] = {DRIFT_WAVES: "none", "tenon.sh/paused": "true"}
        world.apply([sample_objects.node_class(world), *legacy_objects(), sample_objects.node_pool(TYPES, weight=100)])
        world.apply(sample_objects.deployment("web", 1, {"cpu": "900m"}))
        world.run_until(lambda: bool(world.pods(phase="Running")), limit=10 * MINUTE)
        world.apply([pool, manifest("discount", (INSTANCE_TYPE, "In", ["m5.large"]), priceAdjustment="-5%")])
        world.apply(buffer_objects())
        world.run_for(3 * MINUTE)
        yield world


def stored(world: World, id_: tuple[str, str, str]) -> Json:
    api_version, kind, name = id_
    namespace = "default" if id_ == BUFFER else ""
    obj: Json = world.store.get(world.store.kind(api_version, kind), name, namespace=namespace)
    return obj


def generations(obj: Json) -> dict[str, int]:
    """By condition: how many generations it is behind its object."""
    generation = obj["metadata"]["generation"]
    return {c["type"]: generation - c.get("observedGeneration", generation) for c in obj["status"]["conditions"]}


def kubectl_wait(world: World, folder: Path, *arguments: str) -> str:
    config = folder / "kubeconfig"
    config.write_text(world.kubectl_config())
    environ = {"KUBECONFIG": str(config), "HOME": str(folder), "PATH": os.environ["PATH"]}
    command = ["kubectl", "wait", "--timeout=0", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.flow
@NEEDS_KUBECTL
def test_kubectl_wait_sees_what_is_true_before_and_after_an_edit(world: World, tmp_path: Path) -> None:
    (claim,) = world.claims()
    name = claim["metadata"]["name"]
    assert set(generations(claim).values()) == {0}
    assert "condition met" in kubectl_wait(world, tmp_path, "--for=condition=Ready", "nodeclaim", name)
    for id_ in EDITS:
        assert set(generations(stored(world, id_)).values()) == {0}, id_

    for id_, edit in EDITS.items():
        obj = stored(world, id_)
        world.store.replace(world.store.kind(*id_[:2]), {**obj, "spec": {**obj["spec"], **edit}})
        assert stored(world, id_)["metadata"]["generation"] == obj["metadata"]["generation"] + 1, id_
    world.run_for(3 * MINUTE)

    for id_ in EDITS:
        obj = stored(world, id_)
        behind = generations(obj)
        expected = {"ValidationSucceeded", "Ready"} if id_ == INVALID else behind.keys()
        assert {type_ for type_, steps in behind.items() if not steps} >= expected, (id_, behind)
        resource = f"{id_[1].lower()}.{id_[0].split('/')[0]}"
        for condition in obj["status"]["conditions"]:
            if condition["type"] in expected:
                state = f"--for=condition={condition['type']}={condition['status']}"
                assert "condition met" in kubectl_wait(world, tmp_path, state, resource, id_[2]), (id_, condition)


def test_conditions_that_an_older_version_wrote_get_their_generation(world: World) -> None:
    kind = world.store.kind(GROUP, "NodeClaim")
    (claim,) = world.claims()
    conditions = [{**c, "observedGeneration": 0} for c in claim["status"]["conditions"]]
    world.store.replace(kind, {**claim, "status": {**claim["status"], "conditions": conditions}}, subresource="status")
    world.run_for(2 * MINUTE)
    (claim,) = world.claims()
    assert set(generations(claim).values()) == {0}


def test_conditions_of_a_nodeclaim_that_is_deleted_are_of_its_deletion(world: World) -> None:
    (claim,) = world.claims()
    kind, name = world.store.kind(GROUP, "NodeClaim"), claim["metadata"]["name"]
    world.store.delete(kind, name)
    seen: list[dict[str, int]] = []

    def drained() -> bool:
        left = [c for c in world.claims() if c["metadata"]["name"] == name]
        seen.extend(generations(c) for c in left)
        return not left or "Drained" in generations(left[0])

    world.run_until(drained, limit=5 * MINUTE)
    assert seen[-1]["Drained"] == 0

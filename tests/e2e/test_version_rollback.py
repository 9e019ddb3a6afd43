"""The control plane goes back to the minor version before: its nodes first, and none is ever newer than it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import amis
from local.kubernetes import kinds
from local.world import Options, World, sample_objects, version_changes
from local.world.version_changes import RollbackRefusedError
from tests.e2e.cli.conftest import Shell
from tests.e2e.interruptions.environment import HealthyPods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANNOTATION = "tenon.sh/kubernetes-version"
REPLICAS = 6
LIMIT = timedelta(hours=2)
APART = sample_objects.one_per_node("web")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Six nodes of Kubernetes 1.37 with one pod each, of which a PodDisruptionBudget lets one go at a time."""
    with World(cluster="demo", options=Options(version="1.37")) as world:
        amis.publish(world.region, "1.36")
        budgets = [{"nodes": "2"}]
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": budgets}
        world.apply([sample_objects.node_class(world), sample_objects.node_pool({}, disruption=disruption)])
        world.apply([sample_objects.deployment("web", REPLICAS, {"cpu": "700m", "memory": "256Mi"}, affinity=APART)])
        world.apply([sample_objects.budget("web", 1)])
        world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS, limit=LIMIT)
        world.run_for(timedelta(minutes=2))
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)


def node_versions(world: World) -> dict[str, str]:
    """By node, the minor version of its kubelet: 1.36."""
    versions = {n["metadata"]["name"]: n["status"]["nodeInfo"]["kubeletVersion"] for n in world.nodes()}
    return {name: ".".join(version.removeprefix("v").split(".")[:2]) for name, version in versions.items()}


def annotate(world: World, version: str | None) -> None:
    kind = world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass")
    world.store.patch(kind, "default", {"metadata": {"annotations": {ANNOTATION: version}}})


def held(world: World) -> dict[str, Any] | None:
    node_class = world.store.get(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"), "default")
    conditions = node_class["status"]["conditions"]
    return next((c for c in conditions if c["type"] == "KubernetesVersionHeld"), None)


@pytest.mark.flow
def test_nodes_go_back_within_budgets_then_the_control_plane_and_nothing_moves_when_the_annotation_goes(
    shell: Shell,
) -> None:
    world = shell.world
    upgraded = world.clock.now()
    assert set(node_versions(world).values()) == {"1.37"}
    with pytest.raises(RollbackRefusedError, match="nodes are newer"):
        version_changes.roll_back(world, "1.36", upgraded=upgraded)
    before = shell.tenon("rollback", "1.36")
    assert before.code == 1
    assert f"{REPLICAS} of {len(world.store.list(kinds.NODES))} nodes still newer than 1.36" in before.out
    assert f"next: kubectl annotate ec2nodeclass --all --overwrite {ANNOTATION}=1.36" in before.out

    annotate(world, "1.36")
    healthy, most_deleting = HealthyPods(world, {"web": REPLICAS - 1}), 0

    def rolled() -> bool:
        nonlocal most_deleting
        deleting = [c for c in world.claims() if c["metadata"].get("deletionTimestamp")]
        most_deleting = max(most_deleting, len(deleting))
        return set(node_versions(world).values()) == {"1.36"} and not deleting

    world.run_until(rolled, limit=LIMIT)
    world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS, limit=LIMIT)
    assert 1 <= most_deleting <= 2
    assert healthy.states
    assert healthy.violations == []
    ready = shell.tenon("rollback", "1.36")
    assert ready.code == 0, ready.out
    assert "next: aws eks update-cluster-version --name demo --kubernetes-version 1.36" in ready.out

    # the annotation goes in the moment of the rollback, while functions remember the control plane of before
    nodes = set(node_versions(world))
    version_changes.roll_back(world, "1.36", upgraded=upgraded)
    annotate(world, None)
    world.scale("default", "web", REPLICAS + 1)
    world.run_for(timedelta(minutes=40))
    after = node_versions(world)
    assert nodes < set(after)
    assert set(after.values()) == {"1.36"}
    assert len(after) == REPLICAS + 1
    assert held(world) is None
    done = shell.tenon("rollback", "1.36", "--json")
    assert (done.code, done.json["ready"], done.json["controlPlane"]) == (0, True, "1.36")
    assert done.json["next"] == "nothing: the control plane has this version"
    too_new = shell.tenon("rollback", "1.38")
    assert (too_new.code, '"1.38" must be a minor version from 1.33 to 1.36' in too_new.err) == (2, True)


@pytest.mark.long
def test_nodes_return_to_the_control_planes_version_if_the_rollback_is_given_up(shell: Shell) -> None:
    world = shell.world
    annotate(world, "1.36")
    world.run_until(lambda: "1.36" in node_versions(world).values(), limit=LIMIT)
    annotate(world, None)
    world.run_until(lambda: set(node_versions(world).values()) == {"1.37"}, limit=LIMIT)
    world.run_for(timedelta(minutes=30))
    assert set(node_versions(world).values()) == {"1.37"}
    assert held(world) is None


@pytest.mark.long
def test_the_annotation_may_stay_after_the_control_plane_is_back_and_says_so(shell: Shell) -> None:
    world = shell.world
    annotate(world, "1.36")
    world.run_until(lambda: set(node_versions(world).values()) == {"1.36"}, limit=LIMIT)
    nodes = node_versions(world)
    version_changes.roll_back(world, "1.36", upgraded=world.clock.now())
    world.run_for(timedelta(minutes=30))
    assert node_versions(world) == nodes
    condition = held(world)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("False", "ControlPlaneReached")
    assert "remove it" in condition["message"]

"""The cluster's own upgrade: nodes follow the control plane's version by drift, and are never ahead of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
import pytest

from local.aws import amis
from local.world import Options, World, sample_objects
from tests.e2e.interruptions.environment import HealthyPods

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

REPLICAS = 8
LIMIT = timedelta(hours=2)
WITHIN = timedelta(minutes=18)
"""When the node classes select the images of the new version, as docs/upgrades.md says."""
APART = sample_objects.one_per_node("web")


def node_versions(world: World) -> dict[str, str]:
    """By node, the minor version of its kubelet: 1.34."""
    versions = {n["metadata"]["name"]: n["status"]["nodeInfo"]["kubeletVersion"] for n in world.nodes()}
    return {name: ".".join(version.removeprefix("v").split(".")[:2]) for name, version in versions.items()}


def node_class(world: World) -> dict[str, Any]:
    return world.store.get(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"), "default")


def selected_images(world: World) -> list[dict[str, Any]]:
    """The images in the status of the node class."""
    images: list[dict[str, Any]] = node_class(world)["status"]["amis"]
    return images


def selected_versions(world: World) -> set[str]:
    """The Kubernetes versions of the selected images."""
    return {amis.kubernetes_version(image["name"]) for image in selected_images(world)}


def fill(world: World, budgets: Sequence[dict[str, Any]], **node_class: object) -> None:
    """Eight nodes with one pod each, of which a PodDisruptionBudget lets one go at a time."""
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": list(budgets)}
    world.apply([sample_objects.node_class(world, **node_class), sample_objects.node_pool({}, disruption=disruption)])
    requests = {"cpu": "700m", "memory": "256Mi"}
    world.apply([sample_objects.deployment("web", REPLICAS, requests, affinity=APART)])
    world.apply([sample_objects.budget("web", 1)])
    world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS, limit=LIMIT)
    world.run_for(timedelta(minutes=2))


@pytest.mark.flow
def test_nodes_roll_to_the_new_version_within_budgets_and_none_is_ahead_of_the_control_plane(world: World) -> None:
    fill(world, [{"nodes": "2"}])
    assert set(node_versions(world).values()) == {"1.34"}
    assert len(node_versions(world)) == REPLICAS
    healthy = HealthyPods(world, {"web": REPLICAS - 1})
    most_deleting = 0

    def rolled() -> bool:
        nonlocal most_deleting
        deleting = [c for c in world.claims() if c["metadata"].get("deletionTimestamp")]
        most_deleting = max(most_deleting, len(deleting))
        return set(node_versions(world).values()) == {"1.35"} and not deleting

    world.aws.upgrade(world.cluster, "1.35")
    world.run_until(rolled, limit=LIMIT)
    world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS, limit=LIMIT)
    assert 1 <= most_deleting <= 2
    assert healthy.states
    assert healthy.violations == []


@pytest.mark.long
def test_images_of_a_newer_version_change_nothing_before_the_control_plane_has_it(world: World) -> None:
    fill(world, [{"nodes": "100%"}])
    before = node_versions(world)
    amis.publish(world.region, "1.35")
    world.run_for(timedelta(minutes=40))
    assert node_versions(world) == before
    world.scale("default", "web", REPLICAS + 2)
    world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS + 2, limit=LIMIT)
    assert set(node_versions(world).values()) == {"1.34"}


@pytest.mark.long
def test_nodes_stay_while_a_budget_of_the_pool_allows_none_and_new_nodes_have_the_new_version(world: World) -> None:
    fill(world, [{"nodes": "0"}])
    before = set(node_versions(world))
    world.aws.upgrade(world.cluster, "1.35")
    world.run_for(WITHIN)
    assert selected_versions(world) == {"1.35"}
    world.run_for(timedelta(hours=1) - WITHIN)
    assert set(node_versions(world)) == before
    drifted = {
        c["metadata"]["name"]: x for c in world.claims() for x in c["status"]["conditions"] if x["type"] == "Drifted"
    }
    assert len(drifted) == REPLICAS
    for claim in world.claims():
        assert claim["status"]["imageID"] in drifted[claim["metadata"]["name"]]["message"]
    world.scale("default", "web", REPLICAS + 1)
    world.run_until(lambda: len(world.pods(phase="Running")) == REPLICAS + 1, limit=LIMIT)
    versions = node_versions(world)
    assert {versions[name] for name in versions if name not in before} == {"1.35"}


@pytest.mark.long
def test_a_pinned_release_follows_to_its_images_of_the_new_version(world: World) -> None:
    fill(world, [{"nodes": "100%"}], amiSelectorTerms=[{"alias": "al2023@v20251016"}])
    world.aws.upgrade(world.cluster, "1.35")
    world.run_until(lambda: set(node_versions(world).values()) == {"1.35"}, limit=LIMIT)
    names = {image["name"] for image in selected_images(world)}
    assert all(name.endswith("-1.35-v20251016") for name in names)


@pytest.mark.long
def test_amazon_linux_2_has_no_images_after_1_32_and_its_nodes_stay() -> None:
    with World(cluster="demo", options=Options(version="1.32")) as world:
        fill(world, [{"nodes": "100%"}], amiSelectorTerms=[{"alias": "al2@latest"}])
        before = node_versions(world)
        assert set(before.values()) == {"1.32"}
        world.aws.upgrade(world.cluster, "1.33")
        world.run_for(timedelta(hours=1))
        assert node_versions(world) == before
        conditions = {c["type"]: c for c in node_class(world)["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "False"
        assert "AWS publishes no AL2 latest for Kubernetes 1.33" in conditions["AMIsReady"]["message"]
        world.scale("default", "web", REPLICAS + 1)
        world.run_for(timedelta(minutes=5))
        assert node_versions(world) == before


@pytest.mark.long
def test_nodes_of_a_class_that_names_its_image_by_id_stay_at_their_version(world: World) -> None:
    parameter = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id"
    image = boto3.client("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    fill(world, [{"nodes": "100%"}], amiFamily="AL2023", amiSelectorTerms=[{"id": image}])
    before = node_versions(world)
    world.aws.upgrade(world.cluster, "1.35")
    world.run_for(timedelta(hours=1))
    assert node_versions(world) == before

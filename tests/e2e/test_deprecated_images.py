"""Images that their owner has deprecated: EC2 hides them and launches them, and node classes still select them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import amis
from local.world import World, sample_objects
from shared.api import labels as names

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def images(world: World) -> list[amis.Image]:
    """The standard x86 images of Amazon Linux 2023 for the cluster's version, oldest first."""
    published = amis.published(world.options.version)
    return [image for image in published if image.name.startswith("amazon-eks-node-al2023-x86_64-standard")]


def start(world: World, term: dict[str, Any]) -> None:
    node_class = sample_objects.node_class(world, amiFamily="AL2023", amiSelectorTerms=[term])
    pool = sample_objects.node_pool({names.ARCH: ["amd64"], names.CAPACITY_TYPE: ["on-demand"]})
    world.apply([node_class, pool, sample_objects.deployment("web", 1, {"cpu": "1"})])


def test_the_only_image_of_a_term_is_launched_although_it_is_deprecated(world: World) -> None:
    image = images(world)[0]
    amis.deprecate(world.region, image.image_id, world.clock.now() - timedelta(days=1))
    start(world, {"name": image.name, "owner": image.owner})
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)
    assert [i.image_id for i in world.instances()] == [image.image_id]


def test_another_image_is_preferred_to_a_newer_one_that_is_deprecated(world: World) -> None:
    older, newest = images(world)[-2:]
    amis.deprecate(world.region, newest.image_id, world.clock.now() - timedelta(days=1))
    start(world, {"name": "amazon-eks-node-al2023-x86_64-standard*", "owner": older.owner})
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)
    assert [i.image_id for i in world.instances()] == [older.image_id]


def test_an_image_whose_deprecation_is_yet_to_come_is_the_newest(world: World) -> None:
    _, newest = images(world)[-2:]
    amis.deprecate(world.region, newest.image_id, world.clock.now() + timedelta(days=30))
    start(world, {"name": "amazon-eks-node-al2023-x86_64-standard*", "owner": newest.owner})
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=5 * MINUTE)
    assert [i.image_id for i in world.instances()] == [newest.image_id]

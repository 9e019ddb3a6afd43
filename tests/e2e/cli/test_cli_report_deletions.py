"""`tenon report` of a live cluster: which nodes somebody deleted by hand, and which ones Tenon or EC2 removed."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world.foreign_objects import is_foreign
from local.world.sample_objects import budget, deployment, one_per_node

if TYPE_CHECKING:
    from pathlib import Path

    from local.world import World
    from tests.e2e.cli.conftest import Shell

BY_HAND = "deleted by hand"


@pytest.fixture
def world(shell: Shell) -> World:
    """A cluster with four nodes of one pod each."""
    shell.world.apply("cli/demo/manifests/spot-default.yaml")
    shell.world.apply([deployment("web", 4, {"cpu": "1500m"}, affinity=one_per_node("web"))])
    shell.world.run_until_idle()
    return shell.world


def names(world: World) -> list[str]:
    return sorted(node["metadata"]["name"] for node in world.nodes())


def delete_claim(world: World, node: str) -> None:
    (claim,) = [c for c in world.claims() if c["status"]["nodeName"] == node]
    world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), claim["metadata"]["name"])


def instance(world: World, name: str) -> str:
    (node,) = [n for n in world.nodes() if n["metadata"]["name"] == name]
    return str(node["spec"]["providerID"]).rpartition("/")[2]


def recorded(shell: Shell, tmp_path: Path) -> dict[str, Any]:
    """The data of the report's page."""
    html = tmp_path / "cluster.html"
    done = shell.tenon("report", "-o", str(html), "--days", "0.5")
    assert done.code == 0, done.err
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html.read_text())
    return dict(json.loads(data))


@pytest.mark.flow
def test_nodes_that_somebody_deleted_have_that_reason_and_no_others(shell: Shell, world: World, tmp_path: Path) -> None:
    of_node, of_claim, interrupted, stays = names(world)
    world.store.delete(world.store.kind("v1", "Node"), of_node)
    delete_claim(world, of_claim)
    world.interrupt_spot([instance(world, interrupted)])
    world.run_until_idle()
    replacements = set(names(world)) - {stays}
    assert len(replacements) == 3
    world.scale("default", "web", 0)
    world.run_until(lambda: not world.claims(), limit=timedelta(minutes=15))
    foreign = {node["metadata"]["name"] for node in world.store.list(kinds.NODES) if is_foreign(node)}
    data = recorded(shell, tmp_path)
    own = [span for span in data["spans"] if span["name"] not in foreign]
    assert {span["name"]: span["why"].partition(":")[0] for span in own} == {
        of_node: BY_HAND,
        of_claim: BY_HAND,
        interrupted: "Interrupted",
        **dict.fromkeys({stays, *replacements}, "Empty"),
    }
    assert all(span["gone"] is not None for span in own)
    assert sorted(d["node"] for d in data["decisions"] if d["reason"] == BY_HAND) == sorted([of_node, of_claim])
    assert all("savings" not in d or d["savings"] is None for d in data["decisions"] if d["reason"] == BY_HAND)


def test_a_node_that_cannot_leave_yet_has_the_reason_too(shell: Shell, world: World, tmp_path: Path) -> None:
    world.apply([budget("web", 0)])
    node = names(world)[0]
    delete_claim(world, node)
    world.run_for(timedelta(minutes=2))
    spans = {span["name"]: span for span in recorded(shell, tmp_path)["spans"]}
    assert (spans[node]["why"], spans[node]["gone"]) == (BY_HAND, None)
    assert {span["why"] for name, span in spans.items() if name != node} == {""}


def test_a_node_leaves_although_its_deletion_cannot_be_recorded(world: World) -> None:
    node = names(world)[0]
    world.faults.fail_service("dynamodb")
    delete_claim(world, node)
    world.run_until(lambda: node not in names(world), limit=timedelta(minutes=10))

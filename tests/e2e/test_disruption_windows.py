"""Disruption windows: nodes are replaced in them, and at no other time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from shared.api.labels import DISRUPTION_WINDOWS, INSTANCE_TYPE
from tests.e2e.cli.conftest import Shell
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    with World(cluster="demo") as world:
        yield world


def node_pool(windows: str, **labels: str) -> dict[str, Any]:
    pool = sample_objects.node_pool({INSTANCE_TYPE: ["m5.large"]}, disruption={"consolidateAfter": "Never"})
    pool["metadata"]["annotations"] = {DISRUPTION_WINDOWS: windows}
    pool["spec"]["template"].setdefault("metadata", {})["labels"] = labels
    return pool


def teams(world: World) -> set[str]:
    return {n["metadata"]["labels"].get("team", "") for n in world.nodes()}


@pytest.mark.flow
def test_drifted_nodes_are_replaced_in_their_window_and_not_before(world: World, tmp_path: Path) -> None:
    opens = world.clock.now() + 40 * MINUTE
    windows = f"{opens.minute} {opens.hour} * * * for 20m reasons Drifted"
    world.apply([sample_objects.node_class(world), node_pool(windows, team="old")])
    world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}))
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    world.apply(node_pool(windows, team="new"))
    world.run_for(opens - world.clock.now() - MINUTE)
    assert teams(world) == {"old"}
    (message,) = {e["message"] for e in events(world, "DisruptionBlocked")}
    assert message.endswith(f"the next opens at {opens:%Y-%m-%d %H:%M} UTC")
    path = tmp_path / "kubeconfig"
    path.write_text(world.kubectl_config())
    (node,) = world.nodes()
    for obj in (("nodepool", "default"), ("node", node["metadata"]["name"])):
        assert f"the next opens at {opens:%Y-%m-%d %H:%M} UTC" in " ".join(
            Shell(world, path).tenon("explain", *obj).out.split()
        )
    world.run_until(lambda: teams(world) == {"new"} and len(running(world)) == 1, limit=10 * MINUTE)
    assert world.clock.now() - opens < 8 * MINUTE
    assert world.failures() == []


def test_a_value_that_cannot_be_read_is_a_condition_and_an_event_and_stops_disruption(world: World) -> None:
    world.apply([sample_objects.node_class(world), node_pool("on saturdays", team="old")])
    world.apply(sample_objects.deployment("web", 1, {"cpu": "1"}))
    world.run_until(lambda: len(running(world)) == 1, limit=5 * MINUTE)
    world.apply(node_pool("on saturdays", team="new"))
    world.run_for(10 * MINUTE)
    assert teams(world) == {"old"}
    pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    conditions = {c["type"]: c for c in pool["status"]["conditions"]}
    problem = f'metadata.annotations[{DISRUPTION_WINDOWS}]: "on saturdays" is no window'
    assert problem in conditions["DisruptionBudgetsValid"]["message"]
    assert problem in events(world, "InvalidDisruptionBudget")[0]["message"]
    world.apply(node_pool("* * * * * for 1h", team="new"))
    world.run_until(lambda: teams(world) == {"new"}, limit=10 * MINUTE)

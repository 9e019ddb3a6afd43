"""``tenon demo --fault`` in another process."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_demo_command import demo


@pytest.mark.long
def test_the_demo_succeeds_with_throttling_and_without_capacity_in_two_zones() -> None:
    done = demo(
        "--json", "--fault", "spot-capacity=us-east-1a:0", "--fault", "spot-capacity=us-east-1b:0",
        "--fault", "throttle=CreateFleet:2", "--fault", "boot=all:1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 5
    assert {n["zone"] for n in figures["nodes_launched"]} == {"us-east-1c"}
    assert figures["create_fleet_calls"] > 2
    assert figures["instances_left"] == figures["dead_letters"] == 0


def test_a_hostile_demo_runs_every_pod_and_leaves_nothing_behind() -> None:
    done = demo("--json", "--hostile")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 5
    assert figures["instances_left"] == figures["dead_letters"] == figures["recursive_invocations_dropped"] == 0

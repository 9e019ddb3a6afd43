"""``tenon demo --fault`` in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent.parent


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from cli.main import run; run()", "demo", "--json", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
def test_the_demo_succeeds_with_throttling_and_without_capacity_in_two_zones() -> None:
    done = demo(
        "--fault", "spot-capacity=us-east-1a:0", "--fault", "spot-capacity=us-east-1b:0",
        "--fault", "throttle=CreateFleet:2", "--fault", "boot=all:1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 5
    assert {n["zone"] for n in figures["nodes_launched"]} == {"us-east-1c"}
    assert figures["create_fleet_calls"] > 2
    assert figures["instances_left"] == figures["dead_letters"] == 0


def test_a_hostile_demo_runs_every_pod_and_leaves_nothing_behind() -> None:
    done = demo("--hostile")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 5
    assert figures["instances_left"] == figures["dead_letters"] == figures["recursive_invocations_dropped"] == 0


@pytest.mark.parametrize(
    ("fault", "allowed"),
    [
        ("lightning=us-east-1a:1", "spot-capacity=PLACE:N"),
        ("spot-capacity=us-east-1a", "spot-capacity=PLACE:N"),
        ("boot=somewhere:1", "a zone, an instance type or all"),
        ("throttle=Everything:1", "CreateFleet"),
    ],
)
def test_an_unknown_fault_is_rejected_with_the_allowed_ones(fault: str, allowed: str) -> None:
    done = demo("--fault", fault)
    assert done.returncode == 2
    assert allowed in " ".join(done.stderr.replace("│", "").split())

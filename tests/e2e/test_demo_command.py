"""``tenon demo`` in another process: its output and its exit code."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.world import sample_objects
from tests.e2e.hostile_bounds import shutdown_delay
from tests.integration.cli.command import CHECKOUT, TENON
from tests.integration.cli.output_schema import assert_follows_schema

if TYPE_CHECKING:
    from pathlib import Path


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*TENON, "demo", *arguments], cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False
    )
    assert_follows_schema(["demo", *arguments], done.stdout)
    return done


@pytest.mark.flow
def test_json_prints_only_the_result() -> None:
    done = demo("--json")
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["pods_scheduled"] == 5
    assert {n["capacity_type"] for n in figures["nodes_launched"]} == {"spot"}
    assert set(figures["nodes_launched"][0]) == {"instance_type", "zone", "capacity_type", "price"}
    assert figures["create_fleet_calls"] in {1, 2}
    # The default budget lets one node go at a time, and the next may wait for a sweep.
    longest = len(figures["nodes_launched"]) * (60 + shutdown_delay().total_seconds())
    assert 30 <= figures["seconds_empty_to_terminated"] <= longest
    assert 0 < figures["seconds_pending_to_claim"] < figures["seconds_pending_to_running"]
    assert figures["peak_cost_per_hour"] == pytest.approx(sum(n["price"] for n in figures["nodes_launched"]))
    assert figures["instances_left"] == figures["dead_letters"] == figures["duplicate_launches"] == 0


def test_the_text_shows_events_and_has_no_json() -> None:
    done = demo("--scale", "inflate=2")
    assert done.returncode == 0, done.stderr
    for words in ("applied NodePool default", "inflate 0 → 2", "ec2 CreateFleet", "running", "Results"):
        assert words in done.stdout
    assert "{" not in done.stdout
    assert "Not as requested" not in done.stdout
    assert "\x1b[" not in done.stdout


def test_settings_of_a_deployment_and_kinds_that_the_cluster_lacks(tmp_path: Path) -> None:
    scaled = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "over"}}
    manifest = tmp_path / "keda.yaml"
    manifest.write_text(yaml.safe_dump(scaled))
    done = demo("-c", "standby=on", "--manifest", "v1.yaml", "--manifest", "standby.yaml", "--manifest", str(manifest))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`cdk deploy -c standby=on`, whose relay is a function" in done.stdout
    assert "left out ScaledObject over: the cluster has no such kind" in done.stdout
    assert len(re.findall(r"^ip-\S+ +bursts +m5.large .* standby$", done.stdout, re.MULTILINE)) == 2


def mix(path: Path, count: int) -> str:
    """A manifest of that many Deployments mix-0, mix-1, … with other requests each; returns its path."""
    requests = ({"cpu": f"{200 + 150 * i}m", "memory": "256Mi"} for i in range(count))
    deployments = [sample_objects.deployment(f"mix-{i}", 2, r) for i, r in enumerate(requests)]
    path.write_text(yaml.safe_dump_all(deployments))
    return str(path)


def test_a_pattern_scales_all_deployments_that_match_at_once(tmp_path: Path) -> None:
    manifests = ["--manifest", "spot-default.yaml", "--manifest", mix(tmp_path / "mix.yaml", 3)]
    done = demo(*manifests, "--scale", "mix-*=4,0", "--rest", "10", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    first, second = figures["steps"]
    assert [first["step"], second["step"]] == ["mix-* (3 Deployments) 2 → 4", "mix-* (3 Deployments) 4 → 0"]
    assert figures["rounds"] >= 1
    assert figures["instances_left"] == 0
    planned, bought = figures["planned_price_per_hour"], figures["bought_price_per_hour"]
    assert 0 < planned <= bought <= 1.02 * planned
    assert figures["realised_price_per_hour"] == first["price_per_hour_at_end"] >= bought
    assert second["price_per_hour_at_end"] == 0
    median, late = figures["seconds_pending_to_running_p50"], figures["seconds_pending_to_running_p99"]
    assert 0 < median <= late <= figures["seconds_pending_to_running"]
    assert 0 < late <= first["seconds_to_rest"] + 1


def test_a_step_that_is_not_at_rest_in_time_says_so() -> None:
    done = demo("--scale", "inflate=2,0", "--rest", "0.2", "--allow-pending", "--json")
    assert done.returncode == 0, done.stderr
    assert [step["seconds_to_rest"] for step in json.loads(done.stdout)["steps"]] == [None, None]

"""`tenon explain buffer`, and chunks of CapacityBuffers in `explain node`, `plan` and `simulate`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from local.world import sample_objects

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell

MANIFEST = "cli/demo/manifests/capacity-buffer.yaml"
POOL = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["4"]}


def add_buffer(shell: Shell) -> Shell:
    """Add a buffer of five pods, whose room is there."""
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    pool = sample_objects.node_pool(POOL, disruption=disruption, limits={"cpu": "12"})
    shell.world.apply([sample_objects.node_class(shell.world), pool])
    shell.world.apply(MANIFEST)
    shell.world.run_for(timedelta(minutes=5))
    return shell


@pytest.fixture
def buffered(shell: Shell) -> Shell:
    """A buffer of five pods whose room is there."""
    return add_buffer(shell)


def test_a_whole_buffer_names_its_nodes(buffered: Shell) -> None:
    result = buffered.tenon("explain", "buffer", "web")
    assert result.code == 0, result.err
    assert result.lines[0] == "CapacityBuffer default/web has room for 5 of 5 chunks"
    assert "Deployment web, 1 replica" in result.out
    for node in buffered.world.nodes():
        assert node["metadata"]["name"] in result.out
    assert len(result.lines) < 24


def test_a_buffer_says_what_is_missing_and_why(buffered: Shell) -> None:
    buffered.world.scale("default", "web", 9)
    buffered.world.run_for(timedelta(minutes=3))
    result = buffered.tenon("explain", "cb/default/web")
    assert result.lines[0].startswith("CapacityBuffer default/web has room for ")
    assert "can't be scheduled" in result.lines[1]
    assert "limit" in result.out


def test_a_buffer_that_follows_something_says_what_was_seen(buffered: Shell) -> None:
    world = buffered.world
    kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    until = f"{world.clock.now() + timedelta(minutes=10):%Y-%m-%dT%H:%M:00Z}"
    annotations = {
        "tenon.sh/sqs-queue": "orders",
        "tenon.sh/queue-chunks": "3",
        "tenon.sh/queue-until": until,
        "tenon.sh/cloudwatch-alarm": "latency",
    }
    world.store.patch(kind, "web", {"metadata": {"annotations": annotations}}, namespace="default")
    result = buffered.tenon("explain", "buffer", "web")
    assert "Wanted now: 3 of 5 chunks" in result.out, result.out
    assert "3: messages in queue orders, until " in result.out
    assert "none: no alarm latency" in result.out


def test_a_node_with_room_of_a_buffer_only_says_so(buffered: Shell) -> None:
    buffered.world.scale("default", "web", 0)
    buffered.world.run_for(timedelta(minutes=5))
    (name, *_) = (n["metadata"]["name"] for n in buffered.world.nodes())
    result = buffered.tenon("explain", "node", name)
    assert "of default/web" in result.out
    assert "is kept" in result.lines[0], result.out


def test_nodes_and_the_report_show_the_room(buffered: Shell, tmp_path: Path) -> None:
    rows = json.loads(buffered.tenon("nodes", "--once", "--json").out)["nodes"]
    assert sum(row["chunks"] for row in rows) == 5
    table = buffered.tenon("nodes", "--once")
    (head,) = (line for line in table.lines if line.split()[:1] == ["node"])
    assert "chunks" in head
    page = tmp_path / "report.html"
    written = buffered.tenon("report", "--output", str(page))
    assert written.code == 0, written.err
    with_room = sum(row["chunks"] > 0 for row in rows)
    assert f"CapacityBuffers have room for 5 pods on {with_room} node" in page.read_text(encoding="utf-8")


def test_without_buffers_the_table_has_no_column_for_them(shell: Shell) -> None:
    shell.world.apply([sample_objects.node_class(shell.world), sample_objects.node_pool(POOL)])
    shell.world.apply(sample_objects.deployment("web", 1, {"cpu": "1", "memory": "1Gi"}))
    shell.world.run_for(timedelta(minutes=2))
    assert "chunks" not in shell.tenon("nodes", "--once").out


def test_a_buffer_with_annotations_says_what_each_of_them_wants(buffered: Shell) -> None:
    (manifest,) = (o for o in yaml.safe_load_all(Path(MANIFEST).read_text("utf-8")) if o["kind"] == "CapacityBuffer")
    schedule = "0 9 1 1 * for 1h in Asia/Seoul"
    annotations = {"tenon.sh/schedule": schedule, "tenon.sh/per-nodes": "1:2", "tenon.sh/min-chunks": "1"}
    manifest["metadata"]["annotations"] = annotations
    buffered.world.apply([manifest])
    buffered.world.run_for(timedelta(minutes=2))
    result = buffered.tenon("explain", "buffer", "web")
    assert "Wanted now: 2 of 5 chunks" in result.out
    assert "tenon.sh/per-nodes" in result.out
    assert "2: nodes with pods: 1" in result.out
    assert f"none: {schedule}: opens Fri 01 Jan 09:00" in result.out
    assert len(result.lines) < 24


def test_a_buffer_that_is_not_there_is_an_error(buffered: Shell) -> None:
    missing = buffered.tenon("explain", "buffer", "nope")
    assert missing.code == 2
    assert "there is no CapacityBuffer default/nope with active capacity (there: default/web)" in missing.err

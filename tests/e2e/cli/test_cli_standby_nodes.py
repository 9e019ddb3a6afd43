"""`tenon` on a cluster with standby nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.world import World, sample_objects
from local.world.options import Options
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.test_standby_nodes import STOPPED, pool, states

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster with two stopped instances, and a kubeconfig for it."""
    with World(cluster=CLUSTER, options=Options(context={"standby": "on"})) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        world.apply(sample_objects.node_class(world))
        world.apply(pool("2"))
        world.run_until(lambda: states(world) == {STOPPED: 2}, limit=timedelta(minutes=10))
        yield Shell(world, path)


def test_they_are_shown_at_no_price_and_no_decision_counts_on_them(shell: Shell, tmp_path: Path) -> None:
    shown = shell.tenon("nodes", "--json", "-l", "karpenter.sh/nodepool=default").json
    assert [(n["state"], n["price"]) for n in shown["nodes"]] == [("standby", 0.0)] * 2
    name = shown["nodes"][0]["name"]
    explained = shell.tenon("explain", "node", name).out
    assert "its instance is stopped, and is started when pods need a node" in explained
    (claim,) = (c for c in shell.world.claims() if c["status"]["nodeName"].startswith(name.partition(".")[0]))
    assert "is kept on standby" in shell.tenon("explain", "nodeclaim", claim["metadata"]["name"]).out
    foreign = len(shell.world.store.list(kinds.NODES)) - 2  # a hostile world has some
    assert f" {foreign} nodes" in shell.tenon("plan").out
    html = tmp_path / "report.html"
    assert f": {foreign} nodes" in shell.tenon("report", "-o", str(html), "--days", "0.1").out
    assert name not in html.read_text()

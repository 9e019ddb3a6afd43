"""`tenon nodes`: once, in a pipe, and live while the cluster changes."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from shared.base import runtime
from tests.e2e.cli.conftest import CLUSTER, Shell, shell_in
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.world import World


def run_five_replicas(shell: Shell) -> Shell:
    """Have five replicas run on machines of their own."""
    shell.world.apply("cli/demo/manifests/spot-default.yaml")
    shell.world.scale("default", "inflate", 5)
    shell.world.run_until_idle()
    return shell


@pytest.fixture
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Five running replicas, for all tests that only read."""
    with shell_in(tmp_path_factory.mktemp("busy")) as opened:
        yield run_five_replicas(opened)


def test_once_it_shows_every_node_with_price_and_requested_share(busy: Shell) -> None:
    shown = busy.tenon("nodes", "--once", "-l", "karpenter.sh/nodepool=default")
    assert shown.code == 0, shown.err
    names = [n["metadata"]["name"].partition(".")[0] for n in busy.world.nodes()]
    assert all(name in shown.out for name in names)
    # The first line is on the whole cluster: in a hostile world it has nodes of other provisioners, too.
    total = len(busy.world.store.list(kinds.NODES))
    unmanaged = total - len(names)
    assert f"{CLUSTER} in us-east-1 · {total} node" in shown.lines[0]
    assert (f"/h plus {unmanaged} of unknown price · $" if unmanaged else "/h · $") in shown.lines[0]
    assert (f"{len(names)} of {total} nodes shown" in shown.out) == bool(unmanaged)
    assert "5 pods running" in shown.lines[1] or "pods running" in shown.lines[1]
    assert "\x1b[" not in shown.out
    plain = busy.tenon("nodes", "--json", "-l", "karpenter.sh/nodepool=default").json
    assert plain["costPerHour"] == pytest.approx(sum(n["price"] for n in plain["nodes"]))
    assert sum(n["pods"] for n in plain["nodes"]) == 5
    assert {n["state"] for n in plain["nodes"]} == {"ready"}


def test_nodes_are_filtered_and_sorted(busy: Shell) -> None:
    world = busy.world
    every = busy.tenon("nodes", "--json", "--sort", "-cpu").json["nodes"]
    assert [n["cpu"] for n in every] == sorted((n["cpu"] for n in every), reverse=True)
    assert busy.tenon("nodes", "--json", "-l", "karpenter.sh/nodepool=other").json["nodes"] == []
    kept = busy.tenon("nodes", "--json", "-l", "karpenter.sh/nodepool in (default),!nope").json["nodes"]
    assert len(kept) == len(world.nodes())


@pytest.mark.flow
def test_the_live_view_follows_the_cluster_until_ctrl_c(shell: Shell) -> None:
    world = run_five_replicas(shell).world
    world.scale("default", "inflate", 0)
    frames = 0

    def sleep(seconds: float) -> None:
        nonlocal frames
        frames += 1
        if frames > 30 + world.aws.instances.stop_duration.total_seconds() / 4:
            raise KeyboardInterrupt
        with runtime.using(runtime.Runtime(environ={}, now=world.clock.now, sleep=world.clock.sleep)):
            world.run_for(timedelta(seconds=seconds))

    terminal = {"FORCE_COLOR": "1", "COLUMNS": "120", "LINES": "40", "KUBECONFIG": str(shell.kubeconfig)}
    with runtime.using(runtime.Runtime(environ=os.environ, now=world.clock.now, sleep=sleep)):
        selected = ("-l", "karpenter.sh/nodepool=default")
        shown = call("nodes", "--cluster", CLUSTER, "--interval", "4", *selected, env=terminal)
    assert shown.code == 0, shown.err
    assert "\x1b[" in shown.out
    assert [word for word in ("ready", "empty", "deleting", "no nodes") if word not in shown.out] == []
    assert _gone(world)


def _gone(world: World) -> bool:
    return not world.nodes() and not world.instances()

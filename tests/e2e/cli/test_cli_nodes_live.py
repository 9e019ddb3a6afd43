"""`tenon nodes` on a terminal: 1,000 nodes at 80×24, scrolled and filtered by keys that are typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from cli.cluster import local_world
from local.aws.backends import ACCOUNT
from local.kubernetes import kinds
from local.world import World
from tests.e2e.cli.pseudo_terminal import (
    DOWN,
    END,
    ESCAPE,
    HOME,
    LEAVE_ALTERNATE_SCREEN,
    PAGE_DOWN,
    PAGE_UP,
    SHOW_CURSOR,
    UP,
    PseudoTerminal,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 1000
SOON = 20.0
"""Seconds in which a key's effect must be on screen; machines that run tests are slow."""


def node(number: int) -> dict[str, object]:
    """A Ready node of a NodePool."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"node-{number:04}",
            "labels": {
                "karpenter.sh/nodepool": "default" if number % 2 else "batch",
                "karpenter.sh/capacity-type": "spot",
                "node.kubernetes.io/instance-type": "c7i.2xlarge",
                "topology.kubernetes.io/zone": "us-east-1a",
                "team": f"team-{number % 7}",
            },
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}"},
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "14162Mi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of another process that reads a cluster of 1,000 nodes, and its AWS, over HTTP."""
    folder = tmp_path_factory.mktemp("nodes")
    with World(cluster="shop") as world, world.aws.endpoint() as endpoint:
        for number in range(COUNT):
            world.store.create(kinds.NODES, node(number))
        yield {"KUBECONFIG": str(_kubeconfig(folder, world, endpoint.url)), "HOME": str(folder)}


def _kubeconfig(folder: Path, world: World, endpoint: str) -> Path:
    config = yaml.safe_load(world.kubectl_config())
    name = f"arn:aws:eks:{world.region}:{ACCOUNT}:cluster/{world.cluster}"
    context = {**config["contexts"][0]["context"], "extensions": [local_world.extension(endpoint)]}
    context["cluster"] = config["clusters"][0]["name"] = config["current-context"] = name
    config["contexts"] = [{"name": name, "context": context}]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def names(screen: list[str]) -> list[str]:
    """The nodes on a screen, from the top."""
    return [line.split()[0] for line in screen if line.startswith("node-")]


def test_keys_scroll_and_filter_a_thousand_nodes(environ: dict[str, str]) -> None:
    with PseudoTerminal("nodes", "-l", "team", "-L", "team", environ=environ) as shown:

        def first_is(number: int) -> list[str]:
            return shown.until(lambda s: names(s)[:1] == [f"node-{number:04}"], seconds=SOON)

        screen = shown.until(names)
        assert len(screen) == 24
        assert max(len(line) for line in screen) <= 80
        # in a hostile world the cluster has nodes of other provisioners, too
        (total,) = re.findall(r"· (1,00\d nodes) ·", screen[0])
        page = len(names(screen))
        assert page >= 15
        assert names(screen) == [f"node-{n:04}" for n in range(page)]
        assert screen[-1].startswith(f"  1–{page} of 1,000 · ↑ ↓ PgUp PgDn")
        assert next(line for line in screen if line.startswith("node ")).endswith("TEAM")
        assert not shown.echoes()

        shown.type(DOWN + "j")
        assert f"  3–{page + 2} of 1,000" in first_is(2)[-1]
        shown.type(UP + "k" + PAGE_DOWN)
        screen = first_is(page)
        assert total in screen[0]
        assert any(line.startswith("cpu") for line in screen)
        shown.type(END)
        screen = first_is(COUNT - page)
        assert names(screen)[-1] == "node-0999"
        shown.type(PAGE_DOWN + DOWN + PAGE_UP)
        first_is(COUNT - 2 * page)
        shown.type(HOME)
        first_is(0)

        shown.type("/99")
        screen = shown.until(lambda s: s[-1].startswith("  /99"), seconds=SOON)
        assert names(screen)[0] == "node-0099"
        assert all("99" in name for name in names(screen))
        shown.type("8\x7f\r")
        screen = shown.until(lambda s: "· /99, Esc clears ·" in s[-1], seconds=SOON)
        assert f"of {total} shown" in "\n".join(screen)
        shown.type(ESCAPE)
        first_is(0)

        shown.resize(120, 40)
        # the first frame of the new size may still have the rows of the old
        shown.until(lambda s: len(s) == 40 and len(names(s)) >= page + 16, seconds=SOON)

        shown.type("q")
        assert shown.ended() == 0
        assert LEAVE_ALTERNATE_SCREEN in shown.output
        assert SHOW_CURSOR in shown.output
        assert shown.echoes()


def test_ctrl_c_leaves_the_terminal_as_it_was(environ: dict[str, str]) -> None:
    with PseudoTerminal("nodes", "-p", "batch", "--sort-by", "-name", environ=environ) as shown:
        screen = shown.until(names)
        assert names(screen)[:2] == ["node-0998", "node-0996"]
        shown.interrupt()
        assert shown.ended() == 0
        assert shown.echoes()

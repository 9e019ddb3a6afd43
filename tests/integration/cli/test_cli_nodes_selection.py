"""`tenon nodes`: filters, NodePools, labels as columns, and the cost of a frame, on a cluster in a file."""

from __future__ import annotations

import io
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console

from cli.nodes import command, rows
from cli.nodes.keyboard import BACKSPACE, CLEAR, DOWN, END, ENTER, ESCAPE, HOME, PAGE_DOWN, UP, keys
from cli.nodes.selection import PREDICATES, parse
from cli.nodes.view import View, frame
from shared.api.kubernetes import Node
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def node(name: str, *, pool: str = "default", capacity_type: str = "spot", ready: bool = True, **more: Any) -> Any:
    """A node as kubectl prints it."""
    labels = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": capacity_type,
        "node.kubernetes.io/instance-type": "c7i.2xlarge",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | more.get("labels", {})},
        "spec": {"providerID": f"aws:///us-east-1a/{name}", **more.get("spec", {})},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def pod(name: str, node_name: str) -> Any:
    """A running pod."""
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node_name, "containers": [container]},
        "status": {"phase": "Running"},
    }


def claim(name: str, *, conditions: list[dict[str, Any]], **metadata: Any) -> Any:
    """The NodeClaim of the node of that name."""
    spec = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}, "requirements": []}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}, **metadata},
        "spec": spec,
        "status": {
            "providerID": f"aws:///us-east-1a/{name}",
            "conditions": [
                {"type": c["type"], "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for c in conditions
            ],
        },
    }


INITIALIZED, DRIFTED = {"type": "Initialized"}, {"type": "Drifted"}
OBJECTS = [
    node("busy", labels={"team": "shop", "example.com/tier": "web"}),
    pod("web", "busy"),
    node("idle", capacity_type="on-demand"),
    node("broken", pool="batch", ready=False),
    node("cordoned", pool="batch", spec={"unschedulable": True}),
    pod("job", "cordoned"),
    node("old"),
    claim("old", conditions=[INITIALIZED, DRIFTED]),
    pod("api", "old"),
    node("leaving"),
    claim("leaving", conditions=[INITIALIZED], deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["x/y"]),
    pod("last", "leaving"),
    claim("coming", conditions=[]),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cluster in a file."""
    path: Path = tmp_path_factory.mktemp("cluster") / "cluster.json"
    path.write_text(json.dumps({"objects": OBJECTS, "instanceTypes": []}))
    return str(path)


def names(done: CommandResult) -> list[str]:
    assert done.code == 0, done.err
    return [n["name"] for n in done.json["nodes"]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--filter", "not-ready"], ["broken", "coming"]),
        (["--filter", "disrupting"], ["leaving"]),
        (["--filter", "empty"], ["broken", "idle"]),
        (["--filter", "drifted"], ["old"]),
        (["--filter", "cordoned"], ["cordoned"]),
        (["--filter", "on-demand"], ["idle"]),
        (["--filter", "empty", "--filter", "spot"], ["broken"]),
        (["--filter", "empty,spot"], ["broken"]),
        (["-p", "batch"], ["broken", "cordoned"]),
        (["--nodepool", "batch", "--nodepool", "default", "--sort-by", "-name"], sorted(
            ["busy", "idle", "broken", "cordoned", "old", "leaving", "coming"], reverse=True
        )),
        (["-l", "team=shop"], ["busy"]),
        (["-p", "default", "-l", "!team", "--filter", "spot", "--sort-by", "cpu"], ["leaving", "old"]),
    ],
)  # fmt: skip
def test_nodes_are_filtered(arguments: list[str], expected: list[str], file: str) -> None:
    assert names(call("nodes", "-f", file, "--json", *arguments)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "notready"], '--filter "notready" is none of not-ready, disrupting,'),
        (["--filter", "sport"], 'the nearest is "spot"'),
        (["--sort-by", "cpus"], 'the nearest is "cpu"'),
        (["-p", "defualt"], 'there is no NodePool "defualt"; the nearest is "default"'),
    ],
)
def test_a_wrong_value_gets_one_line_with_the_nearest(arguments: list[str], message: str, file: str) -> None:
    done = call("nodes", "-f", file, *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1


def test_the_shell_completes_every_filter_and_sort_order() -> None:
    assert list(command.FILTERS) == list(PREDICATES)
    assert list(command.SORTS) == list(rows.SORT_KEYS)


def test_labels_are_columns(file: str) -> None:
    done = call("nodes", "-f", file, "-L", "team,example.com/tier", "-L", "topology.kubernetes.io/zone")
    heading = next(line for line in done.lines if line.startswith("node "))
    assert heading.split()[-3:] == ["TEAM", "TIER", "ZONE"]
    assert next(line for line in done.lines if line.startswith("busy ")).split()[-3:] == ["shop", "web", "us-east-1a"]
    entries = {n["name"]: n for n in call("nodes", "-f", file, "-L", "team", "--json").json["nodes"]}
    assert entries["busy"]["labels"] == {"team": "shop"}
    assert entries["idle"]["labels"] == {}


def test_what_terminals_send_are_keys() -> None:
    assert list(keys("j\x1b[A\x1bOB\x1b[6~\x1b[1~\x1b[4~/ä\r\x7f\x15")) == [
        "j", UP, DOWN, PAGE_DOWN, HOME, END, "/", "ä", ENTER, BACKSPACE, CLEAR,
    ]  # fmt: skip
    assert list(keys("\x1b")) == [ESCAPE]
    assert list(keys("\x1b[1;5C\x1b[200~q")) == ["q"]


def test_keys_beyond_the_ends_stay_there() -> None:
    def top(typed: str, *, count: int) -> int:
        view = View()
        for key in keys(typed):
            view = view.after(key, page=10, count=count)
        return view.top

    assert top("\x1b[5~k", count=25) == 0
    assert top("\x1b[6~\x1b[6~\x1b[6~j", count=25) == 15
    assert top("\x1b[6~j\x1b[F", count=4) == 0
    # a letter that is typed into the filter doesn't scroll or quit
    assert View(typing=True).after("q", page=10, count=25) == View(typing=True, text="q")


def _rows(count: int) -> rows.NodeRows:
    nodes = [msgspec.convert(node(f"node-{number:05}"), Node) for number in range(count)]
    return rows.build(nodes, [], [], price=lambda *_: 0.1, now=NOW)


def test_a_frame_of_a_thousand_nodes_has_the_totals_and_costs_little_more_than_of_fifty() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    everything = parse(selector="", pools=(), filters=(), sort="name", label_columns=())

    def seconds(shown: rows.NodeRows) -> float:
        start = time.perf_counter()
        for top in range(3):
            drawn = frame(console, shown, everything, View(top=top), name="shop")
            assert len(drawn.lines) == 24
        return time.perf_counter() - start

    few, many = _rows(50), _rows(1000)
    seconds(few)
    assert min(seconds(many) for _ in range(5)) < 3 * min(seconds(few) for _ in range(5))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (20, 5), (200, 60)])
def test_a_frame_fills_the_terminal_exactly(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    selection = parse(selector="", pools=(), filters=(), sort="name", label_columns=("team",))
    for shown, text in ((_rows(100), ""), (_rows(100), "nothing"), (_rows(2), "")):
        drawn = frame(
            console, shown, selection, View(top=90, text=text), name="shop", pauses=("it is paused",), error="no answer"
        )
        assert len(drawn.lines) == height
        assert all(sum(s.cell_length for s in line) <= width for line in drawn.lines)
        assert drawn.page >= 1


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--sort", "size"], "--sort"), (["-l", "a in"], "is not a label selector")]
)
def test_invalid_options_are_reported_in_one_line(arguments: list[str], message: str) -> None:
    done = call("nodes", *arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1

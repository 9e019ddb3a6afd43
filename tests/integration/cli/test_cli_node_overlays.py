"""`tenon plan`, `nodes` and `explain` show the prices of NodeOverlays, and `plan --what-if` tries overlays out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.instance_types.node_overlays import manifest
from tests.unit.scheduling.small_clusters import document, node, pods, pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

TYPE, POOL = "node.kubernetes.io/instance-type", "karpenter.sh/nodepool"
ON_DEMAND = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
HALF = manifest("half", (TYPE, "In", ["m1.xlarge"]), (POOL, "In", ["default"]), priceAdjustment="-50%")
LARGE_FOR_NOTHING = manifest("large-for-nothing", (TYPE, "In", ["m1.2xlarge"]), price="0", weight=5)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """A node of the NodePool and one of none, both m1.xlarge on demand at 0.2, five pending pods, and these objects."""

    def write(*objects: dict[str, Any]) -> tuple[str, ...]:
        nodes = [node("own", labels={POOL: "default"}), node("foreign")]
        path = tmp_path / "cluster.json"
        given = [pool(requirements=ON_DEMAND), *nodes, *objects]
        path.write_text(json.dumps(document(given, pods("web", 5, cpu="1900m"))))
        return "-f", str(path)

    return write


def test_nodes_of_the_pool_have_the_overlaid_price_and_others_the_list_price(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, ...]]
) -> None:
    plain = {n["name"]: n["price"] for n in tenon("nodes", *files(), "--json").json["nodes"]}
    assert plain == {"own": 0.2, "foreign": 0.2}
    overlaid = {n["name"]: n["price"] for n in tenon("nodes", *files(HALF), "--json").json["nodes"]}
    assert overlaid == {"own": 0.1, "foreign": 0.2}
    assert "$0.10/h" in tenon("explain", "node", "own", *files(HALF)).out
    assert tenon("plan", *files(HALF), "--json").json["costPerHour"]["before"] == pytest.approx(0.3)


def test_an_overlay_is_tried_out_before_it_is_applied(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    overlay_file = tmp_path / "overlay.json"
    overlay_file.write_text(json.dumps(LARGE_FOR_NOTHING))
    plain = tenon("plan", *files(), "--json").json
    assert "m1.2xlarge" not in {c["instanceTypes"][0] for c in plain["launches"]["nodeClaims"]}
    tried = tenon("plan", *files(), "--what-if", f"nodeoverlay={overlay_file}", "--json").json
    assert {c["cheapest"]["instanceType"] for c in tried["launches"]["nodeClaims"]} == {"m1.2xlarge"}
    assert tried["costPerHour"]["launches"] == 0
    applied = tenon("plan", *files(LARGE_FOR_NOTHING), "--json").json
    assert applied["launches"]["nodeClaims"] == tried["launches"]["nodeClaims"]

    overlay_file.write_text(json.dumps({**LARGE_FOR_NOTHING, "spec": {"price": "free"}}))
    refused = tenon("plan", *files(), "--what-if", f"nodeoverlay={overlay_file}")
    assert refused.code == 2
    assert 'NodeOverlay large-for-nothing: spec.price: "free" is not allowed' in refused.err


def test_a_conflict_and_an_invalid_overlay_are_said_in_the_plan(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, ...]]
) -> None:
    conflicting = manifest("a", (TYPE, "In", ["m1.xlarge"]), price="1")
    invalid = {**manifest("b"), "spec": {"requirements": [], "weight": -1}}
    plan = tenon("plan", *files(HALF, conflicting, invalid), "--json").json
    assert (
        "NodeOverlay a: NodeOverlay half of the same weight 0 sets the price of m1.xlarge in NodePool default, too; "
        "this overlay isn't applied" in plan["notes"]
    )
    assert plan["invalid"] == [
        {"object": "NodeOverlay b", "problems": ["spec.weight: -1 is not allowed; allowed is 1 to 10000"]}
    ]


def test_an_overlay_is_explained_by_the_prices_and_resources_that_it_decides(
    tenon: Callable[..., CommandResult], files: Callable[..., tuple[str, ...]]
) -> None:
    devices = manifest("devices", (TYPE, "NotIn", ["m1.large"]), capacity={"a/x": "4"})
    fewer = manifest("fewer", (TYPE, "In", ["c1.large"]), capacity={"a/x": "2"}, weight=1)
    conflicting = manifest("a", (TYPE, "In", ["m1.xlarge"]), price="1")
    hidden = manifest("hidden", (TYPE, "In", ["c1.large"]), capacity={"a/x": "1"})
    given = files(HALF, devices, fewer, conflicting, manifest("nothing", (TYPE, "In", ["x9"]), price="1"))

    explained = tenon("explain", "nodeoverlay", "half", *given)
    assert explained.lines[0] == "NodeOverlay half is applied"
    assert explained.lines[1].strip() == "price -50%, for instance types of 1 NodePool"
    assert "1 instance type, 6 offerings" in explained.out
    assert "on-demand, z-c: $0.20 → $0.10/h" in explained.out
    resources = tenon("explain", "overlay/devices", *given).out
    assert "4 on 10 instance types" in resources  # of 12, less m1.large and what the higher weight decides
    assert "2 on 1 instance type" in tenon("explain", "overlay/fewer", *given).out
    assert tenon("explain", "nodeoverlay", "a", *given).lines[0] == "NodeOverlay a isn't applied"
    assert tenon("explain", "nodeoverlay", "nothing", *given).lines[0] == "NodeOverlay nothing changes nothing"
    assert "same weight 0 sets a/x of c1.large" in tenon("explain", "overlay/devices", *files(devices, hidden)).out

    invalid = {**manifest("b"), "spec": {"requirements": [], "weight": -1}}
    assert "spec.weight" in tenon("explain", "overlays/b", *files(invalid)).out
    missing = tenon("explain", "nodeoverlay", "gone", *files(HALF))
    assert (missing.code, missing.err.strip()) == (
        2,
        'tenon explain: there is no NodeOverlay "gone" (there: half)',
    )

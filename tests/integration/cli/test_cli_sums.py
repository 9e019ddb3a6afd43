"""The amounts of one screen add up, and an explanation doesn't contradict its own checks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.test_cli_made_up_prices import NODE_CLASS, POOL
from tests.integration.cli.test_cli_nodes_selection import claim, node, pod
from tests.integration.cli.test_cli_plan import small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

__all__ = ["small"]

LABELS = {"karpenter.sh/initialized": "true", "karpenter.sh/registered": "true", "kubernetes.io/arch": "amd64"}


@pytest.fixture
def half_empty(tmp_path: Path) -> tuple[str, str]:
    """Two nodes, each with one small pod; the pods fit on one of them."""
    objects: list[dict[str, Any]] = [NODE_CLASS, POOL]
    for name in ("one", "two"):
        objects += [node(name, labels=LABELS), pod(f"on-{name}", name)]
        launched = claim(name, conditions=[{"type": t} for t in ("Launched", "Registered", "Initialized")])
        launched["metadata"]["labels"] |= node(name)["metadata"]["labels"]
        launched["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        launched["spec"]["expireAfter"] = "Never"
        launched["status"]["nodeName"] = name
        objects.append(launched)
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"objects": objects}))
    return "-f", str(path)


def test_a_plans_amounts_add_up_to_its_total(tenon: Callable[..., CommandResult], half_empty: tuple[str, str]) -> None:
    cost = tenon("plan", *half_empty, "--json").json["costPerHour"]
    assert cost["savings"] > 0
    assert cost["after"] == pytest.approx(cost["before"] - cost["lost"] + cost["launches"] - cost["savings"], abs=2e-6)
    assert cost["decidedSavings"] > cost["savings"], "a volume of each node is saved too"
    shown = tenon("plan", *half_empty).out
    disrupted = re.search(r"Would then disrupt 1 node · (−\$[\d.]+)/h", shown)
    in_table = re.search(r"Underutilized +\w+ .* (−\$[\d.]+)$", shown, re.MULTILINE)
    total = re.search(r"per hour \((−\$[\d.]+), −50%\)", shown)
    assert disrupted, shown
    assert in_table, shown
    assert total, shown
    assert disrupted[1] == in_table[1] == total[1]
    before, after = re.findall(r"2 → 1 node, \$([\d.]+) → \$([\d.]+)", shown)[0]
    assert round(float(before) - float(total[1].lstrip("−$")), 4) == float(after), "as a reader adds them"
    assert re.search(r"with volumes, as decisions count: −\$[\d.]+/h", shown)


def test_lost_nodes_are_part_of_the_sum(tenon: Callable[..., CommandResult], half_empty: tuple[str, str]) -> None:
    cost = tenon("plan", *half_empty, "--without", "spot", "--json").json["costPerHour"]
    assert cost["lost"] == pytest.approx(cost["before"])
    assert cost["after"] == pytest.approx(cost["before"] - cost["lost"] + cost["launches"] - cost["savings"], abs=2e-6)
    assert re.search(r"2 nodes lost · .* · −\$[\d.]+/h", tenon("plan", *half_empty, "--without", "spot").out)


def test_a_nodes_two_prices_are_told_apart(tenon: Callable[..., CommandResult], half_empty: tuple[str, str]) -> None:
    checks = tenon("explain", "node", "one", *half_empty, "--json").json["checks"][0]["checks"]
    details = {c["what"]: c["detail"] for c in checks}
    assert re.fullmatch(r"\$[\d.]+/h: with \$[\d.]+/h for its volumes", details["in decisions"])


def test_a_kept_node_isnt_said_to_have_no_cheaper_replacement_while_its_removal_saves(
    tenon: Callable[..., CommandResult], small: tuple[str, ...]
) -> None:
    later = 0
    for name in (f"n{number:05}" for number in range(20)):
        explained = tenon("explain", "node", name, *small, "--json").json
        checks = {c["what"]: c for section in explained["checks"] for c in section["checks"]}
        if explained["state"] == "is kept" and checks["saves"]["ok"]:
            assert re.match(
                r"its removal would save \$[\d.]+/h; the best removal now is that of n\d+", explained["reason"]
            )
            later += 1
    assert later > 10

"""`tenon report` of a run of the demo, and of a live cluster."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from cli.report.page import page
from cli.report.recording import read
from local.kubernetes import kinds
from local.world.sample_objects import daemon_set, deployment, node_class, node_pool
from tests.integration.cli.command import CHECKOUT, TENON, CommandResult, call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cli.conftest import Shell


def test_the_demo_records_a_run_and_its_page(tmp_path: Path) -> None:
    run, html = tmp_path / "run.json", tmp_path / "run.html"
    command = [*TENON, "demo", "--json", "--scale", "inflate=5,1,0", "--record", str(run), "--report", str(html)]
    subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=True)
    recorded = read(run)
    assert [m.label for m in recorded.marks] == ["inflate 0 → 5", "inflate 5 → 1", "inflate 1 → 0"]
    assert all(0 <= s.created <= s.launched <= s.ready <= s.deleted <= s.terminated for s in recorded.spans)  # type: ignore[operator] # all are known here
    assert {d.reason for d in recorded.decisions} == {"Empty"}
    assert {d.node for d in recorded.decisions} == {s.name for s in recorded.spans}
    assert all(s.lower_bound is not None and s.lower_bound <= s.cost + 1e-9 for s in recorded.samples), (
        "no cost is below the lower bound"
    )
    assert max(s.scheduled or 0 for s in recorded.samples) == 5
    launches = recorded.launches[0]
    assert (launches.pods, launches.nodes, launches.before) == (5, len(recorded.spans), 0.0)
    assert 0 < launches.planned <= launches.bought <= 1.02 * launches.planned
    assert launches.realised == pytest.approx(launches.bought)
    assert html.read_text() == page(recorded)
    again = call("report", str(run), "-o", str(tmp_path / "again.html"))
    assert again.code == 0, again.err
    assert (tmp_path / "again.html").read_text() == html.read_text()


@pytest.mark.flow
def test_a_live_cluster_is_reported_by_its_decision_log(shell: Shell, tmp_path: Path) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    world.scale("default", "inflate", 0)
    world.run_until(lambda: any(h.type == "node deleted" for h in world.timeline.all))
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    html = tmp_path / "cluster.html"
    result: CommandResult = shell.tenon("report", "-o", str(html), "--days", "0.1")
    assert result.code == 0, result.err
    assert "decisions" in result.out
    text = html.read_text()
    assert "the chart has no cost of them" in text
    assert "lower bound, share" not in text, "its past is unknown"
    assert all(n["metadata"]["name"] in text for n in world.nodes())
    assert "Empty" in text
    assert "nodes for 5 pods" in text


def test_the_costs_of_namespaces_add_up_to_the_bill_in_text_json_and_page(shell: Shell, tmp_path: Path) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.apply([daemon_set("agent", {"cpu": "100m", "memory": "128Mi"})])
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    html = tmp_path / "cluster.html"
    printed = shell.tenon("report", "-o", str(html), "--cost-label", "app", "--json")
    assert printed.code == 0, printed.err
    exact = json.loads(printed.out, parse_float=Decimal)
    assert (exact["page"], exact["nodes"]) == (str(html), len(world.store.list(kinds.NODES)))
    costs = exact["costs"]
    rows = {(row["share"], row["namespace"], row["value"]): row["cost"] for row in costs["rows"]}
    assert set(rows) == {("pods", "default", "inflate"), ("daemons", "", ""), ("idle", "", "")}
    assert all(cost > 0 for cost in rows.values())
    assert (
        sum(rows.values())
        == costs["total"]
        == round(Decimal(str(shell.tenon("nodes", "--json").json["costPerHour"])), 4)
    )
    text = shell.tenon("report", "-o", str(html), "--cost-label", "app").lines
    shares = [line for line in text[2:] if "$" in line]  # a node of others has no price, which another line says
    cells = [re.split(r"  +", line.strip()) for line in shares]
    names = [["default", "inflate"], ["DaemonSets and static pods"], ["idle"], ["total"]]
    amounts = [f"${cost:.4f}" for cost in (*rows.values(), costs["total"])]
    assert [[*row[:-2], row[-2]] for row in cells] == [[*n, a] for n, a in zip(names, amounts, strict=True)]
    section = html.read_text().partition('id="costs"')[2].partition("</section>")[0]
    assert re.findall(r"\$\d+\.\d{4}", section) == amounts


def test_a_recording_has_no_labels_of_pods(tmp_path: Path) -> None:
    refused = call("report", str(tmp_path / "run.json"), "--cost-label", "team")
    assert refused.code == 2
    assert "--cost-label needs a live cluster" in refused.err


def test_moved_pods_are_reported_with_those_that_greedy_would_have_moved(shell: Shell, tmp_path: Path) -> None:
    world = shell.world
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    types = {"karpenter.sh/capacity-type": ["on-demand"], "node.kubernetes.io/instance-type": ["m5.xlarge"]}
    world.apply([node_class(world), node_pool(types, disruption=disruption)])
    costly = {"karpenter.sh/disruption-cost": str(2**31 - 1), "tenon.sh/lost-work": "24h"}
    annotations: dict[str, dict[str, str]] = {"light": {}, "heavy": costly}
    zones = {"light": "us-east-1a", "heavy": "us-east-1b"}
    for name, zone in zones.items():
        for i in (1, 2):  # four fill a node
            pod = {"nodeSelector": {"topology.kubernetes.io/zone": zone}}
            requests = {"cpu": "900m", "memory": "256Mi"}
            world.apply(deployment(f"{name}-{i}", 4, requests, annotations=annotations[name], **pod))
            world.run_until_idle()
    for name in zones:
        for i in (1, 2):
            world.scale("default", f"{name}-{i}", 2)
    world.run_for(timedelta(minutes=75))  # a node is refused once an hour
    html = tmp_path / "cluster.html"
    result = shell.tenon("report", "-o", str(html), "--json")
    assert result.code == 0, result.err
    moves = json.loads(result.out)["moves"]
    assert (moves["commands"], moves["moved"]) == (1, 2)
    assert moves["refused"] == 4, "the pods of either of two nodes"
    assert 0 < moves["refusedSavings"] < 0.2
    assert "Consolidation moved 2 pods in 1 command." in html.read_text()
    assert "Moves of 4 more would have cost more than they save" in shell.tenon("report", "-o", str(html)).out

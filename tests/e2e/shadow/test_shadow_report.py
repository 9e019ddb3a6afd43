"""``tenon shadow report`` on a deployment in shadow mode."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from shared.base import runtime
from tests.e2e.shadow.objects import FIVE, MINUTE, node_class, node_pool, pod, put, real_node
from tests.e2e.shadow.shadow_cluster import CLUSTER, ShadowCluster
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = datetime(2026, 3, 2, 23, 40, tzinfo=UTC)


@pytest.fixture
def cluster() -> Iterator[ShadowCluster]:
    """Two half-empty nodes, and a pod that fits nowhere, for half an hour across midnight."""
    with ShadowCluster(START) as running:
        created = START - 60 * MINUTE
        put(running, node_class(), node_pool(), real_node("a", created=created), real_node("b", created=created))
        put(running, pod("1", "a"), pod("2", "b"), pod("<b>huge</b>", cpu="64", created=created))
        for i in range(7):
            assert running.run(START + i * FIVE).ok
        yield running


def tenon(cluster: ShadowCluster, *arguments: str) -> CommandResult:
    in_shell = runtime.Runtime(environ=os.environ, now=cluster.clock.now, sleep=cluster.clock.sleep)
    with runtime.using(in_shell):
        return call(*arguments, "--cluster", CLUSTER, env={"KUBECONFIG": "/nowhere"})


@pytest.mark.flow
def test_json_has_both_fleets_to_the_cent(cluster: ShadowCluster) -> None:
    report = tenon(cluster, "shadow", "report", "--json").json
    assert [day["date"] for day in report["days"]] == ["2026-03-02", "2026-03-03"]
    days = {day.date: day for day in cluster.days().values()}
    for day in report["days"]:
        for fleet in ("real", "shadow"):
            assert Decimal(day[fleet]["dollars"]) == days[day["date"]].dollars(fleet)
    total = report["total"]
    xlarge = Decimal(repr(cluster.catalog.on_demand["m5.xlarge"]))
    assert Decimal(total["real"]["dollars"]) == round(xlarge, 2)  # two of them for half an hour
    assert Decimal(total["saved"]) > 0
    assert total["seconds"] == 30 * 60
    assert {event["action"] for day in report["days"] for event in day["events"]} >= {"adopted", "removed"}
    assert {pod["pod"] for day in report["days"] for pod in day["unplaced"]} == {"default/<b>huge</b>"}


def test_one_day_can_be_chosen(cluster: ShadowCluster) -> None:
    report = tenon(cluster, "shadow", "report", "--day", "2026-03-02", "--json").json
    assert [day["date"] for day in report["days"]] == ["2026-03-02"]
    assert report["total"]["seconds"] == 20 * 60
    assert tenon(cluster, "shadow", "report", "--day", "yesterday").code == 2
    missing = tenon(cluster, "shadow", "report", "--day", "2025-01-01")
    assert missing.code == 1
    assert "has nothing of 2025-01-01" in missing.err


def test_the_terminal_says_what_is_saved_and_which_pods_have_no_place(cluster: ShadowCluster) -> None:
    shown = tenon(cluster, "shadow", "report")
    assert shown.code == 0
    assert "Tenon saves $" in shown.out
    assert "2026-03-02" in shown.out
    assert "2026-03-03" in shown.out
    assert "default/<b>huge</b>" in shown.out


def test_the_page_escapes_what_the_cluster_says_and_loads_nothing(cluster: ShadowCluster, tmp_path: Path) -> None:
    page = tmp_path / "shadow.html"
    assert tenon(cluster, "shadow", "report", "--html", str(page)).code == 0
    text = page.read_text()
    assert "&lt;b&gt;huge&lt;/b&gt;" in text
    assert "<b>huge</b>" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert 'class="real"' in text
    assert "{{" not in text


def test_status_knows_shadow_mode(cluster: ShadowCluster) -> None:
    shown = tenon(cluster, "status", "--json")
    assert shown.json["mode"] == "shadow"
    assert [function["name"] for function in shown.json["functions"]] == ["catalog", "shadow"]
    assert shown.json["queues"] == []


def test_without_a_deployment_the_error_says_how_to_deploy(cluster: ShadowCluster) -> None:
    in_shell = runtime.Runtime(environ=os.environ, now=cluster.clock.now, sleep=cluster.clock.sleep)
    with runtime.using(in_shell):
        missing = call("shadow", "report", "--cluster", "elsewhere", env={"KUBECONFIG": "/nowhere"})
    assert missing.code == 1
    assert "-c mode=shadow" in missing.err

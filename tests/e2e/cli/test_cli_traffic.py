"""Traffic between zones in `tenon plan` and `tenon report`, from Services and from where pods run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from local.faults import Fault
from local.kubernetes import kinds
from tests.integration.cli.test_cli_traffic import service

if TYPE_CHECKING:
    from pathlib import Path

    from local.world import World
    from tests.e2e.cli.conftest import Shell

SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


def spread_deployment(world: World, replicas: int) -> None:
    """A Deployment whose replicas are spread over zones, running."""
    world.apply("cli/demo/manifests/spot-default.yaml")
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **SPREAD}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    world.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    world.run_until_idle()


def by_zone(world: World) -> list[int]:
    """How many pods of the Deployment each zone has, most first."""
    zones = {n["metadata"]["name"]: n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in world.nodes()}
    pods = [zones[p["spec"]["nodeName"]] for p in world.pods() if p["metadata"]["labels"].get("app") == "web"]
    return sorted((pods.count(z) for z in set(pods)), reverse=True)


@pytest.mark.flow
def test_a_plan_says_which_share_crosses_zones_now_and_after(shell: Shell) -> None:
    spread_deployment(shell.world, 2)
    shell.world.apply(
        [service("web"), service("near", trafficDistribution="PreferClose"), service("h", clusterIP="None")]
    )
    assert by_zone(shell.world) == [1, 1]
    traffic = shell.tenon("plan", "--what-if", "deployment/web=3", "--json").json["crossZoneTraffic"]
    assert traffic["problem"] is None
    assert traffic["usdPerCrossingTb"] == 20
    assert traffic["shareBefore"] == pytest.approx(1 / 4), "a half of one Service's, nothing of the other's"
    assert traffic["shareAfter"] == pytest.approx(1 / 3, abs=1e-4)
    web, near = traffic["services"]
    assert web == {
        "service": "default/web",
        "routing": "Even",
        "endpointsBefore": 2,
        "endpointsAfter": 3,
        "shareBefore": 0.5,
        "shareAfter": 0.6667,
        "usdPerTbBefore": 10.0,
        "usdPerTbAfter": 13.3333,
        "sameZoneShare": 0.0,
        "sameZoneLoad": 1.0,
    }
    assert (near["routing"], near["shareBefore"], near["shareAfter"]) == ("SameZone", 0, 0)
    shown = shell.tenon("plan", "--what-if", "deployment/web=3")
    assert (
        "cross-zone traffic: 25% of evenly distributed Service traffic crosses zones now, 33% after this plan "
        "($20 per TB that crosses)"
    ) in shown.lines
    (row,) = [line.split() for line in shown.lines if "default/web" in line]
    assert row == ["default/web", "3", "50%", "67%", "$13.33", "0%,", "busiest", "endpoint", "×", "1.0"]
    assert "default/near" not in shown.out
    assert "after this plan" not in shell.tenon("plan").out


def test_pods_of_a_lost_zone_count_where_they_are_rescheduled(shell: Shell) -> None:
    spread_deployment(shell.world, 3)
    shell.world.apply(service("web"))
    zone = shell.world.nodes()[0]["metadata"]["labels"]["topology.kubernetes.io/zone"]
    result = shell.tenon("plan", "--without", zone, "--json")
    assert result.code == 0, result.err
    (web,) = result.json["crossZoneTraffic"]["services"]
    unschedulable = len(result.json["launches"]["errors"])
    assert (web["endpointsBefore"], web["endpointsAfter"]) == (3, 3 - unschedulable)
    assert web["shareBefore"] == pytest.approx(2 / 3, abs=1e-4)
    assert web["shareAfter"] < web["shareBefore"]


def test_services_that_may_not_be_listed_leave_the_rest_as_it_is(shell: Shell, tmp_path: Path) -> None:
    spread_deployment(shell.world, 2)
    shell.world.apply(service("web"))
    denied = Fault(
        status=403, code="Forbidden", message='services is forbidden: User "me" cannot list resource "services"'
    )
    shell.world.faults.inject_kubernetes("GET", "/api/v1/services", denied, times=100)
    plan = shell.tenon("plan", "--what-if", "deployment/web=3")
    assert plan.code == 0, plan.err
    (line,) = [line for line in plan.lines if "cross-zone traffic" in line]
    assert re.match(
        r"cross-zone traffic: not known: Services can't be read: 403 Forbidden: services is forbidden", line
    )
    assert "Traffic between zones" not in plan.out
    nodes = len(shell.world.store.list(kinds.NODES))
    assert plan.lines[-1].startswith(f"{nodes} → {nodes + 1} nodes")
    traffic = shell.tenon("plan", "--json").json["crossZoneTraffic"]
    assert "403 Forbidden" in traffic["problem"]
    assert (traffic["shareBefore"], traffic["shareAfter"], traffic["services"]) == (None, None, [])
    html = tmp_path / "cluster.html"
    report = shell.tenon("report", "-o", str(html))
    assert report.code == 0, report.err
    assert "Not known: Services can&#x27;t be read: 403 Forbidden: services is forbidden" in html.read_text()


def test_a_report_has_the_services_whose_traffic_crosses_zones(shell: Shell, tmp_path: Path) -> None:
    spread_deployment(shell.world, 3)
    html = tmp_path / "cluster.html"
    assert shell.tenon("report", "-o", str(html)).code == 0
    assert "No Service with a selector has ready endpoints." in html.read_text()
    shell.world.apply([service("web"), service("near", trafficDistribution="PreferClose")])
    assert shell.tenon("report", "-o", str(html)).code == 0
    text = html.read_text()
    assert "33% of Service traffic crosses zones" in text
    assert "$20 per TB that crosses" in text
    rows = re.findall(r"<tr><td data-column=\"Service\">(default/\w+)(.*?)</tr>", text)
    assert [(name, re.findall(r">([^<]+)<", cells)) for name, cells in rows] == [
        ("default/web", ["3", "67%", "$13.33", "0%, busiest endpoint × 1.0"]),
        ("default/near", ["3", "0%", "$0.00", "is set"]),
    ]

"""`tenon export` of a cluster as a process and once, and its manifests."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import yaml
from prometheus_client.parser import text_string_to_metric_families

from cli.export import families
from local.faults import Fault
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.integration.cli.export_process import Scrape, running

if TYPE_CHECKING:
    from tests.integration.cli.command import CommandResult


def test_the_clusters_metrics_come_although_aws_cannot_be_reached(shell: Shell) -> None:
    shell.world.apply("cli/demo/manifests/spot-default.yaml")
    with running(kubeconfig=shell.kubeconfig) as (_, url):
        deadline = time.monotonic() + 30
        while (scrape := Scrape(url)).values("tenon_export_up", source="cluster") != [1]:
            assert time.monotonic() < deadline, scrape.text
            time.sleep(0.1)
        assert scrape.values("karpenter_nodepools_limit", nodepool="default", resource_type="cpu") == [1000]
        assert scrape.values("tenon_export_up", source="cloudwatch") == [0]


def test_manifests_are_objects_that_the_cluster_accepts(shell: Shell) -> None:
    result = shell.tenon("export", "--manifests", "--image", "example/tenon:1", "--region", "us-east-1")
    objects = list(yaml.safe_load_all(result.out))
    stored = shell.world.apply(objects)
    assert [o["kind"] for o in stored] == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Deployment",
        "Service",
    ]
    (container,) = next(o for o in stored if o["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "export"
    assert json.dumps(objects).count(CLUSTER) >= 2


def names(result: CommandResult) -> set[str]:
    return {s.name for family in text_string_to_metric_families(result.out) for s in family.samples}


def test_once_prints_the_text_format_without_counters_that_need_a_process(shell: Shell) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.run_until_idle()
    result = shell.tenon("export", "--once", "--no-pods", "--no-cloudwatch", "--offerings")
    assert (result.code, result.err) == (0, "")
    printed = names(result)
    assert printed >= {"tenon_build_info", "karpenter_cluster_state_node_count", "karpenter_nodepools_limit"}
    assert printed & {f.name for f in families.ALL if f.running} == set()
    assert families.PODS_STATE.name not in printed
    assert families.UNWELL.name not in printed
    assert result.out.count(f"{families.TYPE_CPU.name}{{") > 100

    world.faults.inject_kubernetes("GET", "/", Fault(status=403, code="Forbidden"), times=100)
    denied = shell.tenon("export", "--once", "--no-cloudwatch")
    assert denied.code == 1
    (line,) = denied.err.splitlines()
    assert line.startswith("tenon export: cluster can't be read (denied): ")
    assert "tenon_export_up" in names(denied)

"""`tenon export` as a process: what it prints, how it is stopped, and bad input."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cli.export import families
from local.faults import Fault
from tests.e2e.cli.conftest import CLUSTER, CommandResult, Shell, call
from tests.e2e.cli.test_cli_export import Scrape

if TYPE_CHECKING:
    from collections.abc import Iterator

TENON = [sys.executable, "-c", "import sys; sys.argv[0] = 'tenon'; from cli.main import run; run()"]
CHECKOUT = Path(__file__).parents[3]
NOWHERE = "http://127.0.0.1:9"
AWS = {"AWS_ENDPOINT_URL": NOWHERE, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


def environ(kubeconfig: Path, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **AWS, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}


@contextlib.contextmanager
def running(*options: str, kubeconfig: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its URL of the metrics."""
    process = subprocess.Popen(
        [*TENON, "export", "--port", "0", "--cluster", CLUSTER, *options],
        cwd=CHECKOUT,
        env=environ(kubeconfig, kubeconfig.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "serving" in line)
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_without_any_source_it_serves_and_ends_at_sigterm_at_once(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(UNREACHABLE)
    with running(kubeconfig=kubeconfig) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        scrape = Scrape(url)  # while the first reads are still running, or have failed
        assert scrape.values("tenon_export_up", source="cluster") == [0]
        assert scrape.values("tenon_build_info", cluster=CLUSTER) == [1]
        assert scrape.values("tenon_export_last_success_timestamp_seconds", source="cluster") == [0]
        with urllib.request.urlopen(url.replace("/metrics", "/healthz"), timeout=5) as response:  # noqa: S310 (http)
            assert response.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/other"), timeout=5)  # noqa: S310 (http)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0
        assert "Traceback" not in process.communicate()[1]


def test_the_clusters_metrics_come_although_aws_cannot_be_reached(shell: Shell) -> None:
    shell.world.apply("cli/demo/manifests/spot-default.yaml")
    with running(kubeconfig=shell.kubeconfig) as (_, url):
        deadline = time.monotonic() + 30
        while (scrape := Scrape(url)).values("tenon_export_up", source="cluster") != [1]:
            assert time.monotonic() < deadline, scrape.text
            time.sleep(0.1)
        assert scrape.values("karpenter_nodepools_limit", nodepool="default", resource_type="cpu") == [1000]
        assert scrape.values("tenon_export_up", source="cloudwatch") == [0]


def test_a_client_that_sends_nothing_holds_up_no_scrape(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(UNREACHABLE)
    with running(kubeconfig=kubeconfig) as (process, url):
        port = int(url.rpartition(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            assert "tenon_build_info" in Scrape(url).names
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=5) == 0


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(UNREACHABLE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = call("export", "--port", port, "--cluster", CLUSTER, env={"KUBECONFIG": str(kubeconfig), **AWS})
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines() == [
        f"tenon export: can't listen on 127.0.0.1 port {port}: Address already in use; give --port or --listen"
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--once", "--rules"], 2, "give at most one of them"),
        (["--cloudwatch-interval", "5"], 2, "Invalid value for '--cloudwatch-interval'"),
        (["--interval", "1"], 2, "Invalid value for '--interval'"),
        (["--port", "70000"], 2, "Invalid value for '--port'"),
        (["--once"], 2, "give --cluster NAME"),
        (["--manifests", "--cluster", "c", "--region", "us-east-1"], 2, "needs --image"),
        (["--once", "--cluster", "c", "--context", "absent"], 1, "absent"),
    ],
)
def test_bad_options_are_said_in_a_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(UNREACHABLE)
    result = call("export", *arguments, env={"KUBECONFIG": str(kubeconfig), **AWS})
    assert result.code == code
    assert message in result.err
    assert "Traceback" not in result.err


def test_dashboard_and_rules_need_no_cluster() -> None:
    printed = call("export", "--dashboard", env={"KUBECONFIG": "/nowhere"})
    assert (printed.code, printed.json["uid"]) == (0, "tenon")
    printed = call("export", "--rules", env={"KUBECONFIG": "/nowhere"})
    assert printed.code == 0
    assert yaml.safe_load(printed.out)["groups"][0]["name"] == "tenon"


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

"""`tenon export` as a process: what it prints, how it is stopped, and bad input."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.integration.cli.command import call
from tests.integration.cli.export_process import AWS, CLUSTER, UNREACHABLE, Scrape, running

if TYPE_CHECKING:
    from pathlib import Path


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

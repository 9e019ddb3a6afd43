"""``python -m relay`` as a process: it starts, is healthy, and exits on a signal."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError

import pytest

from local.kubernetes.apiserver.server import ADMIN_TOKEN
from relay.health import HealthServer
from relay.main import RelaySettings, run
from shared.base import hints, runtime
from shared.cluster.client import Client
from shared.cluster.connect import configuration
from tests.integration.relay.conftest import BUS, CLUSTER

if TYPE_CHECKING:
    from local.kubernetes.apiserver.server import Server
    from tests.integration.relay.conftest import Bus

ROOT = Path(__file__).parents[3]
_TIMEOUT_SECONDS = 60.0


def environment(tmp_path: Path, server: Server, port: int) -> dict[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(server.kubeconfig())
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KUBECONFIG": str(kubeconfig),
        "TENON_CLUSTER_NAME": "demo",
        "TENON_EVENT_BUS_NAME": "tenon-demo",
        "TENON_HEALTH_PORT": str(port),
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "NO_PROXY": "*",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def probe(port: int, path: str, *, host: str = "127.0.0.1") -> int:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except URLError:
        return 0


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_probes_are_answered_on_ipv4_and_on_ipv6(host: str) -> None:
    healthy, ready = True, False
    server = HealthServer(0, is_healthy=lambda: healthy, is_ready=lambda: ready)
    server.start()
    try:
        assert probe(server.port, "/healthz", host=host) == 200
        assert probe(server.port, "/readyz", host=host) == 503
        healthy, ready = False, True
        assert probe(server.port, "/healthz", host=host) == 503
        assert probe(server.port, "/readyz", host=host) == 200
        assert probe(server.port, "/metrics", host=host) == 404
    finally:
        server.stop()


def test_without_ipv6_probes_are_answered_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    create_socket = socket.socket.__init__

    def without_ipv6(self: socket.socket, family: int = -1, *arguments: int, **named: object) -> None:
        if family == socket.AF_INET6:  # as a kernel that was started with ipv6.disable=1
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        create_socket(self, family, *arguments, **named)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(socket.socket, "__init__", without_ipv6)
    server = HealthServer(0, is_healthy=lambda: True, is_ready=lambda: True)
    server.start()
    try:
        assert probe(server.port, "/healthz") == 200
    finally:
        server.stop()


def test_the_relay_is_healthy_but_not_ready_while_it_cannot_publish_and_exits_on_sigterm(
    tmp_path: Path, server: Server
) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "relay"],
        cwd=ROOT,
        # Nothing listens at the event bus's address.
        env={**environment(tmp_path, server, port), "AWS_ENDPOINT_URL_EVENTS": "http://127.0.0.1:1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ends = time.monotonic() + _TIMEOUT_SECONDS
        while probe(port, "/healthz") != 200:
            assert process.poll() is None
            assert time.monotonic() < ends, "never healthy"
            time.sleep(0.1)
        assert probe(port, "/readyz") == 503
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[0]["message"] == "watching cluster demo for event bus tenon-demo"
    assert lines[-1]["message"] == "stopped; 1 keys were not sent"  # that it has started


def test_a_relay_that_is_stopped_sends_what_is_pending(server: Server, bus: Bus) -> None:
    stop = threading.Event()
    stop.set()
    client = Client(configuration(server.url, server.ca_pem, lambda: ADMIN_TOKEN), attempts=1)
    settings = RelaySettings(cluster_name=CLUSTER, event_bus_name=BUS, health_port=0)
    with runtime.using(runtime.Runtime(environ={}, cache={"aws:events": bus.events})):
        run(settings, client, stop)
    assert [detail_type for detail_type, _ in bus.hints()] == [hints.RELAY_STARTED]


@pytest.mark.parametrize("missing", ["TENON_CLUSTER_NAME", "TENON_EVENT_BUS_NAME", "KUBECONFIG"])
def test_the_relay_exits_with_an_error_without_its_settings(tmp_path: Path, server: Server, missing: str) -> None:
    environ = environment(tmp_path, server, free_port())
    del environ[missing]
    ended = subprocess.run(
        [sys.executable, "-m", "relay"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert ended.returncode == 2
    line = json.loads(ended.stdout)
    assert line["level"] == "ERROR"
    assert line["message"].startswith("can't start:")

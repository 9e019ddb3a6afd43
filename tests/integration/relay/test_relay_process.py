"""``python -m relay`` as a process: it starts, is healthy, and exits on a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest

if TYPE_CHECKING:
    from local.kubernetes.apiserver.server import Server

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


def healthz(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return int(answer.status)
    except URLError:
        return 0


def test_the_relay_is_healthy_while_it_watches_and_exits_on_sigterm(tmp_path: Path, server: Server) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "relay"],
        cwd=ROOT,
        env=environment(tmp_path, server, port),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        ends = time.monotonic() + _TIMEOUT_SECONDS
        while healthz(port) != 200:
            assert process.poll() is None
            assert time.monotonic() < ends, "never healthy"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=_TIMEOUT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[0]["message"] == "watching cluster demo for event bus tenon-demo"
    assert lines[-1]["message"] == "stopped; 0 keys were not sent"


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

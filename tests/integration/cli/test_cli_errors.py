"""Errors of commands are one line that says what to do, and an exit code; help and completion."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import boto3
import pytest

from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store
from tests.integration.cli.command import CHECKOUT, TENON, CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMANDS = (["plan"], ["explain", "pod", "web"], ["nodes", "--once"], ["report"])


def assert_one_line_error(done: CommandResult, command: str, *words: str, code: int = 1) -> None:
    """The error is one line of that command with these words."""
    assert done.code == code, done.out + done.err
    assert done.out == ""
    assert done.err.startswith(f"tenon {command}: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


def kubeconfig(path: Path, server: str, *, context: str = "here") -> dict[str, str]:
    """A kubeconfig for a server without TLS."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": "me"}}],
    }
    path.write_text(json.dumps(config))
    return {"KUBECONFIG": str(path)}


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without AWS credentials."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_kubeconfig_the_error_says_how_to_create_one(command: list[str]) -> None:
    done = call(*command, "--cluster", "prod", env={"KUBECONFIG": "/nowhere/config"})
    assert_one_line_error(done, command[0], "no cluster configured", "aws eks update-kubeconfig", "files")


def test_a_missing_context_is_named(tmp_path: Path) -> None:
    env = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    assert_one_line_error(call("plan", "--context", "other", env=env), "plan", "other")


def test_an_unreachable_cluster_has_its_own_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    env = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")
    assert_one_line_error(call("nodes", "--cluster", "prod", env=env), "nodes", "can't be reached", "VPN")


class _Old(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"major": "1", "minor": "21+", "gitVersion": "v1.21.14-eks"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Nothing."""


@pytest.fixture
def old_cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A kubeconfig for a cluster with an old Kubernetes version."""
    with HTTPServer(("127.0.0.1", 0), _Old) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def test_an_old_cluster_gets_the_required_version(old_cluster: dict[str, str]) -> None:
    done = call("plan", "--cluster", "prod", env=old_cluster)
    assert_one_line_error(done, "plan", "Kubernetes 1.21", "needs 1.25 or newer", "upgrade")


def test_without_aws_credentials_the_error_says_how_to_sign_in(no_aws: None, tmp_path: Path) -> None:
    _ = no_aws
    with Server(Store(now=lambda: datetime.now(UTC))) as server:
        path = tmp_path / "config"
        path.write_text(server.kubeconfig())
        env = {"KUBECONFIG": str(path)}
        assert_one_line_error(
            call("plan", "--cluster", "prod", "--region", "us-east-1", env=env), "plan", "no AWS credentials", "sso"
        )
        assert_one_line_error(call("plan", "--cluster", "prod", env=env), "plan", "no AWS Region", "--region")


def test_a_rejected_token_and_a_forbidden_user(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with Server(Store(now=lambda: datetime.now(UTC))) as server:
        path.write_text(server.kubeconfig("wrong"))
        done = call("plan", "--cluster", "prod", "--region", "us-east-1", env={"KUBECONFIG": str(path)})
        assert_one_line_error(done, "plan", "doesn't accept your token", "access entry")
    with Server(Store(now=lambda: datetime.now(UTC)), authorize=lambda *_: False) as server:
        path.write_text(server.kubeconfig())
        done = call("plan", "--cluster", "prod", "--region", "us-east-1", env={"KUBECONFIG": str(path)})
        assert_one_line_error(done, "plan", "forbidden", "lists the permissions that commands need")


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    for text, message in (
        ("{", "neither JSON nor YAML"),
        ("[1]", "not the JSON"),
        ("{}", "neither Kubernetes objects"),
        ("", "empty"),
    ):
        broken.write_text(text)
        assert_one_line_error(call("plan", "-f", str(broken)), "plan", "broken.json", message, code=2)
    assert_one_line_error(call("plan", "-f", str(tmp_path / "none.json")), "plan", "No such file", code=2)
    allowed = "is not pod, node, nodepool, nodeclaim, nodegroup, nodeoverlay or buffer"
    assert_one_line_error(call("explain", "thing", "x"), "explain", allowed, code=2)


@pytest.mark.parametrize("command", ["plan", "explain", "nodes", "report", "simulate", "catalog", "manifests", "demo"])
def test_every_command_has_help_with_examples(command: str) -> None:
    result = call(command, "--help", env={"COLUMNS": "120"})
    assert result.code == 0
    if command != "simulate":
        assert f"tenon {command}" in result.out.split("For example:")[1]


def test_the_exit_codes_are_in_the_help() -> None:
    result = call("--help", env={"COLUMNS": "160"})
    assert "Exit codes: 0 success; 1 failure; 2 usage error; 130 interrupted." in result.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [("tenon ex", "explain"), ("tenon explain nodep", "nodepool"), ("tenon nodes --sort pr", "price")],
)
def test_the_shell_completes(words: str, expected: str) -> None:
    done = subprocess.run(
        TENON,
        cwd=CHECKOUT,
        env={
            **os.environ,
            "_TENON_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert expected in done.stdout.split()


def test_there_are_no_colours_in_a_pipe_or_with_no_color(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(
        '{"instanceTypes": [], "objects": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}]}'
    )
    for env in ({}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        shown = call("explain", "pod", "web", "-f", str(file), env=env)
        assert shown.code == 0, shown.err
        assert not any(f"\x1b[{code}m" in shown.out for code in range(30, 48))
    assert "\x1b[" not in call("explain", "pod", "web", "-f", str(file)).out

"""The first sign of life: little is imported before it, and on a terminal it comes before the rest is imported."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.command import CHECKOUT, TENON

if TYPE_CHECKING:
    from pathlib import Path

IMPORTED = (
    "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); sys.argv[0] = 'tenon'; "
    "from cli.main import run; run()"
)
SLOW = {"boto3", "botocore", "celpy", "cryptography", "jsonschema", "kubernetes", "moto", "numpy", "urllib3", "yaml"}
SLOW_PACKAGES = {"functions", "infra", "local", "relay", "shared"}
MOST_MODULES = 800
"""Of Python, typer and rich; the command line imported 1,200 when each command imported what it needs at once."""
ERASE = "\r\x1b[K"
PROBLEM = '{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}}'


@pytest.mark.parametrize("arguments", ["--version", "--help", "plan --help", "demo --help", "simulate --help"])
def test_help_and_version_import_little(arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments.split()], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert "cli.main" in modules
    assert {module.partition(".")[0] for module in modules} & (SLOW | SLOW_PACKAGES) == set()
    assert len(modules) < MOST_MODULES


def _on_terminal(*arguments: str, **env: str) -> tuple[str, str]:
    """What the command writes to standard error, a terminal, and to standard output, a pipe."""
    ours, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            [*TENON, *arguments],
            cwd=CHECKOUT,
            env={**os.environ, "TERM": "xterm", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
        )
        os.close(terminal)
        out, _ = process.communicate()
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            written += part
    finally:
        os.close(ours)
    return written.decode(), out


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        ("simulate FILE --json", "Reading the files …"),
        ("plan -f FILE --region mars-1", "Reading the files …"),
        ("plan --region mars-1", "Reading the cluster …"),
        ("status --region mars-1", "Reading the cluster and AWS …"),
        ("preflight x --region mars-1", "Checking the cluster and its account …"),
        ("verify x --region mars-1", "Reading the cluster and AWS …"),
        ("node-groups --region mars-1", "Reading the cluster and its node groups …"),
        ("pause x --region mars-1", "Pausing …"),
        ("resume x --region mars-1", "Resuming …"),
        ("migrate cluster-autoscaler --region mars-1", "Reading the cluster …"),
        ("migrate karpenter --region mars-1", "Reading the cluster …"),
        ("shadow report --region mars-1", "Reading the record of shadow mode …"),
        ("report --region mars-1", "Reading the cluster …"),
        ("catalog --region mars-1", "Reading instance types …"),
        ("manifests x --region mars-1", "Rendering manifests …"),
        ("demo --region mars-1", "Starting …"),
    ],
)
def test_on_a_terminal_the_first_line_says_what_the_command_does(arguments: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(PROBLEM)
    written, _ = _on_terminal(*(str(tmp_path / "file") if a == "FILE" else a for a in arguments.split()))
    assert written.startswith(first)
    assert ERASE in written
    assert "…" not in written.rsplit(ERASE, 1)[1].partition("there are")[0]


def test_where_nobody_watches_nothing_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(PROBLEM)
    done = subprocess.run(
        [*TENON, "simulate", str(tmp_path / "file"), "--json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "…" not in done.stderr
    assert done.stdout.startswith("{")


def test_a_dumb_terminal_gets_no_escape_sequences(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(PROBLEM)
    written, _ = _on_terminal("simulate", str(tmp_path / "file"), "--json", TERM="dumb")
    assert written.startswith("Reading the files …")
    assert "\x1b" not in written

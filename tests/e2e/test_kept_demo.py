"""``tenon demo --keep``: what it prints can be typed in another terminal, without credentials and flags."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from cli.demo.kept_world import KUBECONFIG
from tests.integration.cli.command import CHECKOUT, TENON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECONDS_OF_STEPS = 180


@pytest.fixture
def kept() -> Iterator[subprocess.Popen[str]]:
    """A demo that stays up after its steps, with a NodePool next to a Provisioner."""
    manifests = ["--manifest", "spot-default.yaml", "--manifest", "v1.yaml"]
    process = subprocess.Popen(
        [*TENON, "demo", "--keep", *manifests], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def printed_commands(process: subprocess.Popen[str]) -> list[list[str]]:
    """The commands that it prints once it stays up, without the assignment of KUBECONFIG."""
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    for line in lines:
        if line.startswith("  export KUBECONFIG="):
            break
    commands = []
    for line in lines:
        commands.append(line.split())
        if line.strip() == "tenon report":
            break
    return commands


def test_what_it_prints_works_in_another_terminal(kept: subprocess.Popen[str], tmp_path: Path) -> None:
    commands = printed_commands(kept)
    assert [c[:2] for c in commands][1:] == [
        ["tenon", "nodes"],
        ["tenon", "status"],
        ["tenon", "plan"],
        ["tenon", "explain"],
        ["tenon", "explain"],
        ["tenon", "report"],
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environ |= {"KUBECONFIG": str(KUBECONFIG), "HOME": str(tmp_path), "PYTHONPATH": str(CHECKOUT), "COLUMNS": "100"}
    outputs = {}
    for command in commands:
        if command[0] == "kubectl" and shutil.which("kubectl") is None:
            continue
        arguments = [*TENON, *command[1:]] if command[0] == "tenon" else command
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        outputs[" ".join(command[:3])] = done.stdout

    assert "5 pods running" in outputs["tenon nodes"]
    # Ages are those of a cluster whose time is this machine's.
    assert re.search(r" \d+[sm]  ready", outputs["tenon nodes"])
    assert "demo · " in outputs["tenon status"]
    assert re.search(r"provisioner +\d+[sm] ago", outputs["tenon status"])
    assert "Nothing to do" in outputs["tenon plan"]
    assert "NodePool default can launch nodes" in outputs["tenon explain nodepool"]
    assert (tmp_path / "report.html").stat().st_size > 0
    if shown := outputs.get("kubectl get " + commands[0][2]):
        assert shown.count("Running") == 5
        for words in ("nodeclaim.karpenter.sh/default-", "provisioner.karpenter.sh/default", "ec2nodeclass"):
            assert words in shown
        assert "invalid" not in shown  # an age in the future

    kept.send_signal(signal.SIGINT)
    assert kept.wait(timeout=60) == 0
    for _ in range(50):
        if not KUBECONFIG.exists():
            break
        time.sleep(0.1)
    assert not KUBECONFIG.exists()

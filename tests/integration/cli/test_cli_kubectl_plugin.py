"""`kubectl tenon`: the package's scripts on PATH, run as kubectl runs plugins, and by kubectl where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.command import CHECKOUT, call

if TYPE_CHECKING:
    from pathlib import Path

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed on this machine")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts as pip writes them for the package."""
    folder = tmp_path_factory.mktemp("bin")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, entry_point in project["scripts"].items():
        module, function = entry_point.split(":")
        script = folder / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n",
            encoding="utf-8",
        )
        script.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with a pod that no NodePool can run."""
    path = tmp_path_factory.mktemp("cluster") / "cluster.json"
    web = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}
    path.write_text(json.dumps({"objects": [web], "instanceTypes": []}))
    return str(path)


def run(scripts: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The command with the scripts on PATH."""
    environ = os.environ | {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "COLUMNS": "120",
    }
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)


def test_the_plugin_speaks_of_itself_as_kubectl_does(scripts: Path, cluster: str) -> None:
    done = run(scripts, "kubectl-tenon", "explain", "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: kubectl tenon explain [OPTIONS]" in done.stdout
    assert "kubectl tenon explain pod web-7d9f8-x2kq -n shop" in done.stdout
    assert "  tenon explain" not in done.stdout
    error = run(scripts, "kubectl-tenon", "explain", "pod", "none", "-f", cluster)
    assert (error.returncode, error.stderr) == (2, "kubectl tenon explain: there is no pod default/none\n")


def test_tenon_itself_stays_tenon(scripts: Path) -> None:
    done = run(scripts, "tenon", "migrate", "cluster-autoscaler", "--help")
    assert "Usage: tenon migrate cluster-autoscaler" in done.stdout
    assert "kubectl tenon" not in done.stdout


@needs_kubectl
def test_kubectl_runs_the_plugin(scripts: Path, cluster: str) -> None:
    done = run(scripts, "kubectl", "tenon", "explain", "pod", "web", "-n", "shop", "-f", cluster)
    assert done.returncode == 0, done.stderr
    assert "shop/web" in done.stdout
    error = run(scripts, "kubectl", "tenon", "node", "--once")
    assert error.returncode == 2
    assert "kubectl tenon" in error.stderr


@needs_kubectl
def test_kubectl_completes_the_plugins_commands(scripts: Path) -> None:
    def completed(*words: str) -> list[str]:
        return run(scripts, "kubectl", "__complete", "tenon", *words).stdout.split()

    assert completed("explain", "nodep") == ["nodepool", ":4"]
    assert completed("nodes", "--sort-by", "pr") == ["price", ":4"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["no"], ["nodes", "node-groups", ":4"]),
        (["explain", ""], ["pod", "node", "nodepool", "nodeclaim", "nodegroup", "nodeoverlay", "buffer", ":4"]),
        (["nodes", "--kubec"], ["--kubeconfig", ":4"]),
        (["plan", "--file", ""], [":0"]),
    ],
)
def test_words_are_completed_as_kubectl_reads_them(scripts: Path, words: list[str], expected: list[str]) -> None:
    assert run(scripts, "kubectl_complete-tenon", *words).stdout.split() == expected


def kubeconfig(path: Path) -> str:
    """A kubeconfig whose contexts fail differently."""
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    users = [{"name": name, "user": {"tokenFile": f"/none/{name}"}} for name in ("first", "second")]
    contexts = [{"name": u["name"], "context": {"cluster": "c", "user": u["name"]}} for u in users]
    config = {"current-context": "first", "clusters": clusters, "users": users, "contexts": contexts}
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    "command",
    [
        ["plan"],
        ["explain", "pod", "web"],
        ["nodes", "--once"],
        ["node-groups"],
        ["pause"],
        ["resume"],
        ["report"],
        ["rollback", "1.36"],
        ["migrate", "cluster-autoscaler"],
        ["migrate", "karpenter"],
    ],
)
def test_context_and_kubeconfig_choose_the_cluster(command: list[str], tmp_path: Path) -> None:
    config = kubeconfig(tmp_path / "config")
    for options, token in (([], "/none/first"), (["--context", "second"], "/none/second")):
        done = call(*command, "--cluster", "c", "--kubeconfig", config, *options, env={"KUBECONFIG": "/nowhere/config"})
        assert done.code == 1
        assert token in done.err
    assert os.environ.get("KUBECONFIG") != config


def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = call("nodes", "--once", "--kubeconfig", str(tmp_path / "none"))
    assert done.code == 2
    assert done.err == f"tenon nodes: --kubeconfig {tmp_path}/none: No such file or directory\n"

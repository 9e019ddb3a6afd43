"""Names of the cluster's objects are completed in bash, zsh and fish."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store
from tests.integration.cli.command import CHECKOUT, TENON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster with two nodes, a pod in each of two namespaces, and a Deployment."""
    store = Store(now=lambda: datetime.now(UTC))
    for name in ("ip-10-0-1-1.ec2.internal", "ip-10-0-2-2.ec2.internal"):
        store.create(kinds.NODES, {"metadata": {"name": name}})
    store.create(kinds.NAMESPACES, {"metadata": {"name": "shop"}})
    for namespace, name in (("default", "web-1"), ("shop", "cart-1")):
        pod = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        store.create(kinds.PODS, pod)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    store.create(kinds.DEPLOYMENTS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    with Server(store) as server:
        path = tmp_path_factory.mktemp("kubeconfig") / "config"
        path.write_text(server.kubeconfig())
        yield path


def completed(shell: str, words: str, kubeconfig: Path) -> set[str]:
    """What the shell's script gets for the last word, without descriptions."""
    protocol = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {
            "_TYPER_COMPLETE_ARGS": words,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_WORD_TO_COMPLETE": words.rpartition(" ")[2],
        },
    }
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "_TENON_COMPLETE": f"complete_{shell}", **protocol[shell]}
    done = subprocess.run(TENON, cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert not done.stderr
    text = done.stdout.replace('"', " ").replace("'", " ").replace("(", " ").replace(")", " ")
    return set(text.split())


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "expected", "left_out"),
    [
        ("tenon explain node ip-10-0-1", {"ip-10-0-1-1.ec2.internal"}, {"ip-10-0-2-2.ec2.internal"}),
        ("tenon explain pod ", {"web-1"}, {"cart-1"}),
        ("tenon explain pod shop/", {"shop/cart-1"}, {"web-1"}),
        ("tenon explain pod -n shop ca", {"cart-1"}, {"web-1"}),
        ("tenon explain no/ip-10-0-2", {"no/ip-10-0-2-2.ec2.internal"}, {"no/ip-10-0-1-1.ec2.internal"}),
        ("tenon explain pod x -n sh", {"shop"}, {"default"}),
        ("tenon plan --what-if deployment/w", {"deployment/web="}, {"deployment/"}),
    ],
)
def test_names_of_objects_complete(
    shell: str, words: str, expected: set[str], left_out: set[str], kubeconfig: Path
) -> None:
    shown = completed(shell, words, kubeconfig)
    assert expected <= shown
    assert not left_out & shown


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_cluster_nothing_completes_and_nothing_is_printed(shell: str, tmp_path: Path) -> None:
    assert not {"web-1", "Traceback"} & completed(shell, "tenon explain pod ", tmp_path / "none")


def test_contexts_complete(kubeconfig: Path) -> None:
    name = next(line for line in kubeconfig.read_text().splitlines() if "current-context" in line).split()[-1]
    assert name in completed("bash", "tenon nodes --context ", kubeconfig)

"""Every command in README is run: here, in the tests that it is named for, or (make) as far as its target goes."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.world import World, sample_objects
from local.world.hostility import of_environment
from shared.base import runtime
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.flow

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

IN_DEMO = {
    "tenon demo --json",
    "tenon demo --manifest team1.yaml --manifest spot.yaml --scale inflate-team1=3,0",
    "tenon demo --manifest team1.yaml --manifest spot.yaml --scale 'inflate*=20,5'",
    "tenon demo --interrupt spot=all",
    "tenon demo --report run.html",
}
"""Those of docs/cli.md that take seconds."""
OF_CLUSTER = {
    "tenon plan": "giant",
    "tenon plan --what-if deployment/web=50": "web",
    "tenon explain pod web-7d9f8-x2kq": "is unschedulable",
    "tenon nodes": "1 node" if of_environment() is None else "3 nodes",
    "tenon export --once": "karpenter_nodes_allocatable",
}
"""What commands on a cluster print, those of docs/cli.md too."""
BY_TARGET = {
    "make bench",
    "make demo",
    "make test",
}
"""make says what each would run; CI runs the first two whole."""
ELSEWHERE = {
    "tenon demo --keep": "tests/e2e/test_kept_demo.py::test_what_it_prints_works_in_another_terminal",
    "tenon preflight NAME": "tests/e2e/cli/test_cli_preflight.py::test_preflight_changes_nothing",
    "tenon verify NAME": "tests/e2e/cli/test_cli_verify.py::test_nothing_is_made_before_it_is_confirmed",
    "npx aws-cdk@2 deploy -c cluster=NAME": "tests/e2e/test_cdk_deploys.py",
}


def commands() -> set[str]:
    """The commands of README's code blocks, and those in the text."""
    blocks = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
    text = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    inline = [match.replace("\\|", "|") for match in re.findall(r"`((?:make|tenon|npx) [^`]+)`", text)]
    named = {line for line in [*lines, *inline] if line}
    return {line for line in named if not any(longer.startswith(f"{line} ") for longer in named)}


def test_every_command_of_the_readme_is_run() -> None:
    assert commands() <= {*OF_CLUSTER, *BY_TARGET, *ELSEWHERE}
    assert {*BY_TARGET, *ELSEWHERE} <= commands()


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 60


def test_the_demos_are_those_of_the_page() -> None:
    lines = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").splitlines()
    assert {line.partition("  #")[0].strip() for line in lines} >= IN_DEMO


@pytest.mark.long
@pytest.mark.parametrize("command", sorted(IN_DEMO))
def test_a_demo_ends_as_it_was_told(command: str, tmp_path: Path) -> None:
    run = "from cli.main import run; run()"
    done = subprocess.run(
        ["bash", "-c", command.replace("tenon", f"{ROOT / '.venv/bin/python'} -c '{run}'", 1)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "--report" not in command or (tmp_path / "run.html").stat().st_size > 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Path]]:
    """A cluster with the Deployment web, one pod that fits nowhere, and a kubeconfig."""
    with World(cluster="demo") as world:
        world.apply(
            [sample_objects.node_class(world), sample_objects.node_pool({"karpenter.sh/capacity-type": ["spot"]})]
        )
        world.apply(sample_objects.deployment("web", 3, {"cpu": "500m"}))
        world.run_until_idle()
        world.apply(sample_objects.deployment("giant", 1, {"cpu": "1000"}))
        world.run_for(timedelta(minutes=1))
        path = tmp_path_factory.mktemp("readme") / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield world, path


@pytest.mark.parametrize("command", sorted(OF_CLUSTER))
def test_a_command_on_a_cluster_succeeds(cluster: tuple[World, Path], command: str) -> None:
    world, kubeconfig = cluster
    (pod,) = [p["metadata"]["name"] for p in world.pods() if p["metadata"]["name"].startswith("giant")]
    arguments = command.replace("web-7d9f8-x2kq", pod).split()[1:]
    arguments += ["--cluster", "demo", *(["--once"] if arguments[0] == "nodes" else [])]
    with runtime.using(runtime.Runtime(environ=os.environ, now=world.clock.now, sleep=world.clock.sleep)):
        done = call(*arguments, env={"KUBECONFIG": str(kubeconfig)})
    assert done.code in {0, 1}, done.err
    assert OF_CLUSTER[command] in done.out


@pytest.mark.parametrize("command", sorted(BY_TARGET))
def test_a_target_exists(command: str) -> None:
    dry: list[Any] = ["make", "--dry-run", "--old-file=.venv/ready", *command.split()[1:]]
    done = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", sorted(ELSEWHERE))
def test_the_test_that_runs_a_command_exists(command: str) -> None:
    file, _, test = ELSEWHERE[command].partition("::")
    assert f"def {test or 'test'}" in (ROOT / file).read_text(encoding="utf-8") or file.endswith("conftest.py")

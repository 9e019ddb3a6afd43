"""The wheel, as `pipx install FILE` installs it: its commands work without a checkout, the CDK and Node.js."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.unit.code.source import ROOT
from tests.wheel import building, isolated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long
KEPT_TIMEOUT = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the repository's files and the installed packages."""
    return building.wheel(tmp_path_factory.mktemp("wheel"))


class Installed:
    """The installed command, run in a folder elsewhere by a user who has no other tools on PATH."""

    def __init__(self, commands: Path, home: Path) -> None:
        self.tenon = commands / "tenon"
        self.home = home
        self.environ = {"PATH": str(commands), "HOME": str(home), "LANG": "C.UTF-8", "COLUMNS": "120"}

    def run(self, *arguments: str, code: int = 0, **environ: str) -> str:
        """The output of a command that ends with the exit code, or what it says on standard error without one."""
        done = subprocess.run(
            [self.tenon, *arguments],
            cwd=self.home,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("user")
    (folder / "home").mkdir()
    return Installed(isolated.create(folder / "venv", wheel, extras=("demo", "export")), folder / "home")


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without extras."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "home").mkdir()
    return Installed(isolated.create(folder / "venv", wheel), folder / "home")


@pytest.fixture(scope="module")
def kubeconfig(installed: Installed) -> Iterator[Path]:
    """That of a demo that stays up."""
    process = subprocess.Popen(
        [installed.tenon, "demo", "--keep", "--scale", "inflate=2"],
        cwd=installed.home,
        env={**installed.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        yield next(installed.home / line.split("=", 1)[1].strip() for line in lines if "export KUBECONFIG=" in line)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=KEPT_TIMEOUT)


def test_it_has_the_demos_stacks_and_the_charts_and_nothing_that_needs_the_checkout(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"tenon"}
    stacks = r"tenon/sources/infra/assemblies/\w+/tenon-demo\.template\.json"
    assert len([n for n in names if re.fullmatch(stacks, n)]) == 2
    assert "tenon/cli/report/page/uplot/dist/uPlot.iife.min.js" in names
    assert "tenon/cli/report/page/uplot/LICENSE" in names
    assert "tenon/cli/demo/manifests/spot-default.yaml" in names
    assert "tenon/cli/verify/page.html" in names
    assert "tenon/local/aws/latencies.yaml" in names
    assert {"tenon/cli/cluster/local_catalog.bin", "tenon/py.typed"} <= set(names)
    assert [name for name in names if name.endswith("/licenses/NOTICE")]


def test_it_adds_one_import_package_and_its_entry_points_are_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        assert archive.read(f"{folder}/top_level.txt") == b"tenon\n"
        points = archive.read(f"{folder}/entry_points.txt").decode()
    modules = re.findall(r"= (\S+):", points)
    assert {module.partition(".")[0] for module in modules} == {"tenon"} != set()
    assert len(modules) == 3


def test_version(installed: Installed) -> None:
    assert installed.run("--version") == "tenon 0.1.0\n"


def test_demo_and_its_report(installed: Installed) -> None:
    result = json.loads(installed.run("demo", "--json", "--report", "run.html"))
    assert result["pods_scheduled"] == 5
    assert result["instances_left"] == 0
    html = (installed.home / "run.html").read_text()
    assert "uPlot" in html
    assert len(html) > 50_000


def test_demo_with_an_interruption_compares_with_a_second_cluster(installed: Installed) -> None:
    result = json.loads(installed.run("demo", "--json", "--interrupt", "spot=1", "--scale", "inflate=2"))
    assert result["interruptions"]["warned"] == 1


def test_catalog(installed: Installed) -> None:
    (entry,) = json.loads(installed.run("catalog", "m5.large", "--json"))
    assert entry["name"] == "m5.large"
    assert entry["capacity"]["cpu"] == "2"


def test_simulate(installed: Installed) -> None:
    shutil.copyfile(ROOT / "tests/scenarios/data/000-plain-10.json.gz", installed.home / "problem.json.gz")
    assert re.search(r"\d+ pods on \d+ new nodes? for", installed.run("simulate", "problem.json.gz"))


def test_plan_and_explain_of_a_demo_that_stays_up(installed: Installed, kubeconfig: Path) -> None:
    assert installed.home in kubeconfig.parents
    config = str(kubeconfig)
    assert "demo in us-east-1 · 1 node · 2 pods" in installed.run("plan", KUBECONFIG=config)
    assert "default can launch nodes" in installed.run("explain", "nodepool", "default", KUBECONFIG=config)
    assert "default" in installed.run("nodes", "--once", KUBECONFIG=config)


def test_verify_plans_for_a_demo_that_stays_up(installed: Installed, kubeconfig: Path) -> None:
    plan = json.loads(installed.run("verify", "demo", "--dry-run", "--json", KUBECONFIG=str(kubeconfig)))
    assert [step["step"] for step in plan["steps"]][:2] == ["wiring", "pool"]


def test_preflight_says_how_to_install_the_cdk(installed: Installed, kubeconfig: Path) -> None:
    findings = json.loads(installed.run("preflight", "demo", "--json", code=1, KUBECONFIG=str(kubeconfig)))
    actions = [finding["action"] for finding in findings if finding["status"] == "unknown"]
    command = "pipx install --force 'dist/tenon_eks-0.1.0-py3-none-any.whl[demo,deploy,export]'"
    assert any(command in action for action in actions)


def test_commands_work_where_an_app_has_packages_with_the_names_of_ours(installed: Installed) -> None:
    app = installed.home / "app"
    for name in ("cli", "functions", "infra", "local", "relay", "shared"):
        (app / name).mkdir(parents=True)
        (app / name / "__init__.py").write_text("raise ImportError('the package of the app')\n")
    python_path = str(app)
    assert installed.run("--version", PYTHONPATH=python_path) == "tenon 0.1.0\n"
    result = json.loads(installed.run("demo", "--json", "--scale", "inflate=1", PYTHONPATH=python_path))
    assert result["pods_scheduled"] == 1
    assert json.loads(installed.run("schema", "demo", PYTHONPATH=python_path))["title"] == "tenon demo --json"


def test_manifests_and_help(installed: Installed) -> None:
    assert "kind: CustomResourceDefinition" in installed.run("manifests", "prod")
    assert "Usage: tenon plan [OPTIONS]" in installed.run("plan", "--help")


MOST_PACKAGES, MOST_MB = 30, 120
"""Without the Kubernetes client and what only it needs."""
CLIENT_PACKAGES, CLIENT_MB = 25, 140


def test_the_core_is_small(core: Installed) -> None:
    names = isolated.distributions(core.tenon.parent)
    assert not names & {"moto", "aws-cdk-lib", "aws-lambda-powertools", "prometheus-client"}
    client = isolated.only_for("kubernetes")
    assert len(names - client) < MOST_PACKAGES, sorted(names - client)
    assert len(client) < CLIENT_PACKAGES, sorted(client)
    size = isolated.size(core.tenon.parent)
    size_of_client = sum(map(isolated.size_of, client))
    assert size - size_of_client < MOST_MB * 1_000_000
    assert size_of_client < CLIENT_MB * 1_000_000


def test_the_core_reads_files_without_aws(core: Installed) -> None:
    shutil.copyfile(ROOT / "cli/demo/manifests/spot-default.yaml", core.home / "app.yaml")
    assert "Usage: tenon nodes" in core.run("nodes", "--help")
    assert "app.yaml · 0 nodes" in core.run("plan", "--file", "app.yaml")
    assert "default can launch nodes" in core.run("explain", "nodepool", "default", "--file", "app.yaml")
    assert "Usage: tenon migrate" in core.run("migrate", "--help")
    assert "kind: CustomResourceDefinition" in core.run("manifests", "prod")
    assert json.loads(core.run("schema", "plan"))["title"] == "tenon plan --json"
    (entry,) = json.loads(core.run("catalog", "m5.large", "--json"))
    assert entry["name"] == "m5.large"
    shutil.copyfile(ROOT / "tests/scenarios/data/000-plain-10.json.gz", core.home / "problem.json.gz")
    assert re.search(r"\d+ pods on \d+ new nodes? for", core.run("simulate", "problem.json.gz"))


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        ("demo", "moto", "demo"),
        ("template prod", "aws_cdk", "deploy"),
        ("publish prod --bucket b", "aws_cdk", "deploy"),
        ("export --once", "prometheus_client", "export"),
        ("catalog --region eu-west-1", "moto", "demo"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(core: Installed, arguments: str, module: str, extra: str) -> None:
    said = core.run(*arguments.split(), code=1)
    assert said.startswith(f"tenon {arguments.split(maxsplit=1)[0]}: ")
    assert f"needs {module}, which isn't installed: pipx install --force 'dist/tenon_eks-" in said
    assert said.endswith(f"-py3-none-any.whl[{extra}]'\n")
    assert said.count("\n") == 1

"""A newcomer's way: recipes and commands of getting-started and tasks, in the pages' order, and what comes of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local.kubernetes import kinds
from local.world import Options, World
from shared.api import labels as names
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.test_getting_started import MINUTE, labels, manifests, node_of
from tests.e2e.world_state import capacity_buffer, events
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_A_KEPT_WORLD = pytest.mark.long
"""Each takes 5 to 30 s."""
DOCS = Path(__file__).parents[2] / "docs"
MONDAY_MORNING = datetime(2026, 11, 23, 1, 0, tzinfo=UTC)
"""Ten o'clock in Seoul, in the office hours of the recipe."""
ARCH = "kubernetes.io/arch"
HERE = {
    "kubectl get nodepools,ec2nodeclasses",
    "kubectl wait --for=condition=Ready nodeclaim --all",
    "tenon status --cluster NAME",
    'tenon pause NAME --for 2h --reason "database upgrade"',
    "tenon resume NAME",
    "kubectl annotate nodepool general tenon.sh/paused=true",
    "kubectl delete nodeclaim NAME",
    "tenon explain buffer office-hours",
    "tenon plan --what-if deployment/web=50",
    "tenon plan -f new-workload.yaml",
    "tenon simulate cluster.yaml workload.yaml",
}
FOLLOWED = "tests/e2e/test_getting_started.py"
ELSEWHERE = {
    "make demo": "tests/e2e/test_demo_command.py",
    "make setup": ".ci/run",
    "tenon demo --keep": "tests/e2e/test_kept_demo.py",
    "tenon demo --kubeconfig FILE": "tests/real",
    "tenon preflight NAME": "tests/e2e/cli/test_cli_preflight.py",
    "tenon verify NAME": "tests/e2e/cli/test_cli_verify.py",
    "tenon manifests NAME": "tests/e2e/test_manifests.py",
    "npx aws-cdk@2 bootstrap -c cluster=NAME": "tests/e2e/test_cdk_deploys.py",
    "npx aws-cdk@2 deploy -c cluster=NAME": "tests/e2e/test_cdk_deploys.py",
    "npx aws-cdk@2 deploy -c cluster=NAME -c mode=shadow": "tests/e2e/shadow",
    "kubectl create deployment inflate --image=registry.k8s.io/pause:3.10 --replicas=5": FOLLOWED,
    "kubectl set resources deployment inflate --requests=cpu=1": FOLLOWED,
    "kubectl get nodeclaims -o wide -w": "tests/e2e/test_kubectl_columns.py",
}
"""Run by other tests, which assert what they do."""
OF_AWS = "aws ec2 create-tags"
"""The local world's subnets have the tag."""


def commands(page: str) -> set[str]:
    """The commands in a page's blocks and text; of the command line's names alone (`tenon plan`) the page is cli.md."""
    text = (DOCS / page).read_text(encoding="utf-8")
    fenced = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    blocks = "".join(block for language, block in fenced if not language).replace("\\\n", "")
    lines = [line.partition(" #")[0].strip() for line in blocks.splitlines()]
    inline = re.findall(r"`((?:make|tenon|npx|kubectl|aws) [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    given = {" ".join(line.split()) for line in [*lines, *inline]}
    return {line for line in given if len(line.split()) > 2 or line.startswith("make")}


@pytest.mark.flow
def test_every_command_of_the_pages_is_run() -> None:
    given = commands("getting-started.md") | commands("tasks.md")
    assert {line for line in given if not line.startswith(OF_AWS)} == {*HERE, *ELSEWHERE}
    assert [path for path in ELSEWHERE.values() if not (DOCS.parent / path).exists()] == []


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": name, "image": "example.com/a:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def web(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster with the guide's first pool and three pods of the Deployment web, kept for all tests."""
    with World(cluster=CLUSTER, options=Options(start=MONDAY_MORNING)) as world:
        world.apply(manifests("getting-started.md", "The first pool"))
        path = tmp_path_factory.mktemp("newcomer") / "kubeconfig"
        path.write_text(world.kubectl_config())
        world.apply(web(3))
        world.run_for(5 * MINUTE)
        yield Shell(world, path)


def kubectl(shell: Shell, command: str) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed on this machine")
    environ = {"KUBECONFIG": str(shell.kubeconfig), "HOME": str(shell.kubeconfig.parent), "PATH": os.environ["PATH"]}
    done = subprocess.run(shlex.split(command), env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def of_pool(shell: Shell, pool: str, **spec: Any) -> dict[str, str]:
    """Start a pod that names the pool; the labels of its node."""
    shell.world.apply(pod(f"in-{pool}", nodeSelector={names.NODEPOOL: pool}, **spec))
    return node(shell, f"in-{pool}")


def node(shell: Shell, name: str) -> dict[str, str]:
    shell.world.run_until(lambda: bool(node_of(shell.world, name)), limit=10 * MINUTE)
    return labels(shell.world)[node_of(shell.world, name)]


def running_web(shell: Shell) -> int:
    return sum(p["metadata"].get("labels", {}).get("app") == "web" for p in shell.world.pods(phase="Running"))


@IN_A_KEPT_WORLD
def test_the_first_pods_get_nodes_whose_events_say_type_and_price(shell: Shell) -> None:
    shown = kubectl(shell, "kubectl get nodepools,ec2nodeclasses")
    assert shown.count("True") == 2, shown
    assert "condition met" in kubectl(shell, "kubectl wait --for=condition=Ready nodeclaim --all")
    status = shell.tenon("status")
    assert (status.code, status.lines[0]) == (0, f"{CLUSTER} · healthy")
    launched = events(shell.world, "Launched")[0]
    assert re.search(r"\b[cmr]\d\w*\.\w+\b", launched["message"]), launched
    assert "spot" in launched["message"]
    assert re.search(r"\$0\.\d+", launched["message"]), launched
    assert events(shell.world, "Nominated")


@IN_A_KEPT_WORLD
def test_spot_first_has_five_families_to_choose_from(shell: Shell) -> None:
    shell.world.apply(manifests("tasks.md", "Run on spot, with on-demand as the second choice"))
    assert of_pool(shell, "spot")[names.CAPACITY_TYPE] == "spot"


@IN_A_KEPT_WORLD
def test_a_teams_nodes_take_its_pods_only(shell: Shell) -> None:
    shell.world.apply(manifests("tasks.md", "Give a team nodes of its own"))
    taint = {"key": "example.com/team", "value": "data", "effect": "NoSchedule"}
    of = of_pool(shell, "team-data", tolerations=[{**taint, "operator": "Equal"}])
    assert (of["example.com/team"], of[names.CAPACITY_TYPE]) == ("data", "on-demand")
    (tainted,) = [n for n in shell.world.nodes() if n["metadata"]["labels"].get("example.com/team") == "data"]
    assert taint in tainted["spec"]["taints"]
    shell.world.apply(pod("stranger", nodeSelector={"example.com/team": "data"}))
    shell.world.run_for(2 * MINUTE)
    assert node_of(shell.world, "stranger") == ""
    assert any("example.com/team" in e["message"] for e in events(shell.world, "FailedScheduling", name="stranger"))
    shell.world.store.delete(kinds.PODS, "stranger", namespace="default")


@IN_A_KEPT_WORLD
def test_an_image_for_amd64_alone_gets_an_amd64_node_and_the_pool_allows_arm64(shell: Shell) -> None:
    pool, amd64_only, portable = manifests("tasks.md", "Use both architectures")
    for each in (amd64_only, portable):
        each["spec"].setdefault("nodeSelector", {})[names.NODEPOOL] = "both"  # rather than the first pool
    shell.world.apply([pool, portable])
    assert node(shell, "portable")[ARCH] == "arm64"  # which is cheaper
    shell.world.apply(amd64_only)
    assert node(shell, "amd64-only")[ARCH] == "amd64"


@IN_A_KEPT_WORLD
def test_without_a_reservation_the_reserved_pool_launches_on_demand(shell: Shell) -> None:
    shell.world.apply(manifests("tasks.md", "Use capacity reservations"))
    assert of_pool(shell, "reserved")[names.CAPACITY_TYPE] == "on-demand"


@IN_A_KEPT_WORLD
def test_room_is_there_in_office_hours(shell: Shell) -> None:
    shell.world.apply(manifests("tasks.md", "Over-provision by the clock"))
    shell.world.run_for(5 * MINUTE)
    status = capacity_buffer(shell.world, "office-hours")["status"]
    assert status["replicas"] == 10
    assert {c["type"]: c["reason"] for c in status["conditions"]}["Provisioning"] == "FitsExistingCapacity"
    shown = shell.tenon("explain", "buffer", "office-hours")
    assert shown.code == 0, shown.err
    assert "10" in shown.out
    buffer = manifests("tasks.md", "Over-provision by the clock")[0]
    kind = shell.world.store.kind(buffer["apiVersion"], buffer["kind"])
    shell.world.store.delete(kind, "office-hours", namespace="default")


@IN_A_KEPT_WORLD
def test_nothing_is_launched_while_the_cluster_is_paused(shell: Shell) -> None:
    assert shell.tenon("pause", CLUSTER, "--for", "2h", "--reason", "database upgrade").code == 0
    before = len(shell.world.claims())
    shell.world.apply(web(30))
    shell.world.run_for(3 * MINUTE)
    assert len(shell.world.claims()) == before
    assert any("database upgrade" in e["message"] for e in events(shell.world, "FailedScheduling"))
    assert shell.tenon("resume", CLUSTER).code == 0
    shell.world.run_until(lambda: running_web(shell) == 30)


@IN_A_KEPT_WORLD
def test_a_paused_pool_says_so(shell: Shell) -> None:
    kubectl(shell, "kubectl annotate nodepool default tenon.sh/paused=true")
    shell.world.run_for(2 * MINUTE)
    assert "paused" in shell.tenon("explain", "nodepool", "default").out
    kubectl(shell, "kubectl annotate nodepool default tenon.sh/paused-")


@IN_A_KEPT_WORLD
def test_a_deleted_nodeclaim_goes_and_its_pods_run_elsewhere(shell: Shell) -> None:
    before = running_web(shell)
    claim = next(c for c in shell.world.claims() if c["metadata"]["labels"][names.NODEPOOL] == "default")
    name, gone = claim["metadata"]["name"], claim["status"]["nodeName"]
    kubectl(shell, f"kubectl delete nodeclaim {name} --wait=false")
    shell.world.run_until(lambda: name not in {c["metadata"]["name"] for c in shell.world.claims()}, limit=20 * MINUTE)
    assert gone not in labels(shell.world)
    shell.world.run_until(lambda: running_web(shell) == before)


@IN_A_KEPT_WORLD
def test_what_something_would_cost_is_said_before_it_runs(shell: Shell, tmp_path: Path) -> None:
    planned = shell.tenon("plan", "--what-if", "deployment/web=50")
    assert re.search(r"\$\d+\.\d+", planned.out), planned.err
    new = [{**web(4), "metadata": {"name": "new", "namespace": "default"}}]
    files = {"new-workload.yaml": new, "cluster.yaml": manifests("getting-started.md", "The first pool")}
    for file, objects in files.items():
        (tmp_path / file).write_text(yaml.safe_dump_all(objects))
    planned = shell.tenon("plan", "-f", str(tmp_path / "new-workload.yaml"))
    assert "new" in planned.out, planned.err
    simulated = call("simulate", str(tmp_path / "cluster.yaml"), str(tmp_path / "new-workload.yaml"))
    assert simulated.code == 0, simulated.err
    assert re.search(r"\b[cmr]\d\w*\.\w+\b", simulated.out), simulated.out

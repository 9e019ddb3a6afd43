"""What commands print with --json follows their schemas; `call` checks it, in every other test of a command, too.

So are `migrate` in test_cli_migrate.py, `shadow report` in test_shadow_report.py, and the demo in test_demo_command.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.json_output import VERSIONS
from local.world import World
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.cli.test_cli_node_groups import auto_scaling_group
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster with running pods, a pending one, and a node group."""
    folder = tmp_path_factory.mktemp("shell")
    with World(cluster=CLUSTER) as world:
        shell = Shell(world, folder / "kubeconfig")
        shell.kubeconfig.write_text(world.kubectl_config())
        auto_scaling_group(shell, "licences", tags={})
        world.apply("cli/demo/manifests/spot-default.yaml")
        world.scale("default", "inflate", 3)
        world.run_until_idle()
        yield shell


@pytest.mark.parametrize(
    "arguments",
    [
        "nodes -L team",
        "plan --what-if deployment/inflate=40",
        "plan --without spot",
        "explain nodepool default",
        "explain node NODE",
        "explain nodeclaim CLAIM",
        "node-groups",
        "status",
        "preflight",
        "pause --for 2h",
        "status ",
        "resume",
    ],
)
def test_what_is_read_of_a_cluster_follows_its_schema(arguments: str, shell: Shell) -> None:
    (node, *_), (claim, *_) = shell.world.nodes(), shell.world.claims()
    words = [
        {"NODE": node["metadata"]["name"], "CLAIM": claim["metadata"]["name"]}.get(a, a) for a in arguments.split()
    ]
    if words == ["preflight"]:
        done = call("preflight", CLUSTER, "--region", "us-east-1", "--json", env={"KUBECONFIG": str(shell.kubeconfig)})
    else:
        done = shell.tenon(*words, "--json")
    assert done.code in {0, 1}, done.err
    assert done.json
    if isinstance(done.json, dict):
        assert done.json["schemaVersion"] == VERSIONS[words[0]]

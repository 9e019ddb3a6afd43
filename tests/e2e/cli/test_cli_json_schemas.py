"""What commands print with --json follows their schemas; `call` checks it, in every other test of a command, too.

So are `migrate` in test_cli_migrate.py, `shadow report` in test_shadow_report.py, and the demo in test_demo_command.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from cli.json_output import VERSIONS
from local.world import World
from tests.e2e.cli.conftest import CLUSTER, Shell, call
from tests.e2e.cli.output_schema import assert_follows_schema
from tests.e2e.cli.test_cli_node_groups import auto_scaling_group

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def test_what_needs_no_cluster_follows_its_schema() -> None:
    assert call("catalog", "m5.large", "g5.xlarge", "--json").json
    assert call("simulate", "cli/demo/manifests/spot-default.yaml", "--json").json["nodeClaims"] == []


def test_a_field_that_the_schema_lacks_is_noticed() -> None:
    printed = {"schemaVersion": 1, "cluster": "c", "paused": True, "message": ""}
    assert_follows_schema(["pause", "--json"], json.dumps(printed))
    for wrong in ({**printed, "more": 1}, {"schemaVersion": 1}, {**printed, "schemaVersion": 2}):
        with pytest.raises(jsonschema.ValidationError):
            assert_follows_schema(["pause", "--json"], json.dumps(wrong))


def test_the_schema_is_printed() -> None:
    printed = call("schema", "shadow", "report").json
    assert printed["title"] == "tenon shadow report --json"
    assert call("schema").lines == [f"{name}: version {version}" for name, version in VERSIONS.items()]
    wrong = call("schema", "node")
    assert wrong.code == 2
    assert wrong.err == 'tenon schema: no command "node" prints JSON; the nearest is "nodes"\n'

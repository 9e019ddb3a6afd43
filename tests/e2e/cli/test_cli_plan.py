"""`tenon plan` for a live cluster, which then does what was planned; it writes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from local.faults import Fault
from tests.integration.cli.test_cli_errors import assert_one_line_error

if TYPE_CHECKING:
    from local.world import World
    from tests.e2e.cli.conftest import Shell

READING = ("Describe", "Get", "List", "Query", "Head")


def _state(world: World) -> Any:
    version = max(int(o["metadata"]["resourceVersion"]) for o in [*world.pods(), *world.nodes(), *world.claims()])
    return version, [i.id for i in world.instances()], world.aws.queues.empty()


def test_in_a_live_cluster_it_plans_and_changes_nothing(shell: Shell) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    before, calls = _state(world), len(world.timeline.of("call"))
    result = shell.tenon("plan", "--what-if", "deployment/inflate=12", "--json")
    assert result.code == 0, result.err
    plain = result.json
    assert plain["cluster"] == "demo in us-east-1"
    assert (
        sum(len(c["pods"]) for c in plain["launches"]["nodeClaims"])
        + sum(len(p) for p in plain["launches"]["existingNodes"].values())
        == 7
    )
    assert {c["cheapest"]["capacityType"] for c in plain["launches"]["nodeClaims"]} == {"spot"}
    shown = shell.tenon("plan", "--what-if", "deployment/inflate=12").out
    assert re.search(r"volumes: \$0\.\d+/h more, which decisions count", shown)
    assert re.search(r"volumes +\$0\.\d+/h a node", shell.tenon("explain", "nodepool", "default").out)
    lost = shell.tenon("plan", "--without", "spot")
    assert lost.code == 0, lost.err
    assert "Can't schedule 5 pods" in lost.out
    world.settle()
    assert _state(world) == before
    assert all(h.name.split()[1].startswith(READING) for h in world.timeline.of("call")[calls:])


@pytest.mark.flow
def test_the_cluster_does_what_was_planned(shell: Shell) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.run_until_idle()
    planned = shell.tenon("plan", "--what-if", "deployment/inflate=5", "--json").json
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    machines = sorted((c["cheapest"]["instanceType"], len(c["pods"])) for c in planned["launches"]["nodeClaims"])
    labels = [node["metadata"]["labels"] for node in world.nodes()]
    assert (
        sorted(
            (node_labels["node.kubernetes.io/instance-type"], len(world.pods(node=node["metadata"]["name"])))
            for node_labels, node in zip(labels, world.nodes(), strict=True)
        )
        == machines
    )


def test_a_denied_aws_action_is_named(shell: Shell) -> None:
    denied = Fault(
        code="AccessDeniedException",
        message="User: arn:aws:iam::1:user/me is not authorized to perform: lambda:GetFunctionConfiguration on x",
    )
    shell.world.faults.inject_aws("lambda", "GetFunctionConfiguration", denied, times=10)
    assert_one_line_error(shell.tenon("plan"), "plan", "AWS denies lambda:GetFunctionConfiguration", "docs/cli.md")

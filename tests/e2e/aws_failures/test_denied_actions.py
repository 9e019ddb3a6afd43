"""Each action of each function's role is denied by itself, under load: nothing is lost, and something says so.

``python -m pytest -n 0 -m long -s tests/e2e/aws_failures/test_denied_actions.py`` prints where each denial is reported.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds
from shared.base import metrics
from tests.e2e.aws_failures.conditions import MINUTE, assert_nothing_lost_or_doubled, small_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from local.kubernetes.objects import Obj
    from local.world import World

FUNCTIONS = ("provisioner", "lifecycle", "disruption", "termination", "interruption", "catalog")
"""The relay has one right, PutEvents: test_dependencies_away.py."""
NOT_CALLED_BY_CODE = ("logs:", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""Lambda's own calls with the role: without them it logs nothing, or receives nothing (SQS away)."""
WRITES = {
    "provisioner": ("ec2:CreateFleet", "ec2:CreateLaunchTemplate", "iam:PassRole"),
    "lifecycle": ("ec2:DescribeInstances", "sqs:SendMessage"),
    "termination": ("ec2:TerminateInstances", "ec2:DescribeInstances", "sqs:SendMessage"),
    "interruption": ("ec2:CreateFleet", "ec2:DescribeSpotInstanceRequests", "sqs:SendMessage"),
    "disruption": ("sqs:SendMessage",),
}
"""What moves instances and messages: tried in each run, everything else in the long one."""
_NODE_CLASS = ("karpenter.k8s.aws/v1", "EC2NodeClass")
_DENIED = ("not authorized", "denied", "lacks that permission")


def actions_of(world: World, caller: str) -> list[str]:
    statements = world.aws.enforcement.statements(caller)
    actions = {str(action) for statement in statements for action in statement.actions}
    return sorted(a for a in actions if not a.startswith(NOT_CALLED_BY_CODE))


def deny(world: World, caller: str, action: str) -> None:
    """Deny the action from now on; the function begins with a new process, which remembers nothing."""
    world.aws.enforcement.deny(caller, action)
    world.aws.functions._idle.clear()


def allow_again(world: World) -> None:
    world.aws.enforcement.enforce(world.aws.deployed.role_names())


def load(world: World) -> None:
    """Pods come, an instance is interrupted, and pods go: three minutes."""
    world.scale("default", "web", 6)
    world.interrupt_spot([world.instances()[0].id])
    world.run_for(timedelta(seconds=150))
    world.scale("default", "web", 4)
    world.run_for(MINUTE)


def says(world: World, since: datetime) -> list[str]:
    """Where the denial is reported since then: the kinds of objects, the functions' logs and errors, dead letters."""
    reported = {
        f"event of a {e['involvedObject']['kind']}" for e in _recent_events(world, since) if _tells(e["message"])
    }
    for api_version, kind in (("karpenter.sh/v1", "NodePool"), ("karpenter.sh/v1", "NodeClaim"), _NODE_CLASS):
        for obj in world.store.list(world.store.kind(api_version, kind)):
            conditions = obj.get("status", {}).get("conditions", ())
            reported |= {f"condition {c['type']} of the {kind}" for c in conditions if _tells(c.get("message", ""))}
    for invocation in world.aws.functions.invocations:
        if invocation.at >= since:
            reported |= {f"log of {invocation.function}"} if _tells(json.dumps(invocation.logs)) else set()
            reported |= {"alarm"} if any(metrics.UNWELL in line for line in invocation.metrics) else set()
    return sorted(reported | ({"dead letters"} if world.dead_letters() else set()))


def _recent_events(world: World, since: datetime) -> Iterable[Obj]:
    stamp = since.strftime("%Y-%m-%dT%H:%M:%S")
    return [e for e in world.store.list(kinds.EVENTS) if str(e.get("lastTimestamp") or "") >= stamp]


def _tells(text: str) -> bool:
    return any(word in text for word in _DENIED)


def try_without(world: World, caller: str, action: str) -> str:
    """A line of the table: what is reported while the action is denied; asserts that nothing was lost or doubled."""
    began, denied = world.clock.now(), len(world.aws.enforcement.denied)
    deny(world, caller, action)
    load(world)
    reported = says(world, began) if len(world.aws.enforcement.denied) > denied else ["not called"]
    allow_again(world)
    world.run_for(7 * MINUTE)
    world.expect_denials()
    assert_nothing_lost_or_doubled(world, pods=4)
    assert reported, f"nothing says that {caller} may not call {action}"
    return f"| {caller} | {action} | {', '.join(reported)} |"


@pytest.mark.calm_world
@pytest.mark.parametrize(("caller", "action"), [(caller, a) for caller, actions in WRITES.items() for a in actions])
def test_without_a_right_that_moves_instances_or_messages_nothing_is_lost(
    world: World, caller: str, action: str
) -> None:
    small_cluster(world, 4)
    try_without(world, caller, action)


@pytest.mark.long
@pytest.mark.calm_world
@pytest.mark.parametrize("caller", FUNCTIONS)
def test_without_each_right_of_a_function_nothing_is_lost(world: World, caller: str) -> None:
    small_cluster(world, 4)
    for action in actions_of(world, caller):
        sys.stdout.write(f"{try_without(world, caller, action)}\n")

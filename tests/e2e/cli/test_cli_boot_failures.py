"""Machines that die at boot: few launches, and the reason where users look."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.aws.ec2_instances import INTERNAL_ERROR, INVALID_KMS_KEY
from local.world import sample_objects
from tests.e2e.test_eventual_consistency import ONE_PER_NODE
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World
    from tests.e2e.cli.conftest import Shell

KEY = "arn:aws:kms:us-east-1:123456789012:key/1a2b3c4d-aaaa-bbbb-cccc-1234567890ab"


def three_pods_on_their_own_nodes(world: World) -> None:
    volume = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "encrypted": True, "kmsKeyID": KEY}}
    node_class = sample_objects.node_class(world)
    node_class["spec"]["blockDeviceMappings"] = [volume]
    world.apply([node_class, sample_objects.node_pool({})])
    deployment = sample_objects.deployment("inflate", 3, {"cpu": "700m", "memory": "256Mi"})
    deployment["spec"]["template"]["spec"]["affinity"] = ONE_PER_NODE
    world.apply([deployment])


@pytest.mark.parametrize(
    "reason", [INVALID_KMS_KEY, pytest.param(INTERNAL_ERROR, marks=pytest.mark.long)], ids=["key", "error"]
)
def test_machines_that_die_at_boot_cause_few_launches_and_the_pod_says_why(
    shell: Shell, reason: tuple[str, str]
) -> None:
    world = shell.world
    world.aws.instances.fail_starts("*", "*", 10_000, reason=reason)
    three_pods_on_their_own_nodes(world)
    world.run_for(timedelta(hours=1))
    assert 3 <= len(world.aws.instances.all) <= 12
    (node_class,) = world.store.list(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"))
    condition = next(c for c in node_class["status"]["conditions"] if c["type"] == "BootSucceeded")
    assert condition["status"] == "False"
    assert reason[0] in condition["message"]
    messages = [e["message"] for e in events(world, "BootFailed")]
    assert any(reason[0] in message for message in messages)
    shown = shell.tenon("explain", "pod", f"default/{world.pods()[0]['metadata']['name']}").out
    assert reason[0] in shown
    assert KEY in " ".join(shown.split())
    assert "kms:CreateGrant" in shown

    # The unused launch template was deleted meanwhile, and is created again.
    world.aws.instances.fail_starts("*", "*", 0)
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=timedelta(minutes=30))


def test_machines_that_die_before_ec2_shows_them_cause_few_launches_too(shell: Shell) -> None:
    world = shell.world
    world.aws.consistency.lag = world.aws.consistency.tag_lag = timedelta(seconds=5)
    world.aws.instances.fail_starts("*", "*", 10_000, reason=INVALID_KMS_KEY)
    three_pods_on_their_own_nodes(world)
    world.run_for(timedelta(minutes=10))
    assert 3 <= len(world.aws.instances.all) <= 6
    assert events(world, "BootFailed")
    world.expect_denials()


def test_once_a_machine_boots_the_other_pods_get_nodes_at_once(shell: Shell) -> None:
    world = shell.world
    world.aws.instances.fail_starts("*", "*", 4, reason=INVALID_KMS_KEY)
    three_pods_on_their_own_nodes(world)
    # How many trials fail, and so how long the NodePool waits, depends on how many machines the first round launches.
    world.run_until(lambda: len(world.pods(phase="Running")) >= 1, limit=timedelta(minutes=30))
    world.run_until(lambda: len(world.pods(phase="Running")) == 3, limit=timedelta(seconds=90))
    assert len(world.aws.instances.all) == 4 + 3

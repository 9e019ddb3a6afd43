"""The circuit breaker: launches that fail, or machines that never join, pause launches until one joins."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.faults import Fault
from local.kubelets.behavior import MachineBehavior
from local.world import Options, World, sample_objects
from tests.e2e.cli.conftest import Shell
from tests.e2e.interruptions.environment import deployment
from tests.e2e.test_eventual_consistency import ONE_PER_NODE
from tests.e2e.test_pause import condition
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.kubelets.machine import Machine

HOUR = timedelta(hours=1)


class Boots:
    """Whether machines of these instance types join."""

    def __init__(self, *never: str) -> None:
        self.never = set(never)

    def __call__(self, machine: Machine) -> MachineBehavior:
        never = "*" in self.never or machine.instance_type in self.never
        return MachineBehavior(never_joins=never)


def pool(name: str, instance_type: str, node_class: str = "default", weight: int = 1) -> dict[str, Any]:
    requirements = {"node.kubernetes.io/instance-type": [instance_type], "karpenter.sh/capacity-type": ["on-demand"]}
    created = sample_objects.node_pool(requirements, name=name)
    created["spec"]["weight"] = weight
    created["spec"]["template"]["spec"]["nodeClassRef"]["name"] = node_class
    return created


def spread(replicas: int) -> dict[str, Any]:
    workload = deployment("web", replicas)
    workload["spec"]["template"]["spec"]["affinity"] = ONE_PER_NODE
    return workload


@contextmanager
def opened(tmp_path: Path, boots: Boots) -> Iterator[Shell]:
    with World(cluster="demo", options=Options(behavior=boots)) as world:
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)


def launched(world: World) -> int:
    return len(world.aws.instances.all)


@pytest.mark.flow
def test_machines_that_never_join_open_it_it_tries_one_and_closes_when_that_joins(tmp_path: Path) -> None:
    boots = Boots("*")
    with opened(tmp_path, boots) as shell:
        world = shell.world
        world.apply([sample_objects.node_class(world), pool("default", "m5.large"), spread(3)])
        world.run_until(lambda: condition(world) is not None, limit=timedelta(minutes=19))
        first = launched(world)
        assert first in {2, 3}
        stated = condition(world)
        assert stated is not None
        assert stated["reason"] == "CircuitBreakerOpen"
        assert "did not register within" in stated["message"]
        assert "launches are tried again at" in stated["message"]
        assert events(world, "CircuitBreakerOpen", kind="NodePool")
        assert any("did not register" in e["message"] for e in events(world, "FailedScheduling", kind="Pod"))
        world.run_for(HOUR)
        assert first < launched(world) <= first + 3  # one at a time, each after a longer wait
        assert len(world.instances()) <= 1
        world.redeliver()
        boots.never.clear()
        world.run_until(lambda: len(running(world)) == 3, limit=HOUR)
        world.run_for(timedelta(minutes=2))
        assert condition(world) is None
        assert events(world, "Resumed", kind="NodePool")


def test_resume_closes_it_at_once(tmp_path: Path) -> None:
    boots = Boots("*")
    with opened(tmp_path, boots) as shell:
        world = shell.world
        world.apply([sample_objects.node_class(world), pool("default", "m5.large"), spread(3)])
        world.run_for(timedelta(minutes=50))
        boots.never.clear()
        assert "circuit breaker of NodePool default is closed" in shell.tenon("resume", "demo").out
        world.run_until(lambda: len(running(world)) == 3, limit=timedelta(minutes=5))


def test_one_machine_of_many_that_does_not_join_does_not_open_it(tmp_path: Path) -> None:
    boots = Boots("m5.large")
    with opened(tmp_path, boots) as shell:
        world = shell.world
        requirements = {"karpenter.sh/capacity-type": ["on-demand"]}
        both = sample_objects.node_pool(
            {**requirements, "node.kubernetes.io/instance-type": ["m5.large", "m5.xlarge"]}, name="default"
        )
        world.apply([sample_objects.node_class(world), both, spread(1)])
        world.run_until(lambda: launched(world) == 1)
        boots.never.clear()
        world.scale("default", "web", 4)
        world.run_for(timedelta(minutes=20))
        assert len(running(world)) == 4
        assert condition(world) is None
        assert not events(world, "CircuitBreakerOpen", kind="NodePool")


def test_other_pools_launch_unless_several_node_classes_fail(tmp_path: Path) -> None:
    with opened(tmp_path, Boots("m5.large")) as shell:
        world = shell.world
        second = sample_objects.node_class(world)
        second["metadata"]["name"] = "second"
        pools = [pool("default", "m5.large", weight=10), pool("fallback", "m5.xlarge", "second")]
        world.apply([sample_objects.node_class(world), second, *pools, spread(2)])
        world.run_until(lambda: len(running(world)) == 2, limit=timedelta(minutes=25))
        assert condition(world, "fallback") is None


@pytest.mark.long
def test_all_pools_wait_when_several_node_classes_fail_and_one_launch_is_tried(tmp_path: Path) -> None:
    boots = Boots("*")
    with opened(tmp_path, boots) as shell:
        world = shell.world
        classes = []
        for name in ("default", "second", "third"):
            node_class = sample_objects.node_class(world)
            node_class["metadata"]["name"] = name
            classes.append(node_class)
        pools = [
            pool("default", "m5.large", weight=30),
            pool("fallback", "m5.xlarge", "second", weight=20),
            pool("last", "m5.2xlarge", "third", weight=10),
        ]
        world.apply([*classes, *pools, spread(3)])
        world.run_for(timedelta(minutes=35))
        stated = condition(world, "last")
        assert stated is not None
        assert "launches of several node classes fail" in stated["message"]
        before = launched(world)
        world.run_for(timedelta(minutes=30))
        assert launched(world) - before <= 3
        assert len(world.instances()) <= 1
        boots.never.clear()
        world.run_until(lambda: len(running(world)) == 3, limit=HOUR)


def test_lack_of_capacity_does_not_open_it(tmp_path: Path) -> None:
    with opened(tmp_path, Boots()) as shell:
        world = shell.world
        world.apply([sample_objects.node_class(world), pool("default", "m5.large")])
        world.aws.capacity.set("on-demand", "*", "*", 0)
        world.apply([spread(2)])
        world.run_for(timedelta(minutes=30))
        assert condition(world) is None
        world.aws.capacity.set("on-demand", "*", "*", 100)
        world.run_until(lambda: len(running(world)) == 2, limit=timedelta(minutes=5))


def test_launches_that_ec2_refuses_open_it(tmp_path: Path) -> None:
    with opened(tmp_path, Boots()) as shell:
        world = shell.world
        world.apply([sample_objects.node_class(world), pool("default", "m5.large")])
        refused = Fault(code="UnauthorizedOperation", status=403)
        world.faults.inject_aws("ec2", "CreateFleet", refused, times=10_000)
        world.apply([spread(2)])
        world.run_for(timedelta(minutes=8))
        stated = condition(world)
        assert stated is not None
        assert stated["reason"] == "CircuitBreakerOpen"
        assert "not launched within" in stated["message"]

"""A thousand random walks of node groups: whatever happens, the sizes that users set hold.

Pods come and go, launches fail, zones are rebalanced, users change sizes, and Auto Scaling's answers are up to a minute
old, while nodes are added by shared.node_groups and removed by functions.nodegroups.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from shared.api.kubernetes import Node
from shared.node_groups import group_state
from shared.node_groups.group_pools import ScaleUp
from shared.node_groups.group_state import GroupState
from shared.node_groups.node_group import GroupInstance, NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.scale_down import member_nodes, plan_scale_down, taint_time, timed_taint
from shared.node_groups.status import REMOVED_TAINT
from shared.snapshot import Snapshot

START = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS = NodeGroupOptions(scale_down_unneeded_time=timedelta(minutes=1), scale_down_delay_after_add=timedelta())
ZONES = ("us-east-1a", "us-east-1b")


@dataclass
class Group:
    """An Auto Scaling group, as AWS keeps it, and its answers of the last minute."""

    minimum: int
    maximum: int
    desired: int
    instances: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[datetime, NodeGroup]] = field(default_factory=list)
    launched: int = 0

    def set_desired(self, desired: int) -> None:
        assert self.minimum <= desired <= self.maximum
        self.desired = desired

    def terminate(self, instance: str) -> None:
        assert self.desired > self.minimum
        del self.instances[instance]
        self.desired -= 1

    def launch(self, rng: random.Random) -> None:
        self.launched += 1
        self.instances[f"i-{self.launched}"] = rng.choice(ZONES)

    def answer(self, now: datetime) -> NodeGroup:
        instances = tuple(
            GroupInstance(id=i, zone=zone, instance_type="m5.large", state="InService")
            for i, zone in self.instances.items()
        )
        current = NodeGroup(
            name="workers",
            minimum=self.minimum,
            maximum=self.maximum,
            desired=self.desired,
            zones=ZONES,
            instances=instances,
        )
        self.answers = [(at, a) for at, a in self.answers if now - at < group_state.ANSWERS_LAG] + [(now, current)]
        return current


def nodes_of(group: NodeGroup, taints: dict[str, list[dict[str, str]]], now: datetime) -> list[Node]:
    return [
        msgspec.convert(
            {
                "metadata": {"name": i.id, "creationTimestamp": (now - timedelta(hours=1)).isoformat()},
                "spec": {"providerID": i.provider_id, "taints": taints.get(i.id, [])},
                "status": {
                    "allocatable": {"cpu": "2", "memory": "8Gi"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
            Node,
        )
        for i in group.instances
    ]


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 (no cryptography)
        minimum = self.rng.randint(0, 3)
        self.group = Group(minimum=minimum, maximum=minimum + self.rng.randint(0, 6), desired=minimum)
        self.state = GroupState()
        self.taints: dict[str, list[dict[str, str]]] = {}
        self.now = START
        self.grown = self.removed = 0

    def step(self) -> None:
        self.now += timedelta(seconds=self.rng.choice((5, 30, 90)))
        self.group.answer(self.now)
        self.rng.choice((self.grow, self.shrink, self.deliver, self.rebalance, self.lose, self.resize))()
        assert self.group.minimum <= self.group.desired <= self.group.maximum

    def answer(self) -> NodeGroup:
        return self.rng.choice(self.group.answers)[1]

    def grow(self) -> None:
        answered = self.answer()
        requested = group_state.as_asked(answered, self.state, now=self.now)
        coming = group_state.expected_nodes(requested, self.state, {}, OPTIONS, now=self.now)
        self.state = group_state.after_look(self.state, requested, coming, now=self.now)
        if group_state.has_timed_out(self.state, OPTIONS, now=self.now):
            self.state = group_state.after_failure(self.state, OPTIONS, now=self.now)
            held = len(self.group.instances)  # it is described again before it is asked for less
            self.group.set_desired(min(self.group.desired, max(self.group.minimum, held)))
            return
        nodes = min(self.rng.randint(0, 4), requested.room)
        scale_up = ScaleUp(group=requested, nodes=nodes, pods=())
        if nodes and self._is_taken(answered, scale_up.desired):
            self.state = group_state.after_request(self.state, scale_up.desired, now=self.now)
            self.group.set_desired(scale_up.desired)
            self.grown += nodes

    def _is_taken(self, answered: NodeGroup, desired: int) -> bool:
        """Auto Scaling refuses sizes beyond those that a user has just set; before that, none may be requested for."""
        if (answered.minimum, answered.maximum) == (self.group.minimum, self.group.maximum):
            return True
        return self.group.minimum <= desired <= self.group.maximum

    def shrink(self) -> None:
        answered = self.answer()
        nodes = nodes_of(self.group.answer(self.now), self.taints, self.now)
        snapshot = Snapshot(taken_at=self.now, nodes=tuple(nodes))
        members = member_nodes(snapshot, [answered])
        plan = plan_scale_down(snapshot, members, OPTIONS, now=self.now)
        for member in (*plan.unneeded, *plan.remove):
            key = REMOVED_TAINT if member in plan.remove else "DeletionCandidateOfClusterAutoscaler"
            if taint_time(member.node, key) is None:
                taint = timed_taint(key, self.now)
                self.taints.setdefault(member.name, []).append(msgspec.to_builtins(taint))
        for member in members:
            is_removed = any(t["key"] == REMOVED_TAINT for t in self.taints.get(member.name, ()))
            # The fresh look before each termination: AWS itself refuses what would go below the minimum.
            if is_removed and member.name in self.group.instances and self.group.desired > self.group.minimum:
                self.group.terminate(member.name)
                self.removed += 1

    def deliver(self) -> None:
        while len(self.group.instances) < self.group.desired and self.rng.random() < 0.8:
            self.group.launch(self.rng)

    def rebalance(self) -> None:
        if self.group.instances and len(self.group.instances) == self.group.desired:
            self.group.launch(self.rng)
            del self.group.instances[next(iter(self.group.instances))]

    def lose(self) -> None:
        if self.group.instances:
            del self.group.instances[self.rng.choice(list(self.group.instances))]

    def resize(self) -> None:
        if self.rng.random() < 0.1:
            self.group.minimum = self.rng.randint(0, 3)
            self.group.maximum = max(self.group.minimum, self.rng.randint(1, 9))
            self.group.desired = min(max(self.group.desired, self.group.minimum), self.group.maximum)


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_sizes_hold_in_random_walks(first: int) -> None:
    walks = [Walk(seed) for seed in range(first, first + 250)]
    for walk in walks:
        for _ in range(40):
            walk.step()
    assert sum(walk.grown for walk in walks) > 200
    assert sum(walk.removed for walk in walks) > 200

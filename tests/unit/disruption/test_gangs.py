"""Nodes of a PodGroup whose pods may be disrupted all at once only are kept while it has pods on several."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shared.api.pod_group import PodGroup, StoredPodGroup
from shared.api.pod_references import PodSchedulingGroup
from shared.base.struct import with_fields
from shared.disruption import consolidation
from shared.disruption.candidates import all_candidates, disruption_blocker

if TYPE_CHECKING:
    from shared.disruption.disruption_state import DisruptionState

GROUP = PodSchedulingGroup(pod_group_name="train")


def pod_group(mode: str) -> PodGroup:
    stored = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {mode: {}}},
    }
    return msgspec.convert(stored, StoredPodGroup).pod_group()


def state(cluster: Any, mode: str) -> DisruptionState:
    state: DisruptionState = cluster.state()
    group = pod_group(mode)
    return with_fields(state, snapshot=with_fields(state.snapshot, pod_groups={group.key: group}))


@pytest.mark.parametrize(("mode", "blocked"), [("all", True), ("single", False)])
def test_the_nodes_of_a_gang_are_kept_as_its_mode_says(cluster: Any, mode: str, *, blocked: bool) -> None:
    for name in ("a", "b"):
        cluster.node(name, 4, age=timedelta(hours=8))
        cluster.pod(f"p-{name}", name, 500, scheduling_group=GROUP)
    decided = state(cluster, mode)
    for candidate in all_candidates(decided):
        blocker = disruption_blocker(decided, candidate)
        assert (blocker is not None) == blocked
        assert blocker is None or blocker.message.startswith("PodGroup default/train has pods on other nodes")
    command = consolidation.search(decided, cluster.budget_tracker(), bool).command
    assert (command is None) == blocked


def test_a_gang_on_one_node_may_be_disrupted_with_it(cluster: Any) -> None:
    cluster.node("a", 8, age=timedelta(hours=8))
    for name in ("p", "q"):
        cluster.pod(name, "a", 500, scheduling_group=GROUP)
    decided = state(cluster, "all")
    (candidate,) = all_candidates(decided)
    assert disruption_blocker(decided, candidate) is None

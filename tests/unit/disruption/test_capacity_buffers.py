"""The room of CapacityBuffers in disruption: it is kept where no other node has it, and nothing more is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shared.api.capacity_buffer import CapacityBuffer, StoredPodTemplate
from shared.api.nodeclaim import NodeClaimSpec
from shared.base.struct import with_fields
from shared.disruption import consolidation, emptiness, expiration
from shared.disruption.candidate_matrix import build_candidate_matrix
from shared.disruption.candidates import all_candidates
from shared.disruption.simulated_scheduling import simulate_scheduling, with_chunks
from shared.scheduling.scheduler import schedule_on_existing_nodes
from shared.snapshot import BufferObjects

if TYPE_CHECKING:
    from shared.disruption.disruption_state import DisruptionState


def buffer(replicas: int, cpu: str = "1") -> BufferObjects:
    spec = {"podTemplateRef": {"name": "web"}, "replicas": replicas}
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    metadata = {"name": "warm", "namespace": "default"}
    return BufferObjects(
        buffer=msgspec.convert({"metadata": metadata, "spec": spec}, CapacityBuffer),
        pod_template=msgspec.convert({"metadata": metadata, "template": pod}, StoredPodTemplate),
    )


@dataclass
class BufferedCluster:
    cluster: Any

    def state(self, *buffers: BufferObjects, later: timedelta = timedelta(0)) -> DisruptionState:
        state: DisruptionState = self.cluster.state(later=later)
        state = with_fields(state, snapshot=with_fields(state.snapshot, capacity_buffers=buffers))
        return with_chunks(state, schedule_on_existing_nodes(state.snapshot, state.disrupting_nodes))


@pytest.fixture
def buffered(cluster: Any) -> BufferedCluster:
    return BufferedCluster(cluster)


def empty_claims(state: DisruptionState) -> set[str]:
    return {change.claim.name for change in emptiness.empty_condition_changes(state) if change.is_empty}


def test_a_node_with_the_only_room_of_a_buffer_is_not_empty(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4)
    buffered.cluster.node("b", 4)
    state = buffered.state(buffer(3))
    assert list(state.chunks) == ["a"]
    assert empty_claims(state) == {"claim-b"}
    assert empty_claims(buffered.state()) == {"claim-a", "claim-b"}


def test_a_node_whose_room_nodes_with_pods_have_too_is_empty(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4)
    buffered.cluster.node("b", 8)
    buffered.cluster.pod("p", "b")
    assert empty_claims(buffered.state(buffer(3))) == {"claim-a"}


def test_a_simulation_without_the_node_launches_for_its_chunks(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4)
    state = buffered.state(buffer(3))
    (candidate,) = all_candidates(state)
    simulation = simulate_scheduling(state, [candidate])
    assert simulation.all_scheduled
    assert sum(len(claim.chunks) for claim in simulation.node_claims) == 3
    assert simulate_scheduling(state, []).node_claims == ()


def test_a_node_is_kept_if_its_chunks_fit_nowhere_else(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4, age=timedelta(hours=8))
    state = with_fields(buffered.state(buffer(3)), instance_types={"default": ()})
    (candidate,) = all_candidates(state)
    simulation = simulate_scheduling(state, [candidate])
    assert not simulation.all_scheduled
    blocker = simulation.blocker(candidate)
    assert blocker is not None
    assert "CapacityBuffers" in blocker.message


def test_pods_may_move_into_a_buffers_room_only_if_it_is_bought_again(buffered: BufferedCluster) -> None:
    """Without the buffer, the pod of the small node moves to the large one, and the small one is deleted."""
    for name, cpu in (("a", 2), ("b", 8)):
        buffered.cluster.node(name, cpu, spot=True)
    buffered.cluster.pod("small", "a")
    buffered.cluster.pod("large", "b", cpu=5000)

    def removed(state: DisruptionState) -> list[str]:
        result = consolidation.search(state, buffered.cluster.budget_tracker(), bool)
        return list(result.command.nodes) if result.command is not None and not result.command.replacements else []

    assert removed(buffered.state()) == ["a"]
    assert removed(buffered.state(buffer(3))) == []


def test_chunks_take_what_is_free_and_cost_nothing_to_move(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4)
    without, with_buffer = buffered.state(), buffered.state(buffer(3))
    candidates = list(all_candidates(with_buffer))
    before = build_candidate_matrix(without, candidates, [1.0])
    after = build_candidate_matrix(with_buffer, candidates, [1.0])
    assert (before.free - after.free)[0].tolist() == [3000, 0, 3]
    assert after.disruption_cost.tolist() == [0.0]
    assert after.resource_value[0] > before.resource_value[0] == 0.0
    assert len(after.pod_requests[0]) == 3


def test_an_expired_node_with_chunks_only_is_replaced(buffered: BufferedCluster) -> None:
    buffered.cluster.node("a", 4, age=timedelta(hours=2), spec=NodeClaimSpec(expire_after="1h"))
    result = expiration.compute(buffered.state(buffer(3)), buffered.cluster.budget_tracker())
    (command,) = result.commands
    assert command.nodes == ("a",)
    assert sum(len(claim.chunks) for claim in command.replacements) == 3

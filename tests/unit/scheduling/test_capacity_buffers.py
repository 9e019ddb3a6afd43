"""Chunks of CapacityBuffers: how many there are, and that pods never lose capacity to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.api.capacity_buffer import CapacityBuffer, Scalable, StoredPodTemplate
from shared.api.limit_range import LimitRange
from shared.api.quantity import parse_resources
from shared.base.struct import with_fields
from shared.scheduling.buffers.chunks import ResolvedBuffer, buffer_of, chunk_pods, resolve
from shared.scheduling.scheduler import schedule
from shared.snapshot import BufferObjects, Snapshot
from tests.scenarios import simulation

if TYPE_CHECKING:
    from types import ModuleType

    from shared.scheduling.decision import Decision

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUESTS = {"cpu": "900m", "memory": "900Mi"}


def template(requests: dict[str, str], labels: dict[str, str] | None = None) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": containers}}


def objects(
    name: str = "warm",
    *,
    workload_replicas: int | None = None,
    requests: dict[str, str] | None = None,
    **spec: object,
) -> BufferObjects:
    """A buffer with its PodTemplate, or with a Deployment of that many replicas."""
    of_pod = template(requests if requests is not None else REQUESTS)
    if workload_replicas is None:
        spec = {"podTemplateRef": {"name": "web"}, **spec}
    else:
        spec = {"scalableRef": {"kind": "Deployment", "name": "web"}, **spec}
    raw = {"metadata": {"name": name, "namespace": "shop"}, "spec": spec}
    workload = {"metadata": {"name": "web"}, "spec": {"replicas": workload_replicas or 0, "template": of_pod}}
    stored = {"metadata": {"name": "web", "generation": 3}, "template": of_pod}
    return BufferObjects(
        buffer=msgspec.convert(raw, CapacityBuffer),
        pod_template=msgspec.convert(stored, StoredPodTemplate) if workload_replicas is None else None,
        workload=msgspec.convert(workload, Scalable) if workload_replicas is not None else None,
    )


def resolved(**arguments: Any) -> ResolvedBuffer:
    return resolve(objects(**arguments), Snapshot(taken_at=NOW))


@pytest.mark.parametrize(
    ("arguments", "chunks"),
    [
        ({"replicas": 5}, 5),
        ({"replicas": 0}, 0),
        ({"workload_replicas": 10, "percentage": 20}, 2),
        ({"workload_replicas": 11, "percentage": 20}, 3),
        ({"workload_replicas": 1, "percentage": 5}, 1),
        ({"workload_replicas": 0, "percentage": 5}, 0),
        ({"workload_replicas": 10, "percentage": 0}, 0),
        ({"workload_replicas": 10, "percentage": 50, "replicas": 3}, 3),
        ({"workload_replicas": 10, "percentage": 20, "replicas": 3}, 2),
        ({"limits": {"cpu": "4", "memory": "100Gi"}}, 4),
        ({"limits": {"cpu": "4", "nvidia.com/gpu": "1"}}, 4),
        ({"replicas": 3, "limits": {"cpu": "4"}}, 3),
        ({"replicas": 9, "limits": {"cpu": "4"}}, 4),
        ({"replicas": 9, "limits": {"nvidia.com/gpu": "1"}}, 9),
        ({"replicas": 9, "limits": {"cpu": "100m"}}, 0),
    ],
)
def test_the_number_of_chunks(arguments: dict[str, Any], chunks: int) -> None:
    buffer = resolved(**arguments)
    assert (buffer.chunks, buffer.reason) == (chunks, "Resolved")


def test_a_missing_template_or_workload_is_named() -> None:
    there = objects(replicas=1)
    gone = resolve(BufferObjects(buffer=there.buffer), Snapshot(taken_at=NOW))
    assert (gone.reason, gone.message) == (
        "PodTemplateNotFound",
        "there is no valid PodTemplate web in namespace shop",
    )
    workload = objects(replicas=1, workload_replicas=3)
    gone = resolve(BufferObjects(buffer=workload.buffer), Snapshot(taken_at=NOW))
    assert (gone.reason, gone.message) == ("ScalableRefNotFound", "there is no valid Deployment web in namespace shop")
    assert list(gone.pods()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "spec.replicas, spec.limits: are missing; one of them is needed"),
        (
            {"limits": {"nvidia.com/gpu": "1"}},
            "spec.limits: the template requests none of what they limit (nvidia.com/gpu)",
        ),
        ({"replicas": 1, "requests": {"cpu": "much"}}, 'spec.containers[0].resources.requests.cpu: "much"'),
    ],
)
def test_what_cannot_be_resolved_is_said(arguments: dict[str, Any], message: str) -> None:
    buffer = resolved(**arguments)
    assert buffer.reason == "ResolutionFailed"
    assert buffer.message.startswith(message)


def test_a_template_without_requests_gets_those_of_the_namespaces_limit_range() -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}}]
    raw = {"metadata": {"name": "defaults", "namespace": "shop"}, "spec": {"limits": limits}}
    buffer = resolve(
        objects(replicas=1, requests={}), Snapshot(taken_at=NOW, limit_ranges=(msgspec.convert(raw, LimitRange),))
    )
    (pod,) = buffer.pods()
    assert parse_resources(pod.spec.containers[0].resources.requests) == {"cpu": 2000}


# --- decisions ---


def decide(raw: dict[str, Any], *buffers: BufferObjects) -> Decision:
    problem = simulation.simulation_input(raw).problem
    snapshot = with_fields(problem.snapshot, capacity_buffers=buffers)
    return schedule(with_fields(problem, snapshot=snapshot))


def pod_placement(decision: Decision) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    return dict(decision.existing_nodes), set(decision.pod_errors)


def test_chunks_are_launched_without_any_pod_and_are_no_pods(clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool()), objects(replicas=5))
    assert decision.new_node_claims
    assert all(claim.pods == () for claim in decision.new_node_claims)
    chunks = sorted(chunk for claim in decision.new_node_claims for chunk in claim.chunks)
    assert chunks == [f"shop/warm#{i}" for i in range(5)]
    assert {buffer_of(chunk) for chunk in chunks} == {"shop/warm"}
    assert not decision.pod_errors


def test_pods_and_chunks_share_new_nodes(clusters: ModuleType) -> None:
    raw = clusters.document(clusters.pool(), clusters.pods("web", 3, cpu="900m"))
    decision = decide(raw, objects(replicas=3))
    assert sum(len(c.pods) for c in decision.new_node_claims) == 3
    assert sum(len(c.chunks) for c in decision.new_node_claims) == 3
    apart = sum(c.cheapest.price for c in decide(raw).new_node_claims) + sum(
        c.cheapest.price for c in decide(clusters.document(clusters.pool()), objects(replicas=3)).new_node_claims
    )
    assert sum(c.cheapest.price for c in decision.new_node_claims) <= apart


def test_pods_take_existing_room_before_chunks_which_are_launched_for(clusters: ModuleType) -> None:
    raw = clusters.document(clusters.pool(), clusters.node("n", cpu=4), clusters.pods("web", 3, cpu="900m"))
    decision = decide(raw, objects(replicas=3))
    assert decision.existing_nodes == {"n": tuple(f"default/web-000{i}" for i in range(3))}
    assert decision.chunks == {"n": ("shop/warm#0",)}
    assert [claim.chunks for claim in decision.new_node_claims] == [("shop/warm#1", "shop/warm#2")]


def test_chunks_are_placed_on_nodes_with_pods_first(clusters: ModuleType) -> None:
    running = clusters.pods("db", 1, cpu="900m", nodeName="z")
    raw = clusters.document(clusters.pool(), clusters.node("a"), clusters.node("z"), running)
    assert decide(raw, objects(replicas=2)).chunks == {"z": ("shop/warm#0", "shop/warm#1")}


def test_chunks_that_cannot_be_launched_say_why(clusters: ModuleType) -> None:
    decision = decide(clusters.document(clusters.pool(limits={"cpu": "2"})), objects(replicas=5))
    assert sorted(chunk for claim in decision.new_node_claims for chunk in claim.chunks) == [
        "shop/warm#0",
        "shop/warm#1",
    ]
    assert sorted(decision.chunk_errors) == ["shop/warm#2", "shop/warm#3", "shop/warm#4"]
    assert all("limit" in error.message for error in decision.chunk_errors.values())


def test_chunks_of_a_template_with_resource_claims_are_not_launched_for(clusters: ModuleType) -> None:
    buffer = objects(replicas=2)
    assert buffer.pod_template is not None
    pod = template(REQUESTS)
    pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "rack-nic"}]
    stored = msgspec.convert({"metadata": {"name": "web"}, "template": pod}, StoredPodTemplate)
    decision = decide(clusters.document(clusters.pool()), with_fields(buffer, pod_template=stored))
    assert decision.new_node_claims == ()
    assert sorted(decision.chunk_errors) == ["shop/warm#0", "shop/warm#1"]
    assert all("spec.resourceClaims" in error.message for error in decision.chunk_errors.values())


@settings(max_examples=25, deadline=None)
@given(
    pods=st.integers(0, 12),
    chunks=st.integers(0, 12),
    limit=st.integers(1, 16),
    size=st.sampled_from(["300m", "900m", "1900m"]),
)
def test_pods_are_scheduled_as_without_buffers(
    clusters: ModuleType, pods: int, chunks: int, limit: int, size: str
) -> None:
    raw = clusters.document(clusters.pool(limits={"cpu": str(limit)}), clusters.pods("web", pods, cpu=size))
    without, with_buffer = decide(raw), decide(raw, objects(replicas=chunks))
    assert pod_placement(with_buffer) == pod_placement(without)
    scheduled = {chunk for claim in with_buffer.new_node_claims for chunk in claim.chunks}
    scheduled.update(chunk for keys in with_buffer.chunks.values() for chunk in keys)
    assert scheduled | set(with_buffer.chunk_errors) == {f"shop/warm#{i}" for i in range(chunks)}
    assert not scheduled & set(with_buffer.chunk_errors)


def test_a_chunks_key_cannot_be_a_pods_name(clusters: ModuleType) -> None:
    problem = simulation.simulation_input(clusters.document(clusters.pool())).problem
    snapshot = type(problem.snapshot)(taken_at=NOW, capacity_buffers=(objects(replicas=2),))
    keys = chunk_pods(snapshot)
    assert list(keys) == ["shop/warm#0", "shop/warm#1"]
    assert not any(pod.metadata.uid for pod in keys.values())


def test_a_changed_snapshot_has_its_own_chunks() -> None:
    snapshot = Snapshot(taken_at=NOW, capacity_buffers=(objects(replicas=2),))
    assert len(chunk_pods(snapshot)) == 2
    assert chunk_pods(snapshot) is chunk_pods(snapshot)
    assert len(chunk_pods(with_fields(snapshot, capacity_buffers=(objects(replicas=3),)))) == 3

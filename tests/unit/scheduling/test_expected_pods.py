"""Pods that are expected make new nodes larger, and change nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.api.kubernetes import Pod
from shared.api.meta import ObjectMeta
from shared.base.struct import with_fields
from shared.scheduling.scheduler import schedule
from tests.scenarios import simulation

if TYPE_CHECKING:
    from types import ModuleType

    from shared.scheduling.decision import Decision

SMALL, LARGE = "s1.large", "s1.xlarge"


def decided(clusters: ModuleType, *objects: object, pending: int, expected: int, **pool: object) -> Decision:
    """The decision for pods of 900m, of which one fits on a small node, and four on a large one at twice the price."""
    types = [clusters.instance_type(SMALL, 1, 8, 0.10), clusters.instance_type(LARGE, 4, 16, 0.20)]
    pods = clusters.pods("web", pending, cpu="900m", memory="1Gi")
    document = {"objects": [clusters.pool(**pool), *pods, *objects], "instanceTypes": types}
    problem = simulation.simulation_input(document).problem
    like = problem.snapshot.pods[0]
    virtual = tuple(
        Pod(metadata=ObjectMeta(name=f"~web#{i}", namespace="default"), spec=like.spec) for i in range(expected)
    )
    return schedule(with_fields(problem, snapshot=with_fields(problem.snapshot, growth=virtual)))


def test_a_node_is_as_large_as_its_pods_and_the_expected_ones_need(clusters: ModuleType) -> None:
    assert [c.cheapest.instance_type for c in decided(clusters, pending=1, expected=0).new_node_claims] == [SMALL]
    (claim,) = decided(clusters, pending=1, expected=3).new_node_claims
    assert claim.instance_types == (LARGE,)
    assert (claim.pods, claim.expected) == (("default/web-0000",), 3)
    assert claim.requests["cpu"] >= 4 * 900


def test_no_node_is_launched_for_expected_pods_alone(clusters: ModuleType) -> None:
    decision = decided(clusters, pending=1, expected=9)
    assert [c.pods for c in decision.new_node_claims] == [("default/web-0000",)]
    assert not decision.chunks
    assert not decision.chunk_errors
    running = clusters.node("n1", cpu=4)
    decision = decided(clusters, running, pending=1, expected=9)
    assert (decision.new_node_claims, decision.existing_nodes) == ((), {"n1": ("default/web-0000",)})


@pytest.mark.parametrize(("annotations", "bought"), [({names.EXPECTED_PODS: "3"}, SMALL), ({}, LARGE)])
def test_room_that_was_bought_for_expected_pods_is_not_bought_again(
    clusters: ModuleType, annotations: dict[str, str], bought: str
) -> None:
    running = clusters.node("n1", labels={names.REGISTERED: "true", names.INITIALIZED: "true"})
    running["spec"]["providerID"] = "aws:///z-a/i-1"
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "c1", "annotations": annotations},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": {"nodeName": "n1", "providerID": running["spec"]["providerID"]},
    }
    elsewhere = clusters.pods("job", 1, cpu="900m", memory="1Gi", nodeSelector={"team": "batch"})
    pool = clusters.pool("batch", labels={"team": "batch"})
    decision = decided(clusters, running, claim, pool, *elsewhere, pending=1, expected=3)
    assert decision.existing_nodes == {"n1": ("default/web-0000",)}
    assert [c.cheapest.instance_type for c in decision.new_node_claims] == [bought]


def test_no_pod_loses_its_node_at_a_limit(clusters: ModuleType) -> None:
    limited = {"limits": {"cpu": "4"}}
    without = decided(clusters, pending=4, expected=0, **limited)
    assert not without.pod_errors
    decision = decided(clusters, pending=4, expected=4, **limited)
    assert not decision.pod_errors
    assert sorted(key for c in decision.new_node_claims for key in c.pods) == [f"default/web-000{i}" for i in range(4)]


def test_the_chunks_of_buffers_are_the_room_where_there_are_some(clusters: ModuleType) -> None:
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "web", "namespace": "default"},
        "template": {"spec": clusters.pods("x", 1, cpu="900m")[0]["spec"]},
    }
    buffer = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "web"}, "replicas": 1},
    }
    decision = decided(clusters, template, buffer, pending=1, expected=3)
    assert sum(len(c.chunks) for c in decision.new_node_claims) == 1
    assert [c.expected for c in decision.new_node_claims] == [0] * len(decision.new_node_claims)

"""What namespaces cost, by what their pods request of the nodes."""

from __future__ import annotations

import pytest

from cli.export import cost_allocation, families
from cli.nodes.rows import READY, Row
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta

GIB = 2**30


def row(name: str = "a", *, price: float | None = 1.0) -> Row:
    """A node with 4 vCPUs and 8 GiB."""
    return Row(
        name=name,
        pool="default",
        instance_type="m5.xlarge",
        zone="us-east-1a",
        capacity_type="spot",
        price=price,
        created=None,
        pods=0,
        requested={},
        allocatable={"cpu": 4000, "memory": 8 * GIB},
        state=READY,
        labels={},
    )


def pod(namespace: str, cpu: str, memory: str, *, node: str = "a", phase: str = "Running", team: str = "") -> Pod:
    container = Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}))
    return Pod(
        metadata=ObjectMeta(name="p", namespace=namespace, labels={"team": team} if team else {}),
        spec=PodSpec(node_name=node, containers=[container]),
        status=PodStatus(phase=phase),
    )


def costs(rows: list[Row], pods: list[Pod], *, label: str = "") -> dict[tuple[str, str], float]:
    samples = list(cost_allocation.samples(rows, pods, label=label))
    assert {sample.family for sample in samples} <= {families.NAMESPACE_COST}
    return {(s.labels.get("namespace", ""), s.labels.get("label", "")): s.value for s in samples}


def test_half_of_a_price_is_for_cpu_and_half_for_memory_and_the_rest_has_no_namespace() -> None:
    split = costs([row()], [pod("web", "2", "2Gi"), pod("web", "1", "2Gi"), pod("jobs", "1", "1Gi")])
    assert split == pytest.approx({("web", ""): 0.625, ("jobs", ""): 0.1875, ("", ""): 0.1875})


def test_the_sum_is_the_price_of_the_nodes_also_where_pods_request_more_than_is_allocatable() -> None:
    rows = [row("a"), row("b", price=0.5), row("c", price=None)]
    pods = [pod("web", "8", "16Gi"), pod("jobs", "1", "1Gi", node="b"), pod("jobs", "1", "1Gi", node="c")]
    assert sum(costs(rows, pods).values()) == pytest.approx(1.5)


def test_pods_that_have_ended_or_have_no_node_cost_nothing() -> None:
    pods = [pod("done", "1", "1Gi", phase="Succeeded"), pod("waits", "1", "1Gi", node="")]
    assert costs([row()], pods) == {("", ""): 1.0}


def test_a_label_of_pods_splits_namespaces() -> None:
    pods = [pod("web", "1", "2Gi", team="red"), pod("web", "1", "2Gi", team="blue"), pod("web", "2", "4Gi")]
    split = costs([row()], pods, label="team")
    assert split == pytest.approx({("web", "red"): 0.25, ("web", "blue"): 0.25, ("web", ""): 0.5, ("", ""): 0.0})


def test_an_amount_that_cannot_be_parsed_hides_nothing_else() -> None:
    assert costs([row()], [pod("bad", "much", "1Gi"), pod("web", "4", "8Gi")])["web", ""] == pytest.approx(1.0)

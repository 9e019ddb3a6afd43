"""What namespaces cost, by what their pods request of the nodes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.export import cost_samples
from cli.nodes.cost_allocation import DAEMONS, IDLE, PODS, UNITS, CostShare, allocate, rounded
from cli.nodes.rows import READY, Row
from shared.api.containers import Container, ResourceRequirements
from shared.api.kubernetes import Pod, PodSpec, PodStatus
from shared.api.meta import ObjectMeta, OwnerReference

GIB = 2**30
CORE_PRICE, GIB_PRICE, GPU_PRICE = 0.031611, 0.004237, 0.95
"""OpenCost's base prices of AWS, USD per hour."""


def row(name: str = "a", *, price: float | None = 1.0, gpus: int = 0) -> Row:
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
        allocatable={"cpu": 4000, "memory": 8 * GIB, **({"nvidia.com/gpu": gpus} if gpus else {})},
        state=READY,
        labels={},
    )


def pod(
    namespace: str, cpu: str, memory: str, *, node: str = "a", phase: str = "Running", team: str = "", gpus: int = 0
) -> Pod:
    requests: dict[str, str | int | float] = {"cpu": cpu, "memory": memory}
    if gpus:
        requests["nvidia.com/gpu"] = gpus
    container = Container(resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(name="p", namespace=namespace, labels={"team": team} if team else {}),
        spec=PodSpec(node_name=node, containers=[container]),
        status=PodStatus(phase=phase),
    )


def daemon(cpu: str, memory: str, *, node: str = "a") -> Pod:
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="cni", uid="1", controller=True)
    plain = pod("kube-system", cpu, memory, node=node)
    return Pod(
        metadata=ObjectMeta(name="p", namespace="kube-system", owner_references=[owner]),
        spec=plain.spec,
        status=plain.status,
    )


def costs(rows: list[Row], pods: list[Pod], *, label: str = "") -> dict[tuple[str, str, str], float]:
    return {(s.share, s.namespace, s.value): s.cost / UNITS for s in allocate(rows, pods, label=label)}


def base_price(cpu: float, gib: float, gpus: int = 0) -> float:
    return cpu * CORE_PRICE + gib * GIB_PRICE + gpus * GPU_PRICE


def test_a_price_is_split_in_the_ratio_of_base_prices_by_requests() -> None:
    split = costs([row()], [pod("web", "2", "2Gi"), pod("web", "1", "2Gi"), daemon("500m", "1Gi")])
    whole = base_price(4, 8)
    assert split == pytest.approx(
        {
            (PODS, "web", ""): base_price(3, 4) / whole,
            (DAEMONS, "", ""): base_price(0.5, 1) / whole,
            (IDLE, "", ""): base_price(0.5, 3) / whole,
        }
    )


def test_the_pods_of_gpus_bear_their_price() -> None:
    split = costs([row(gpus=2)], [pod("train", "1", "1Gi", gpus=2), pod("web", "1", "1Gi")])
    whole = base_price(4, 8, 2)
    assert split[PODS, "train", ""] == pytest.approx(base_price(1, 1, 2) / whole)
    assert split[PODS, "web", ""] == pytest.approx(base_price(1, 1) / whole)


def test_the_most_expensive_namespace_is_first_and_idle_room_last() -> None:
    shares = allocate([row()], [pod("a", "1", "1Gi"), daemon("1", "1Gi"), pod("b", "2", "2Gi")])
    assert [(s.share, s.namespace) for s in shares] == [(PODS, "b"), (PODS, "a"), (DAEMONS, ""), (IDLE, "")]


def test_a_node_without_price_has_no_share_and_one_without_amounts_is_idle() -> None:
    unknown = Row(**{field: getattr(row(), field) for field in Row.__struct_fields__} | {"allocatable": {}})
    assert costs([row("c", price=None), unknown], [pod("web", "1", "1Gi", node="c")]) == {
        (DAEMONS, "", ""): 0.0,
        (IDLE, "", ""): 1.0,
    }


def test_nothing_is_idle_where_pods_request_more_than_is_allocatable() -> None:
    split = costs([row()], [pod("web", "8", "16Gi")])
    assert split == pytest.approx({(PODS, "web", ""): 1.0, (DAEMONS, "", ""): 0.0, (IDLE, "", ""): 0.0})


def test_pods_that_have_ended_or_have_no_node_cost_nothing() -> None:
    pods = [pod("done", "1", "1Gi", phase="Succeeded"), pod("waits", "1", "1Gi", node="")]
    assert costs([row()], pods) == {(DAEMONS, "", ""): 0.0, (IDLE, "", ""): 1.0}


def test_a_label_of_pods_splits_namespaces() -> None:
    pods = [pod("web", "1", "2Gi", team="red"), pod("web", "1", "2Gi", team="blue"), pod("web", "2", "4Gi")]
    split = costs([row()], pods, label="team")
    assert {key: cost for key, cost in split.items() if key[0] == PODS} == pytest.approx(
        {(PODS, "web", "red"): 0.25, (PODS, "web", "blue"): 0.25, (PODS, "web", ""): 0.5}
    )


def test_an_amount_that_cannot_be_parsed_hides_nothing_else() -> None:
    split = costs([row()], [pod("bad", "much", "1Gi"), pod("web", "4", "8Gi")])
    assert split[PODS, "web", ""] == pytest.approx(1.0)


PRICES = st.decimals("0.0001", "99", places=4).map(float)
PODS_OF_NODES = st.tuples(
    st.sampled_from(["web", "jobs", "kube-system"]),
    st.integers(0, 9000),
    st.integers(0, 20 * GIB),
    st.integers(0, 4),
    st.booleans(),
)


@given(st.lists(PRICES, min_size=1, max_size=5), st.lists(PODS_OF_NODES, max_size=30))
def test_the_shares_add_up_to_exactly_the_bill_also_when_they_are_rounded(
    prices: list[float], requested: list[tuple[str, int, int, int, bool]]
) -> None:
    rows = [row(str(i), price=price) for i, price in enumerate(prices)]
    pods = [
        daemon(f"{cpu}m", str(memory), node=str(node))
        if is_daemon
        else pod(namespace, f"{cpu}m", str(memory), node=str(node))
        for namespace, cpu, memory, node, is_daemon in requested
    ]
    bill = sum((Decimal(str(price)) for price in prices), Decimal(0))
    shares = allocate(rows, pods)
    assert all(share.cost >= 0 for share in shares)
    assert Decimal(sum(share.cost for share in shares)) / UNITS == bill
    assert sum(Decimal(str(cost)) for cost in rounded(shares, places=4)) == bill
    exported = cost_samples.samples(rows, pods, label="")
    assert sum(s.value for s in exported) == pytest.approx(float(bill))


def test_rounding_gives_what_is_missing_to_those_that_lose_most() -> None:
    shares = [CostShare(share=PODS, namespace=n, cost=UNITS // 3) for n in "ab"]
    shares.append(CostShare(share=IDLE, cost=UNITS - 2 * (UNITS // 3)))
    assert rounded(shares, places=2) == [0.33, 0.33, 0.34]

"""NodeOverlays change prices and extended resources of instance types: upstream's rules and the examples of its design
(kubernetes-sigs/karpenter designs/node-overlay.md), in the form of the API that was released."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodepool import NodeClaimTemplate, NodeClassRef, NodePool, NodePoolSpec, TemplateMetadata, TemplateSpec
from shared.base.struct import with_fields
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types.instance_type import InstanceType, Offering
from shared.instance_types.overlays import (
    OverlaidPools,
    apply_overlays,
    changed_price,
    labels_of,
    overlaid_price,
    ready_overlays,
)
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.fleet.overrides import offering_labels
from shared.launch.overlaid_pools import with_overlays
from tests.unit.instance_types.node_overlays import overlay

if TYPE_CHECKING:
    from shared.api.node_overlay import NodeOverlay

GIB = 1024**3
TYPE, CAPACITY_TYPE, ZONE = labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE
CATEGORY, MEMORY_MIB = labels.INSTANCE_PREFIX + "category", labels.INSTANCE_PREFIX + "memory"
SPOT, ON_DEMAND, RESERVED = labels.SPOT, labels.ON_DEMAND, labels.RESERVED


def instance_type(name: str, memory_gib: int, price: float) -> InstanceType:
    """Two zones, on demand and spot (at a quarter); ``m5.2xlarge`` has a capacity reservation in addition."""
    offerings = [
        Offering(
            zone=z, capacity_type=c, price=price if c == ON_DEMAND else price / 4, labels={labels.ZONE_ID: f"{z}-id"}
        )
        for z in ("a", "b")
        for c in (ON_DEMAND, SPOT)
    ]
    if name == "m5.2xlarge":
        reservation = {labels.RESERVATION_LABELS[0]: "cr-1"}
        offerings.append(Offering(zone="a", capacity_type=RESERVED, price=price / 10_000_000, labels=reservation))
    return InstanceType(
        name=name,
        labels={TYPE: name, CATEGORY: name[0], MEMORY_MIB: str(memory_gib * 1024), labels.ARCH: "amd64"},
        capacity={"cpu": 4000, "memory": memory_gib * GIB, "pods": 58},
        overhead={"memory": GIB},
        offerings=tuple(offerings),
    )


TYPES = (
    instance_type("c5.large", 2, 8.0),
    instance_type("m5.2xlarge", 32, 40.0),
    instance_type("m5.large", 8, 10.0),
    instance_type("r5.large", 16, 12.0),
)


def pool(name: str, **template_labels: str) -> NodePool:
    template = NodeClaimTemplate(
        metadata=TemplateMetadata(labels={k.replace("_", "/"): v for k, v in template_labels.items()}),
        spec=TemplateSpec(node_class_ref=NodeClassRef(name="default")),
    )
    return NodePool(metadata=ObjectMeta(name=name), spec=NodePoolSpec(template=template))


def apply(*overlays: NodeOverlay, pools: tuple[NodePool, ...] = (pool("p"),)) -> OverlaidPools:
    return apply_overlays({p.name: TYPES for p in pools}, {p.name: labels_of(p) for p in pools}, overlays)


def prices(overlaid: OverlaidPools, pool_name: str = "p", capacity_type: str = ON_DEMAND) -> dict[str, float]:
    """By type, its price in zone a."""
    return {
        t.name: o.price
        for t in overlaid.instance_types[pool_name]
        for o in t.offerings
        if (o.zone, o.capacity_type) == ("a", capacity_type)
    }


def added(overlaid: OverlaidPools, pool_name: str = "p") -> dict[str, dict[str, int]]:
    """By type, the resources that AWS doesn't say."""
    return {
        t.name: extra
        for t in overlaid.instance_types[pool_name]
        if (extra := {r: n for r, n in t.capacity.items() if r not in {"cpu", "memory", "pods"}})
    }


ZONAL = [(z, c) for z in "ab" for c in (ON_DEMAND, SPOT)]
LIST_PRICES = {"c5.large": 8.0, "m5.2xlarge": 40.0, "m5.large": 10.0, "r5.large": 12.0}


@pytest.mark.parametrize(
    ("change", "price"),
    [
        ("+5.00", 15.0),
        ("-7.50", 2.5),
        ("-12", 0.0),
        ("+.5", 10.5),
        ("+15%", 11.5),
        ("-90%", 1.0),
        ("-100%", 0.0),
        ("+150.5%", 25.05),
        ("3.25", 3.25),
        ("0", 0.0),
    ],
)
def test_a_price_is_set_or_adjusted_by_an_amount_or_a_percentage_and_is_never_negative(
    change: str, price: float
) -> None:
    assert changed_price(10.0, change) == pytest.approx(price, abs=1e-12)


def test_the_price_of_on_demand_offerings_is_adjusted_and_that_of_others_is_not() -> None:
    overlaid = apply(overlay("price-adjustment", (CAPACITY_TYPE, "In", [ON_DEMAND]), priceAdjustment="-7.50"))
    assert prices(overlaid) == {"c5.large": 0.5, "m5.2xlarge": 32.5, "m5.large": 2.5, "r5.large": 4.5}
    assert prices(overlaid, capacity_type=SPOT) == {k: v / 4 for k, v in LIST_PRICES.items()}
    by_name = {t.name: t for t in overlaid.instance_types["p"]}
    assert {(o.capacity_type, o.list_price) for o in by_name["m5.large"].offerings} == {(ON_DEMAND, 10.0), (SPOT, None)}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ((TYPE, "In", ["m5.large"]), {("m5.large", *o) for o in ZONAL}),
        ((ZONE, "In", ["b"]), {(t.name, "b", c) for t in TYPES for c in (ON_DEMAND, SPOT)}),
        (("topology.ebs.csi.aws.com/zone", "In", ["b"]), {(t.name, "b", c) for t in TYPES for c in (ON_DEMAND, SPOT)}),
        ((labels.ZONE_ID, "In", ["b-id"]), {(t.name, "b", c) for t in TYPES for c in (ON_DEMAND, SPOT)}),
        ((labels.RESERVATION_LABELS[0], "Exists", []), {("m5.2xlarge", "a", RESERVED)}),
        ((CAPACITY_TYPE, "NotIn", [ON_DEMAND, SPOT]), {("m5.2xlarge", "a", RESERVED)}),
        ((MEMORY_MIB, "Gt", ["20000"]), {("m5.2xlarge", *o) for o in ZONAL} | {("m5.2xlarge", "a", RESERVED)}),
        ((labels.INSTANCE_PREFIX + "gpu-count", "Gt", ["0"]), set()),
        ((labels.NODEPOOL, "In", ["other"]), set()),
        (("example.com/team", "Exists", []), set()),
    ],
)
def test_requirements_are_met_by_labels_of_the_type_and_the_offering(
    requirement: tuple[str, str, list[str]], expected: set[tuple[str, str, str]]
) -> None:
    overlaid = apply(overlay("o", requirement, price="1"))
    changed = {
        (t.name, o.zone, o.capacity_type)
        for t in overlaid.instance_types["p"]
        for o in t.offerings
        if o.has_overlaid_price
    }
    assert changed == expected


def test_pools_are_selected_by_name_and_by_the_labels_of_their_templates() -> None:
    pools = (pool("a", example_team="x"), pool("b", example_team="y"), pool("c"))
    by_name = apply(overlay("o", (labels.NODEPOOL, "In", ["b"]), price="1"), pools=pools)
    assert [prices(by_name, p)["m5.large"] for p in "abc"] == [10.0, 1.0, 10.0]
    by_label = apply(overlay("o", ("example/team", "In", ["x"]), price="1"), pools=pools)
    assert [prices(by_label, p)["m5.large"] for p in "abc"] == [1.0, 10.0, 10.0]
    without_label = apply(overlay("o", ("example/team", "DoesNotExist", []), price="1"), pools=pools)
    assert [prices(without_label, p)["m5.large"] for p in "abc"] == [10.0, 10.0, 1.0]
    by_class = apply(overlay("o", (labels.NODECLASS, "In", ["default"]), price="1"), pools=pools)
    assert [prices(by_class, p)["m5.large"] for p in "abc"] == [1.0, 1.0, 1.0]


def test_capacity_adds_extended_resources_and_replaces_none() -> None:
    names = ["m5.large", "m5.2xlarge", "m5.4xlarge", "m5.8xlarge", "m5.12xlarge"]
    overlaid = apply(overlay("extended-resource", (TYPE, "In", names), capacity={"smarter-devices/fuse": 1}))
    assert added(overlaid) == {n: {"smarter-devices/fuse": 1} for n in ("m5.2xlarge", "m5.large")}
    by_name = {t.name: t for t in overlaid.instance_types["p"]}
    assert by_name["m5.large"].allocatable == {
        "cpu": 4000, "memory": 7 * GIB, "pods": 58, "smarter-devices/fuse": 1
    }  # fmt: skip
    assert prices(overlaid) == LIST_PRICES


def test_huge_pages_are_taken_from_the_memory_that_pods_get() -> None:
    capacity = {"hugepages-2Mi": "100Mi", "hugepages-1Gi": "2Gi"}
    overlaid = apply(overlay("hugepage-overlay", (CATEGORY, "In", ["c", "m", "r"]), capacity=capacity))
    m5 = next(t for t in overlaid.instance_types["p"] if t.name == "m5.large")
    assert m5.allocatable["hugepages-1Gi"] == 2 * GIB
    assert m5.allocatable["memory"] == (8 - 1 - 2) * GIB - 100 * 1024**2
    c5 = next(t for t in overlaid.instance_types["p"] if t.name == "c5.large")
    assert c5.allocatable["memory"] == 0  # as much as there is, never less


def test_a_capacity_overlay_that_selects_one_offering_is_the_whole_types() -> None:
    overlaid = apply(overlay("o", (ZONE, "In", ["b"]), (TYPE, "In", ["m5.large"]), capacity={"a/x": "2"}, price="1"))
    assert added(overlaid) == {"m5.large": {"a/x": 2}}
    m5 = next(t for t in overlaid.instance_types["p"] if t.name == "m5.large")
    assert {(o.zone, o.price) for o in m5.offerings} == {("a", 10.0), ("a", 2.5), ("b", 1.0)}


def test_base_defaults_and_specific_overrides_are_merged_by_weight() -> None:
    """The design's example; extended resources stand for memory, which the released API can't change."""
    overlaid = apply(
        overlay("default", priceAdjustment="-10%", capacity={"a/overhead": 10}),
        overlay("memory", (MEMORY_MIB, "Gt", ["2048"]), weight=1, capacity={"a/overhead": 50}),
        overlay("extended-resource", (TYPE, "In", ["m5.large"]), capacity={"smarter-devices/fuse": 1}),
    )
    assert overlaid.conflicts == {}
    assert prices(overlaid) == {"c5.large": 7.2, "m5.2xlarge": 36.0, "m5.large": 9.0, "r5.large": 10.8}
    assert added(overlaid) == {
        "c5.large": {"a/overhead": 10},
        "m5.2xlarge": {"a/overhead": 50},
        "m5.large": {"a/overhead": 50, "smarter-devices/fuse": 1},
        "r5.large": {"a/overhead": 50},
    }


def test_prices_of_several_overlays_never_add_up() -> None:
    overlaid = apply(overlay("low", weight=1, priceAdjustment="-50%"), overlay("high", weight=2, priceAdjustment="+1"))
    assert prices(overlaid)["m5.large"] == 11.0
    assert [o.name for o in overlaid.applied] == ["high", "low"]


def test_overlays_of_one_weight_that_set_the_same_conflict_and_the_later_name_stays() -> None:
    """The design's example of a misconfiguration: one instance type that both select is enough."""
    first = overlay("capacity-1", (TYPE, "In", ["c5.large", "m5.2xlarge"]), weight=90, capacity={"a/x": 100})
    second = overlay("memory-1", (MEMORY_MIB, "Gt", ["8192"]), weight=90, capacity={"a/x": 50})
    overlaid = apply(first, second)
    assert overlaid.conflicts == {
        "capacity-1": "NodeOverlay memory-1 of the same weight 90 sets a/x of m5.2xlarge in NodePool p, too; this "
        "overlay isn't applied"
    }
    assert added(overlaid) == {"m5.2xlarge": {"a/x": 50}, "r5.large": {"a/x": 50}}  # nowhere, not even on c5.large
    assert [o.name for o in overlaid.applied] == ["memory-1"]


def test_price_and_price_adjustment_are_the_same_field() -> None:
    overlaid = apply(overlay("a", price="1"), overlay("b", (TYPE, "In", ["r5.large"]), priceAdjustment="-50%"))
    assert overlaid.conflicts == {
        "a": "NodeOverlay b of the same weight 0 sets the price of r5.large in NodePool p, too; this overlay isn't "
        "applied"
    }
    assert prices(overlaid) == {**LIST_PRICES, "r5.large": 6.0}


def test_overlays_of_one_weight_are_merged_if_they_set_different_fields_offerings_or_pools() -> None:
    pools = (pool("p"), pool("q"))
    overlaid = apply(
        overlay("a", (CAPACITY_TYPE, "In", [SPOT]), price="1"),
        overlay("b", (CAPACITY_TYPE, "In", [ON_DEMAND]), (labels.NODEPOOL, "In", ["p"]), price="2"),
        overlay("c", (CAPACITY_TYPE, "In", [ON_DEMAND]), (labels.NODEPOOL, "In", ["q"]), price="3"),
        overlay("d", capacity={"a/x": 1}),
        overlay("e", capacity={"a/y": 1}),
        pools=pools,
    )
    assert overlaid.conflicts == {}
    m5 = [(prices(overlaid, p)["m5.large"], prices(overlaid, p, SPOT)["m5.large"]) for p in "pq"]
    assert m5 == [(2.0, 1.0), (3.0, 1.0)]
    assert added(overlaid, "q")["m5.large"] == {"a/x": 1, "a/y": 1}


def test_a_conflict_in_one_pool_keeps_an_overlay_out_of_all() -> None:
    pools = (pool("p"), pool("q"))
    overlaid = apply(overlay("a", price="1"), overlay("b", (labels.NODEPOOL, "In", ["q"]), price="2"), pools=pools)
    assert overlaid.conflicts["a"].startswith(
        "NodeOverlay b of the same weight 0 sets the price of c5.large in NodePool q"
    )
    assert [prices(overlaid, p)["m5.large"] for p in "pq"] == [10.0, 2.0]


def test_a_conflict_of_low_weights_does_not_matter_to_what_a_higher_weight_sets() -> None:
    overlaid = apply(
        overlay("high", weight=2, price="1"), overlay("a", weight=1, price="2"), overlay("b", weight=1, price="3")
    )
    assert list(overlaid.conflicts) == ["a"]  # as upstream: although neither decides the price
    assert set(prices(overlaid).values()) == {1.0}


def test_without_overlays_nothing_is_copied_and_what_no_overlay_changes_is_shared() -> None:
    assert apply().instance_types["p"] is TYPES
    pools = (pool("p"), pool("q"), pool("r"))
    overlaid = apply(
        overlay("o", (labels.NODEPOOL, "In", ["p", "q"]), (TYPE, "In", ["m5.large"]), price="1"), pools=pools
    )
    assert overlaid.instance_types["r"] is TYPES
    assert overlaid.instance_types["p"] is overlaid.instance_types["q"]
    assert overlaid.instance_types["p"][0] is TYPES[0]
    nothing = apply(overlay("o", (TYPE, "In", ["x9.large"]), price="1"))
    assert nothing.instance_types["p"] is TYPES


def test_identical_inputs_give_the_identical_instance_types() -> None:
    pools, cache = (pool("p"),), InstanceTypeCache()
    resolved = ResolvedNodePools(instance_types={"p": TYPES}, not_ready={}, node_classes={})
    first = with_overlays(resolved, pools, (overlay("o", price="1"),), cache)
    again = with_overlays(resolved, pools, (overlay("o", price="1"),), cache)
    assert first.instance_types["p"] is again.instance_types["p"]
    more_expensive = with_overlays(resolved, pools, (overlay("o", price="2"),), cache)
    assert {o.price for t in more_expensive.instance_types["p"] for o in t.offerings} == {2.0}
    labelled = with_overlays(resolved, (pool("p", example_team="x"),), (overlay("o", price="1"),), cache)
    assert labelled.instance_types["p"] is not first.instance_types["p"]


def test_a_node_has_the_price_of_its_offering_in_its_pool() -> None:
    applied = (overlay("o", (labels.NODEPOOL, "In", ["p"]), (ZONE, "In", ["a"]), priceAdjustment="-50%"),)
    node = {labels.NODEPOOL: "p", TYPE: "m5.large", ZONE: "a", CAPACITY_TYPE: ON_DEMAND}
    assert overlaid_price(10.0, node, applied) == 5.0
    assert overlaid_price(10.0, {**node, ZONE: "b"}, applied) == 10.0
    everywhere = (overlay("o", priceAdjustment="-50%"),)
    assert overlaid_price(10.0, {k: v for k, v in node.items() if k != labels.NODEPOOL}, everywhere) == 10.0


def test_the_status_says_which_overlays_are_applied_where_no_types_are_known() -> None:
    def with_ready(name: str, status: str) -> NodeOverlay:
        plain = overlay(name, price="1")
        conditions = [Condition(type="Ready", status=status, reason="R")]
        return type(plain)(metadata=plain.metadata, spec=plain.spec, status=type(plain.status)(conditions=conditions))

    overlays = [with_ready("a", "True"), with_ready("b", "False"), overlay("c", weight=1, price="1")]
    assert [o.name for o in ready_overlays(overlays)] == ["c", "a"]


KEYS = st.sampled_from(
    [
        (TYPE, "In", ["m5.large", "c5.large"]),
        (TYPE, "NotIn", ["m5.large"]),
        (CATEGORY, "In", ["m"]),
        (CAPACITY_TYPE, "In", [ON_DEMAND]),
        (ZONE, "In", ["a"]),
        (labels.NODEPOOL, "In", ["p"]),
        ("example/team", "Exists", []),
        (labels.RESERVATION_LABELS[0], "Exists", []),
    ]
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "priceAdjustment": st.sampled_from(["+1", "-1", "-50%", "+10%"]),
        "capacity": st.dictionaries(st.sampled_from(["a/x", "a/y"]), st.integers(1, 9), min_size=1),
        "weight": st.integers(1, 3),
    },
)
OVERLAYS = st.lists(st.tuples(st.lists(KEYS, max_size=2), SPECS), max_size=6).map(
    lambda drawn: [overlay(f"o{i}", *requirements, **spec) for i, (requirements, spec) in enumerate(drawn)]
)


@given(OVERLAYS, st.randoms())
def test_offerings_and_nodes_have_one_price_whatever_the_order_of_the_overlays(
    overlays: list[NodeOverlay], random: object
) -> None:
    pools = (pool("p"), pool("q", example_team="x"))
    overlaid = apply(*overlays, pools=pools)
    random.shuffle(overlays)  # type: ignore[attr-defined]  # a random.Random
    assert apply(*overlays, pools=pools) == overlaid
    assert {o.name for o in overlaid.applied} | overlaid.conflicts.keys() == {o.name for o in overlays}
    for node_pool in pools:
        for plain, changed in zip(TYPES, overlaid.instance_types[node_pool.name], strict=True):
            assert {**changed.capacity, **plain.capacity} == changed.capacity
            for before, after in zip(plain.offerings, changed.offerings, strict=True):
                node = {**labels_of(node_pool), **offering_labels(plain, before)}
                assert after.price == overlaid_price(before.price, node, overlaid.applied)
                assert with_fields(after, price=before.price, list_price=None) == before

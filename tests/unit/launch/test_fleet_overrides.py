"""The overrides of CreateFleet: only what the NodeClaim allows, the cheapest first, one subnet a zone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.api import labels
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.nodeclass import AMIRequirement, ResolvedAMI
from shared.instance_types.instance_type import InstanceType, Offering, meets
from shared.instance_types.interruption_rates import DEFAULT_RATE
from shared.instance_types.spot_risk import price_factor
from shared.launch.fleet.overrides import (
    NARROW_WIDTH,
    Override,
    narrowed,
    offering_labels,
    plan_fleet,
    without_unavailable,
)
from shared.launch.node_class.subnets import Subnet, best

ZONES = ("a", "b", "c")
SUBNETS = {zone: Subnet(f"subnet-{zone}", zone, "", 100) for zone in ZONES}
IMAGES = [
    ResolvedAMI(id="ami-amd", requirements=[AMIRequirement(key=labels.ARCH, operator="In", values=["amd64"])]),
    ResolvedAMI(id="ami-arm", requirements=[AMIRequirement(key=labels.ARCH, operator="In", values=["arm64"])]),
]

offerings = st.lists(
    st.builds(
        lambda zone, capacity_type, price, available: Offering(
            zone=zone, capacity_type=capacity_type, price=price, available=available
        ),
        st.sampled_from((*ZONES, "d")),
        st.sampled_from(("spot", "on-demand", "reserved")),
        st.floats(0.001, 5),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda o: (o.zone, o.capacity_type),
)
types = st.lists(st.tuples(st.sampled_from(("amd64", "arm64", "s390x")), offerings, st.booleans()), max_size=90).map(
    lambda drawn_types: tuple(
        InstanceType(
            name=f"m{i}.{'metal' if metal else 'large'}",
            labels={labels.INSTANCE_TYPE: f"m{i}.large", labels.ARCH: arch},
            capacity={"cpu": 2000},
            overhead={},
            offerings=tuple(type_offerings),
        )
        for i, (arch, type_offerings, metal) in enumerate(drawn_types)
    )
)
requirements = st.lists(
    st.one_of(
        st.builds(
            NodeSelectorRequirement,
            key=st.sampled_from((labels.ZONE, "failure-domain.beta.kubernetes.io/zone")),
            operator=st.sampled_from(("In", "NotIn")),
            values=st.lists(st.sampled_from(ZONES), min_size=1),
        ),
        st.builds(
            NodeSelectorRequirement,
            key=st.just(labels.CAPACITY_TYPE),
            operator=st.just("In"),
            values=st.lists(st.sampled_from(("spot", "on-demand", "reserved")), min_size=1),
        ),
        st.just(NodeSelectorRequirement(key="team", operator="In", values=["a"])),
    ),
    max_size=3,
)


@given(types, requirements)
def test_every_override_is_allowed_available_and_has_an_ami(
    instance_types: tuple[InstanceType, ...], required: list[NodeSelectorRequirement]
) -> None:
    planned = plan_fleet(instance_types, required, amis=IMAGES, subnets=SUBNETS)
    allowed = [
        (t, o)
        for t in instance_types
        for o in t.offerings
        if o.available
        and o.zone in SUBNETS
        and t.labels[labels.ARCH] != "s390x"
        and meets(offering_labels(t, o), required)
    ]
    assert (planned is None) == (not allowed)
    if planned is None:
        return
    assert 0 < len({c.instance_type.name for c in planned.overrides}) <= 60
    assert {c.offering.capacity_type for c in planned.overrides} == {planned.capacity_type}
    assert len({(c.instance_type.name, c.offering.zone) for c in planned.overrides}) == len(planned.overrides)
    for override in planned.overrides:
        assert (override.instance_type, override.offering) in allowed
        assert override.subnet.zone == override.offering.zone
        assert override.ami.id == ("ami-arm" if override.instance_type.labels[labels.ARCH] == "arm64" else "ami-amd")
    prices = [c.offering.price for c in planned.overrides]
    assert prices == sorted(prices)
    on_demand = [o.price for t, o in allowed if o.capacity_type == "on-demand" and "metal" not in t.name]
    if planned.capacity_type == "spot" and on_demand:
        assert max(prices) <= min(on_demand)


def test_numbers_are_compared_as_numbers() -> None:
    offered = {labels.INSTANCE_PREFIX + "cpu": "16"}

    def asks(operator: str, value: str) -> bool:
        return meets(
            offered, [NodeSelectorRequirement(key=labels.INSTANCE_PREFIX + "cpu", operator=operator, values=[value])]
        )

    assert [asks("Gt", "9"), asks("Gt", "16"), asks("Gte", "16"), asks("Lt", "100"), asks("Lte", "15")] == [
        True,
        False,
        True,
        True,
        False,
    ]


@given(st.lists(st.tuples(st.sampled_from(ZONES), st.integers(0, 300), st.integers(0, 300)), max_size=9))
def test_the_subnet_with_the_most_free_addresses_is_used(given_: list[tuple[str, int, int]]) -> None:
    subnets = [Subnet(f"subnet-{i}", zone, "", free) for i, (zone, free, _) in enumerate(given_)]
    reserved_addresses = {f"subnet-{i}": taken for i, (_, _, taken) in enumerate(given_)}
    chosen = best(subnets, reserved_addresses)
    assert set(chosen) == {s.zone for s in subnets}
    for subnet in subnets:
        taken = chosen[subnet.zone]
        assert (
            taken.free_addresses - reserved_addresses[taken.id] >= subnet.free_addresses - reserved_addresses[subnet.id]
        )


@given(
    types,
    st.floats(0, 2),
    st.dictionaries(st.sampled_from([(f"m{i}.large", z) for i in range(5) for z in "ab"]), st.floats(0, 0.1)),
)
def test_the_first_request_costs_nearly_the_least_whatever_ec2_chooses(
    instance_types: tuple[InstanceType, ...], cost: float, rates: dict[tuple[str, str], float]
) -> None:
    planned = plan_fleet(instance_types, [], amis=IMAGES, subnets=SUBNETS)
    if planned is None:
        return
    narrow = narrowed(planned, rates, interruption_cost=cost)
    if planned.capacity_type != labels.SPOT:
        assert narrow == planned
        return

    def expected(override: Override) -> float:
        rate = rates.get((override.instance_type.name, override.offering.zone), DEFAULT_RATE)
        price = override.offering.price
        return price + max(rate * cost, (price_factor(rate) - 1) * price)

    least = min(map(expected, planned.overrides))
    assert narrow.overrides
    assert all(expected(o) <= least * (1 + NARROW_WIDTH) + 1e-12 for o in narrow.overrides)
    left_out = without_unavailable(planned, {o.offering_key for o in narrow.overrides})
    assert left_out is None or all(expected(o) > least for o in left_out.overrides)
    if not rates:
        assert max(o.offering.price for o in narrow.overrides) <= (
            planned.overrides[0].offering.price + DEFAULT_RATE * cost
        ) * (1 + NARROW_WIDTH)

"""Claims that nearly agree are launched together, and nobody pays much or waits longer for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import ObjectMeta
from shared.api.nodepool import NodePool, NodePoolSpec
from shared.instances.offering import InstanceType
from shared.launch.merging import FEW, MANY, MANY_COST, fewer_launches, past_limits
from shared.scheduling.decision import Cheapest, PlannedClaim

SIZES = [2**n for n in range(1, 7)]
TYPES = {f"m5.{cpus}": cpus for cpus in SIZES}


def claim(cpu: int, *, zone: str = "a", pool: str = "default", at: int = 0) -> PlannedClaim:
    """A claim for so many cores: any type that has them, the smallest first; a core costs 1 $/h."""
    fitting = tuple(name for name, cpus in TYPES.items() if cpus >= cpu)
    return PlannedClaim(
        node_pool=pool,
        pods=(f"default/web-{cpu}-{at}",),
        instance_types=fitting,
        requirements=(
            NodeSelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=[zone]),
            NodeSelectorRequirement(key="node.kubernetes.io/instance-type", operator="In", values=list(fitting)),
        ),
        requests={"cpu": cpu, "pods": 1},
        labels={},
        taints=(),
        cheapest=Cheapest(instance_type=fitting[0], zone=zone, capacity_type="spot", price=float(TYPES[fitting[0]])),
    )


def groups(claims: tuple[PlannedClaim, ...]) -> int:
    return len({(c.instance_types, str(c.requirements)) for c in claims})


def price(claims: tuple[PlannedClaim, ...]) -> float:
    return sum(c.cheapest.price for c in claims)


def test_the_odd_machine_at_the_end_of_many_is_bought_as_one_of_them() -> None:
    planned = (*(claim(64, at=i) for i in range(10)), claim(16), claim(8), claim(2))
    made = fewer_launches(planned)
    assert groups(planned) == 4
    assert groups(made) == FEW
    assert price(made) - price(planned) == 6  # the machine of 2 cores has become one of 8


def test_few_launches_stay_as_they_are() -> None:
    planned = (claim(64), claim(16), claim(2))
    assert fewer_launches(planned) == planned


def test_what_would_cost_too_much_is_left() -> None:
    planned = (claim(64), claim(32), claim(16), claim(8))
    assert fewer_launches(planned) == planned


def test_claims_that_differ_in_more_than_types_are_never_joined() -> None:
    planned = (*(claim(64, at=i) for i in range(50)), *(claim(2, zone=zone) for zone in "bcde"))
    assert fewer_launches(planned) == planned


def test_claims_of_a_pool_near_its_limits_stay_as_planned() -> None:
    planned = (*(claim(64, at=i) for i in range(10)), claim(16), claim(8), claim(2))
    types = [InstanceType(name=n, labels={}, capacity={"cpu": c}, overhead={}, offerings=()) for n, c in TYPES.items()]
    largest = 13 * 64  # each claim may become the largest type
    for held, near in ((1000 - largest, set()), (1001 - largest, {"default"})):
        pools = [NodePool(metadata=ObjectMeta(name="default"), spec=NodePoolSpec(limits={"cpu": "1"}))]
        found = past_limits(planned, pools, held={"default": {"cpu": held}}, instance_types={"default": types})
        assert found == near
    assert fewer_launches(planned, limited={"default"}) == planned


@given(st.lists(st.tuples(st.integers(1, 64), st.sampled_from("ab")), max_size=40))
def test_every_claim_keeps_its_pods_and_gets_types_that_hold_them_at_a_bounded_price(
    asked: list[tuple[int, str]],
) -> None:
    planned = tuple(claim(cpu, zone=zone, at=i) for i, (cpu, zone) in enumerate(asked))
    made = fewer_launches(planned)
    assert [c.pods for c in made] == [c.pods for c in planned]
    for before, after in zip(planned, made, strict=True):
        assert after.requests == before.requests
        assert after.requirements[0] == before.requirements[0]
        assert all(TYPES[name] >= before.requests["cpu"] for name in after.instance_types)
    assert groups(made) <= groups(planned)
    assert price(made) <= price(planned) * (1 + MANY_COST) + 1e-9
    if groups(planned) <= MANY:
        assert groups(made) in {groups(planned), FEW}

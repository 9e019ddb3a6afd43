"""What commitments cover of running instances, and what one more instance costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.commitments.balance import Balance, bill, normalization_factor
from shared.commitments.commitment import Commitments, PlanKind, ReservedInstances, SavingsPlan
from shared.commitments.coverage import own_coverage

NOW = datetime(2026, 11, 24, tzinfo=UTC)
LATER = NOW + timedelta(days=300)
PRICES = {"m5.large": 0.096, "m5.xlarge": 0.192, "m5.4xlarge": 0.768, "c5.large": 0.085, "g5.xlarge": 1.006}
A, B = "us-east-1a", "us-east-1b"


def reserved(instance_type: str, count: int, zone: str = "", hourly: float = 0.06) -> ReservedInstances:
    return ReservedInstances(
        id=f"{instance_type}-{zone}", instance_type=instance_type, zone=zone, count=count, hourly=hourly, ends=LATER
    )


def plan(commitment: float, family: str = "", discount: float = 0.28) -> SavingsPlan:
    rates = {name: price * (1 - discount) for name, price in PRICES.items()}
    kind: PlanKind = "EC2Instance" if family else "Compute"
    return SavingsPlan(id=f"{kind}-{family}", kind=kind, family=family, commitment=commitment, rates=rates, ends=LATER)


def commitments(
    *bought: ReservedInstances | SavingsPlan, usage: dict[str, dict[str, int]] | None = None
) -> Commitments:
    return Commitments(
        fetched_at=NOW,
        reserved=tuple(b for b in bought if isinstance(b, ReservedInstances)),
        plans=tuple(b for b in bought if isinstance(b, SavingsPlan)),
        usage=usage or {},
    )


@pytest.mark.parametrize(
    ("instance_type", "factor"),
    [
        ("t3.nano", 0.25), ("t3.micro", 0.5), ("m5.large", 4), ("m5.xlarge", 8), ("m5.24xlarge", 192),
        ("m7i.metal-24xl", 192), ("m5.metal", None), ("g5.xlarge", None), ("u-6tb1.56xlarge", None),
    ],
)  # fmt: skip
def test_normalization_factors(instance_type: str, factor: float | None) -> None:
    assert normalization_factor(instance_type) == factor


def test_a_zonal_reservation_covers_one_type_in_one_zone_only() -> None:
    balance = Balance.of(commitments(reserved("m5.large", 2, A)))
    assert balance.uncovered_share(("m5.large", A)) == 0
    assert balance.uncovered_share(("m5.large", B)) == 1
    assert balance.uncovered_share(("m5.xlarge", A)) == 1
    assert balance.take(("m5.large", A), 3) == 1
    assert balance.is_used_up


def test_a_regional_reservation_covers_other_sizes_of_its_family_in_any_zone() -> None:
    balance = Balance.of(commitments(reserved("m5.xlarge", 1)))
    assert balance.uncovered_share(("m5.4xlarge", A)) == 0.75
    assert balance.take(("m5.large", A)) == 0
    assert balance.uncovered_share(("m5.large", B)) == 0
    assert balance.uncovered_share(("c5.large", A)) == 1


def test_a_reservation_of_a_family_without_size_flexibility_covers_its_own_size() -> None:
    balance = Balance.of(commitments(reserved("g5.xlarge", 1)))
    assert balance.uncovered_share(("g5.xlarge", A)) == 0
    assert balance.uncovered_share(("g5.2xlarge", A)) == 1


def test_a_savings_plan_is_used_at_the_rates_of_its_instances() -> None:
    balance = Balance.of(commitments(plan(0.1 * 0.72)))
    assert balance.uncovered_share(("m5.large", A)) == 0
    assert balance.uncovered_share(("m5.xlarge", A)) == pytest.approx(1 - 0.1 / 0.192)
    assert balance.take(("m5.large", A), 2) == pytest.approx(2 - 0.1 / 0.096)
    assert balance.uncovered_share(("c5.large", A)) == 1


def test_the_plan_of_a_family_comes_before_the_one_for_all() -> None:
    both = commitments(plan(0.1), plan(0.1, family="m5"))
    result = bill(both, {("m5.large", A): 1.0}, PRICES)
    assert (result.uncovered, result.committed) == (0, 0.2)
    assert result.unused == pytest.approx(0.2 - 0.096 * 0.72)
    left = Balance.of(both)
    left.take(("m5.large", A))
    assert [p.left for p in left.plans] == [pytest.approx(0.1 - 0.096 * 0.72), 0.1]


def test_reservations_come_before_plans_and_cover_the_smallest_instances_first() -> None:
    both = commitments(reserved("m5.large", 1), plan(0.05))
    result = bill(both, {("m5.large", A): 1.0, ("m5.4xlarge", A): 1.0}, PRICES)
    assert result.covered["m5.large", A] == 1
    assert result.uncovered == pytest.approx(0.768 - 0.05 / 0.72)
    assert result.unused == 0
    assert result.total == pytest.approx(0.06 + 0.05 + 0.768 - 0.05 / 0.72)


def test_what_is_unused_has_a_price() -> None:
    result = bill(commitments(reserved("m5.large", 4), plan(1.0)), {("m5.xlarge", A): 1.0}, PRICES)
    assert result.unused == pytest.approx(2 * 0.06 + 1.0)


KINDS = st.dictionaries(st.tuples(st.sampled_from(sorted(PRICES)), st.sampled_from((A, B))), st.integers(1, 9))


@given(
    usage=KINDS,
    large=st.integers(0, 9),
    zonal=st.integers(0, 5),
    compute=st.floats(0, 3),
    family=st.floats(0, 1),
    extra=st.sampled_from(sorted(PRICES)),
)
def test_no_bill_is_lower_than_what_is_committed_or_higher_than_list_prices(
    usage: dict[tuple[str, str], int], large: int, zonal: int, compute: float, family: float, extra: str
) -> None:
    bought = commitments(
        reserved("m5.large", large), reserved("m5.xlarge", zonal, B), plan(compute), plan(family, family="c5")
    )
    counts = {kind: float(n) for kind, n in usage.items()}
    result = bill(bought, counts, PRICES)
    listed = sum(n * PRICES[kind[0]] for kind, n in counts.items())
    assert -1e-9 <= result.uncovered <= listed + 1e-9
    assert -1e-9 <= result.unused <= result.committed + 1e-9
    assert all(-1e-9 <= result.covered[kind] <= n + 1e-9 for kind, n in counts.items())
    kind = (extra, A)
    more = bill(bought, {**counts, kind: counts.get(kind, 0.0) + 1}, PRICES)
    assert result.uncovered - 1e-9 <= more.uncovered <= result.uncovered + PRICES[extra] + 1e-9
    assert more.unused <= result.unused + 1e-9


def test_others_instances_are_covered_before_a_clusters_own() -> None:
    bought = commitments(reserved("m5.large", 3), usage={"": {f"m5.large/{A}": 1}, "mine": {f"m5.large/{A}": 7}})
    own = own_coverage(bought, [("n1", ("m5.large", A)), ("n2", ("m5.large", B))], cluster="mine")
    assert own.uncovered_shares == {"n1": 0, "n2": 0}
    assert own.unused.is_used_up
    assert own.without(["n1"]).uncovered_share(("m5.large", A)) == 0


@pytest.mark.parametrize(("share", "expected"), [(None, 0.75), (0.5, 0.5), (0.0, 1.0), (1.0, 0.0)])
def test_a_cluster_takes_its_share_of_what_is_unused(share: float | None, expected: float) -> None:
    """Of two reserved instances the other cluster uses one; with two instances to none, this one has a fourth."""
    bought = commitments(reserved("m5.xlarge", 2), usage={"mine": {}, "theirs": {f"m5.large/{A}": 2}})
    own = own_coverage(bought, [], cluster="mine", share=share)
    assert own.unused.uncovered_share(("m5.xlarge", A)) == pytest.approx(expected)


def test_what_has_ended_covers_nothing() -> None:
    bought = commitments(reserved("m5.large", 3), plan(1.0))
    assert Balance.of(bought.active(LATER - timedelta(seconds=1))).uncovered_share(("m5.large", A)) == 0
    assert Balance.of(bought.active(LATER)).is_used_up

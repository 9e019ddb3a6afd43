"""Clusters that share an account's CreateFleet calls without knowing of one another."""

from __future__ import annotations

import pytest

from bench.fleet_rate import CLUSTERS, HOUR, simulate
from shared.launch.fleet.rate_limit import MIN_RATE, REFILL, TokenBucket


@pytest.mark.parametrize("seed", range(3))
def test_twenty_clusters_that_launch_all_the_time_starve_none_of_180_others(seed: int) -> None:
    hour = simulate(clusters=CLUSTERS, noisy=20, seed=seed)
    assert hour.wait(0.5) < 1
    assert hour.wait(0.99) < 60
    assert max(hour.noisy_calls) < 1.5 * min(hour.noisy_calls)
    assert sum(hour.noisy_calls) + len(hour.waits) > 0.75 * HOUR * REFILL, "the account's calls are used"
    assert hour.throttled < HOUR * REFILL


def test_each_throttling_halves_the_rate_and_ten_minutes_restore_it() -> None:
    bucket = TokenBucket(5.0, 0.0)
    rates = []
    for at in range(8):
        bucket = bucket.throttled(float(at), jitter=0.0)
        rates.append(bucket.rate)
    assert rates[0] == REFILL / 2
    assert rates[:5] == sorted(rates[:5], reverse=True)
    assert min(rates) == pytest.approx(MIN_RATE, rel=0.1)
    assert bucket.refilled(7.0 + 600).rate == REFILL

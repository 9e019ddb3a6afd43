"""Clusters of one account that share EC2's bucket of CreateFleet calls: does each get its part?

Each cluster keeps its own rate (``shared/launch/fleet/rate_limit.py``) and knows of no other. Noisy clusters have
calls to make all the time; the others have one at a time, at random moments, ten minutes apart on average. Simulated
time: a call that its cluster's bucket or EC2 refuses is tried again within a second, as a queue's message is.
"""

from __future__ import annotations

import heapq
import random
from typing import Any

from shared.base.struct import MutableStruct, Struct
from shared.launch.fleet.rate_limit import BURST, REFILL, TokenBucket

CLUSTERS = 200
HOUR = 3600.0
QUIET_SECONDS = 600.0
"""The mean time between the calls of a cluster that isn't noisy."""
RETRY_SECONDS = 1.0
NOISY = (0, 1, 5, 20)
_SEED = 1


class AccountBucket(MutableStruct):
    """EC2's bucket of CreateFleet calls of an account and Region."""

    tokens: float = BURST
    at: float = 0.0

    def call(self, now: float) -> bool:
        """Whether EC2 takes the call."""
        self.tokens, self.at = min(BURST, self.tokens + (now - self.at) * REFILL), now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class SharedHour(Struct, kw_only=True):
    """What became of an hour: how long calls of quiet clusters waited (s), sorted; the calls of each noisy cluster."""

    waits: tuple[float, ...]
    noisy_calls: tuple[int, ...]
    throttled: int

    def wait(self, share: float) -> float:
        """How long at most this share of the quiet clusters' calls waited, in seconds."""
        return self.waits[min(len(self.waits) - 1, int(len(self.waits) * share))]


def simulate(*, clusters: int, noisy: int, seconds: float = HOUR, seed: int = _SEED) -> SharedHour:
    """The calls of that many clusters, of which the first are noisy."""
    draw = random.Random(seed)  # noqa: S311 (the same calls each time)
    account = AccountBucket()
    buckets = [TokenBucket(BURST, 0.0) for _ in range(clusters)]
    waits: list[float] = []
    calls, throttled = [0] * clusters, 0
    begins = [0.0 if cluster < noisy else draw.expovariate(1 / QUIET_SECONDS) for cluster in range(clusters)]
    queue = [(begin, cluster, begin) for cluster, begin in enumerate(begins)]
    heapq.heapify(queue)
    while queue[0][0] <= seconds:
        now, cluster, since = heapq.heappop(queue)
        taken = buckets[cluster].take(now)
        if taken is not None and account.call(now):
            buckets[cluster] = taken
            calls[cluster] += 1
            if cluster >= noisy:
                waits.append(now - since)
            since = now if cluster < noisy else now + draw.expovariate(1 / QUIET_SECONDS)
            heapq.heappush(queue, (since, cluster, since))
            continue
        if taken is not None:
            throttled += 1
            buckets[cluster] = taken.throttled(now, jitter=draw.random())
        heapq.heappush(queue, (now + draw.random() * RETRY_SECONDS, cluster, since))
    return SharedHour(waits=tuple(sorted(waits)), noisy_calls=tuple(calls[:noisy]), throttled=throttled)


def run() -> list[dict[str, Any]]:
    """A row for each number of noisy clusters."""
    rows = []
    for noisy in NOISY:
        hour = simulate(clusters=CLUSTERS, noisy=noisy)
        shares = f"; each noisy one made {min(hour.noisy_calls)} to {max(hour.noisy_calls)}" if noisy else ""
        rows.append(
            {
                "measurement": f"CreateFleet of {CLUSTERS} clusters, {noisy} of them noisy: wait of the others' calls",
                "target": "99 % below 3 minutes",
                "result": f"half {hour.wait(0.5):.1f} s, 99 % {hour.wait(0.99):.0f} s",
                "method": f"{len(hour.waits)} calls in a simulated hour, {hour.throttled / HOUR:.2f} throttled a second"
                + shares,
            }
        )
    return rows

"""Compares as long as asked for: ``python -m tests.real.differential --objects 20000 --placements 2000 --seed 7``.

Starts a real control plane (it is built once, by Go). Prints each difference that no listed reason explains, with the
seed and the smallest input that shows it; exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING

from local.real import binary
from tests.real.control_planes import api_server, scheduler
from tests.real.differential.input_comparisons import EvictionComparison, ObjectComparison, PlacementComparison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.real.differential.input_comparisons import Finding, Tally

_SECONDS_BETWEEN_REPORTS = 10


def main() -> int:
    """Compare, and report."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.real.differential", description="Compares with the real ones."
    )
    parser.add_argument("--objects", type=int, default=0, metavar="N", help="new objects, by both API servers")
    parser.add_argument("--placements", type=int, default=0, metavar="N", help="pods on nodes, by three schedulers")
    parser.add_argument("--evictions", type=int, default=0, metavar="N", help="evictions of pods under budgets")
    parser.add_argument("--kubernetes", choices=binary.MINORS, default=binary.EMBEDDED, help="of the real ones")
    parser.add_argument("--seed", type=int, default=None, help="of the first inputs; by default a random one")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)  # noqa: T201 (a command)
    differences = 0
    if args.objects or args.evictions:
        with api_server(args.kubernetes) as (server, store):
            objects = ObjectComparison(server)
            differences += _report("objects", args.objects, seed, objects.tally, objects.of_seed)
            evictions = EvictionComparison(server, store)
            differences += _report("evictions", args.evictions, seed, evictions.tally, evictions.findings)
    if args.placements:
        with scheduler(args.kubernetes) as cluster:
            placements = PlacementComparison(cluster)
            differences += _report("placements", args.placements, seed, placements.tally, placements.findings)
    return 1 if differences else 0


def _report(name: str, wanted: int, seed: int, tally: Tally, findings_of: Callable[[int], Iterable[Finding]]) -> int:
    """Compare seed after seed until that many inputs are compared. Returns how many differences were printed."""
    started = reported = time.monotonic()
    differences = 0
    while tally.judged < wanted:
        for finding in findings_of(seed):
            differences += 1
            print(f"  {finding}", flush=True)  # noqa: T201 (the same)
        seed += 1
        if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS or tally.judged >= wanted:
            reported = time.monotonic()
            print(  # noqa: T201 (the same)
                f"{name}: {tally.judged} of {wanted}, {tally.accepted} accepted, {tally.explained} with a listed "
                f"difference, {differences} unexplained, {reported - started:.0f} s",
                flush=True,
            )
    return differences


if __name__ == "__main__":
    sys.exit(main())

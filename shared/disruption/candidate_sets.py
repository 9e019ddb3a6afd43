"""Sets of nodes that may be worth giving up together, the likeliest first, without end.

First those whose pods fit into room that others have; then the ones that cost most beyond what their pods are worth, in
groups of every size; then changes of the best set found so far. Small clusters are gone through whole. Nothing here is
random: the same questions come in the same order.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared.disruption.candidate_matrix import deletable_candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from shared.disruption.candidate_matrix import CandidateMatrix

EXHAUSTIVE_LIMIT = 8
"""Up to so many candidates, every set of them is proposed."""


@dataclass(frozen=True, kw_only=True)
class BudgetedCandidates:
    """Rows with their pools, and how many of each pool may go."""

    pools: Sequence[str]
    remaining: Mapping[str, int]
    matrix: CandidateMatrix

    def within_budgets(self, order: Sequence[int], at_most: int | None = None) -> list[int]:
        """The first of these rows that budgets allow, so many at most."""
        left = dict(self.remaining)
        chosen: list[int] = []
        for i in order:
            if at_most is not None and len(chosen) >= at_most:
                break
            if left[self.pools[i]] > 0:
                left[self.pools[i]] -= 1
                chosen.append(i)
        return chosen


def candidate_sets(
    asked: BudgetedCandidates, best: Callable[[], tuple[int, ...]], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    """Sets of rows within budgets. ``best`` gives the best so far, ``blocked`` rows known to be immovable."""
    ground = asked.matrix
    count = len(asked.pools)
    excess = ground.excess_price_ratio()
    order = np.lexsort((np.arange(count), -excess)).tolist()
    if count <= EXHAUSTIVE_LIMIT:
        yield from _all(asked, order)
        return
    yield from _deletions(asked, order, blocked)
    yield from _groups(asked, order, blocked)
    yield from _changes(asked, order, best, blocked)


def _all(asked: BudgetedCandidates, order: Sequence[int]) -> Iterator[list[int]]:
    for size in range(1, len(order) + 1):
        for rows in itertools.combinations(order, size):
            if len(asked.within_budgets(rows)) == size:
                yield list(rows)


def _deletions(
    asked: BudgetedCandidates, order: Sequence[int], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    """Those that fit elsewhere; less of them where the core finds that they don't."""
    total = sum(asked.remaining.values())
    fits = deletable_candidates(asked.matrix, order, at_most=total)
    size = len(fits)
    known = 0
    while size > 0:
        chosen = [i for i in asked.within_budgets(fits, size) if i not in blocked()]
        if chosen:
            yield chosen
        if len(blocked()) == known:
            return
        known = len(blocked())
        size = size if size > len(chosen) else size // 2


def _groups(
    asked: BudgetedCandidates, order: Sequence[int], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    size = len(asked.within_budgets(order))
    while size > 0:
        chosen = asked.within_budgets([i for i in order if i not in blocked()], size)
        if chosen:
            yield chosen
        size //= 2


def _changes(
    asked: BudgetedCandidates,
    order: Sequence[int],
    best: Callable[[], tuple[int, ...]],
    blocked: Callable[[], Collection[int]],
) -> Iterator[list[int]]:
    """The best set with a run of others added or instead of its last ones, in runs that get shorter."""
    width = max(1, len(asked.within_budgets(order)) // 2)
    while True:
        for start in range(0, len(order), width):
            run = [i for i in order[start : start + width] if i not in blocked()]
            chosen = best()
            outside = [i for i in run if i not in chosen]
            if outside:
                added = asked.within_budgets([*chosen, *outside])
                if len(added) > len(chosen):
                    yield added
                kept = list(chosen)[: max(0, len(chosen) - len(outside))]
                yield asked.within_budgets([*kept, *outside])
            inside = [i for i in chosen if i not in set(run)]
            if inside and len(inside) < len(chosen):
                yield inside
        if width == 1:
            return
        width //= 2

"""The sets of candidates that consolidation evaluates, the most promising first, without end.

First come sets whose pods fit on other nodes. Next come the candidates whose price exceeds their resource value most,
in groups of every size. Then come neighbourhoods of the best set: changes in runs that get shorter. Small clusters are
enumerated completely. The order is deterministic.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import Struct
from shared.disruption.candidate_matrix import deletable_candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shared.disruption.candidate_matrix import CandidateMatrix

_MAX_PODS = 5_000
"""At most this many pods are tried on other nodes to find the candidates that can be deleted: half a second."""
EXHAUSTIVE_LIMIT = 8
"""Up to this many candidates, every set is evaluated."""


class BudgetedCandidates(Struct, kw_only=True):
    """The pool of each candidate (row of the matrix), and how many of each pool its budgets still allow.

    ``deletion_values`` are given where it is known for how long savings last. USD: what deleting each candidate saves
    in that time, minus its disruption cost.
    """

    pools: Sequence[str]
    remaining: Mapping[str, int]
    matrix: CandidateMatrix
    deletion_values: NDArray[np.float64] | None = None

    def within_budgets(self, rows: Sequence[int], at_most: int | None = None) -> list[int]:
        """The first of these rows that budgets allow together, at most that many."""
        remaining = dict(self.remaining)
        chosen: list[int] = []
        for row in rows:
            if at_most is not None and len(chosen) >= at_most:
                break
            if remaining[self.pools[row]] > 0:
                remaining[self.pools[row]] -= 1
                chosen.append(row)
        return chosen


def candidate_sets(
    candidates: BudgetedCandidates, best: Callable[[], tuple[int, ...]], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    """Sets of rows within budgets. ``best`` returns the best set so far, ``blocked`` the rows known to be blocked."""
    count = len(candidates.pools)
    ratio = candidates.matrix.excess_price_ratio()
    order = np.lexsort((np.arange(count), -ratio)).tolist()
    if count <= EXHAUSTIVE_LIMIT:
        yield from _all_sets(candidates, order)
        return
    yield from _deletions(candidates, order, blocked)
    yield from _groups(candidates, order, blocked)
    yield from _neighbourhoods(candidates, order, best, blocked)


def _all_sets(candidates: BudgetedCandidates, order: Sequence[int]) -> Iterator[list[int]]:
    for size in range(1, len(order) + 1):
        for rows in itertools.combinations(order, size):
            if len(candidates.within_budgets(rows)) == size:
                yield list(rows)


def _deletions(
    candidates: BudgetedCandidates, order: Sequence[int], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    """Candidates whose pods fit on other nodes; smaller sets where the scheduler finds that they don't."""
    if candidates.deletion_values is not None:
        deletable = _end_state(candidates, candidates.deletion_values, order)
    else:
        deletable = deletable_candidates(candidates.matrix, order, at_most=sum(candidates.remaining.values()))
    size = len(candidates.within_budgets(deletable))
    blocked_count = 0
    while size > 0:
        chosen = [i for i in candidates.within_budgets(deletable, size) if i not in blocked()]
        if chosen:
            yield chosen
        if len(blocked()) == blocked_count:
            return
        blocked_count = len(blocked())
        size = size if size > len(chosen) else size // 2


def _end_state(candidates: BudgetedCandidates, values: NDArray[np.float64], order: Sequence[int]) -> list[int]:
    """All candidates that can be deleted, the most valuable first; the others take their pods.

    Budgets may require several commands. Each deletes the first of them that are left, so no pod has to move twice.
    """
    worthwhile = [row for row in order if values[row] > 0]
    by_price = sorted(worthwhile, key=lambda row: (-candidates.matrix.price[row], row))
    ends = [
        deletable_candidates(candidates.matrix, rows, at_most=len(rows), max_pods=_MAX_PODS)
        for rows in (worthwhile, by_price)
    ]
    best = max(ends, key=lambda rows: float(values[rows].sum()))
    return sorted(best, key=lambda row: (-values[row], row))


def _groups(
    candidates: BudgetedCandidates, order: Sequence[int], blocked: Callable[[], Collection[int]]
) -> Iterator[list[int]]:
    size = len(candidates.within_budgets(order))
    while size > 0:
        chosen = candidates.within_budgets([i for i in order if i not in blocked()], size)
        if chosen:
            yield chosen
        size //= 2


def _neighbourhoods(
    candidates: BudgetedCandidates,
    order: Sequence[int],
    best: Callable[[], tuple[int, ...]],
    blocked: Callable[[], Collection[int]],
) -> Iterator[list[int]]:
    """The best set plus a run of others, with its last ones replaced by a run, and without a run; runs get shorter."""
    length = max(1, len(candidates.within_budgets(order)) // 2)
    while True:
        for start in range(0, len(order), length):
            run = [i for i in order[start : start + length] if i not in blocked()]
            chosen = best()
            outside = [i for i in run if i not in chosen]
            if outside:
                added = candidates.within_budgets([*chosen, *outside])
                if len(added) > len(chosen):
                    yield added
                kept = list(chosen)[: max(0, len(chosen) - len(outside))]
                yield candidates.within_budgets([*kept, *outside])
            inside = [i for i in chosen if i not in set(run)]
            if inside and len(inside) < len(chosen):
                yield inside
        if length == 1:
            return
        length //= 2

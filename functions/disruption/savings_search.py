"""Consolidation's search for savings. It takes seconds, so it runs without the lease, and not again without need.

A warm process remembers that it has searched this cluster and found nothing (:mod:`functions.disruption.no_savings`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from functions.disruption.no_savings import NoSavings, fingerprint
from shared.base.struct import Struct
from shared.disruption import consolidation, disruption_queue
from shared.disruption.command import UNDERUTILIZED

if TYPE_CHECKING:
    from datetime import datetime

    from functions.disruption.replacements import Replacements
    from shared.base.runtime import Runtime
    from shared.disruption.budgets import BudgetTracker
    from shared.disruption.command import MethodResult
    from shared.disruption.disruption_state import DisruptionState
    from shared.snapshot import Snapshot

_SEARCH_TIMEOUT = timedelta(seconds=15)
"""How long consolidation searches in one run; the next run starts from the cluster as it is then."""
_CACHE_KEY = "disruption:nothing-to-save"


class SavingsSearch(Struct, kw_only=True):
    """The search of one reconcile. ``until``: it stops then at the latest."""

    replacements: Replacements
    runtime: Runtime
    until: datetime

    def search(self, state: DisruptionState, budgets: BudgetTracker) -> MethodResult | None:
        """The commands that save most; None if no search is needed, or there is no catalog."""
        due = consolidation.due_candidates(state)
        if not due or _is_consolidating(state.snapshot):
            return None
        inputs = fingerprint(state, due, budgets)
        known: NoSavings | None = self.runtime.cache.get(_CACHE_KEY)
        no_savings = known if known is not None and known.fingerprint == inputs else None
        if no_savings is not None and state.now < no_savings.until:
            return None
        with_prices = self.replacements.with_prices(state)
        if with_prices is None:
            return None
        end = min(self.until, self.runtime.now() + _SEARCH_TIMEOUT)
        result = consolidation.compute(with_prices, budgets, lambda: self.runtime.now() >= end)
        if not result.commands:
            self.runtime.cache[_CACHE_KEY] = NoSavings(
                fingerprint=inputs,
                since=no_savings.since if no_savings is not None else state.now,
                searched_at=state.now,
                next_savings_at=result.next_savings_at,
            )
        return result


def _is_consolidating(snapshot: Snapshot) -> bool:
    """Whether a consolidation is in the queue; the next one waits for it, so that it sees its effect."""
    entries = (disruption_queue.queue_entry(c) for c in snapshot.node_claims if disruption_queue.is_queued(c))
    return any(entry is not None and entry.reason == UNDERUTILIZED for entry in entries)

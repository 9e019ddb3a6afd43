"""Counters of reboots in place, from one read of the cluster to the next, with Karpenter's results.

A reboot's outcome is the condition Rebooting of its NodeClaim. Reboots that end in something else (an interruption, a
deletion by users) have none, and aren't counted.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from shared.api import nodeclaim, reboot
from shared.api.meta import condition
from shared.api.nodeclaim import is_rebooting
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cli.export.families import Family
    from shared.api.meta import Condition
    from shared.api.nodeclaim import NodeClaim

SUCCEEDED, INVALID = "succeeded", "invalid_request"
NOT_CALLED, NOT_BACK = "provider_error", "recovery_timeout"
RESULTS = (SUCCEEDED, NOT_CALLED, NOT_BACK, INVALID)


class _Reboot(Struct):
    """What was seen of a reboot that hasn't ended; ``issued`` is since when its node is down."""

    requested: datetime | None
    issued: datetime | None


class ObservedReboots:
    """Counts from one snapshot to the next."""

    def __init__(self) -> None:
        self._running: dict[str, _Reboot] = {}
        self._ended: dict[str, datetime | None] | None = None
        """When the last reboot of each NodeClaim ended, by uid; None before the first snapshot."""
        self._requests = 0
        self._counts: Counter[str] = Counter()
        self._durations: dict[tuple[str, str], timedelta] = {}
        """The sum by metric and result."""
        self._measured: Counter[tuple[str, str]] = Counter()

    def observe(self, claims: Iterable[NodeClaim]) -> None:
        """Count the reboots that have ended since the last snapshot; the first one is only remembered."""
        running: dict[str, _Reboot] = {}
        ended: dict[str, datetime | None] = {}
        for claim in claims:
            uid = claim.metadata.uid
            if is_rebooting(claim):
                is_issued = reboot.phase(claim) == reboot.ISSUED
                self._requests += self._ended is not None and uid not in self._running
                running[uid] = _Reboot(reboot.requested_at(claim), reboot.issued_at(claim) if is_issued else None)
            elif (outcome := condition(claim.status.conditions, nodeclaim.REBOOTING)) is not None:
                ended[uid] = outcome.last_transition_time
                if self._ended is not None and self._ended.get(uid) != ended[uid]:
                    self._count(claim, outcome, self._running.get(uid, _Reboot(None, None)))
        self._running, self._ended = running, ended

    def samples(self) -> Iterator[Sample]:
        """The counters now, of each result from the start."""
        yield sample(families.DECISIONS, self._requests, decision="reboot", reason="unhealthy")
        for result in RESULTS:
            yield sample(families.REBOOTS, self._counts[result], result=result)
        for family, results in ((families.REBOOT_DURATION, RESULTS), (families.REBOOT_RECOVERY, ("",))):
            for result in results:
                key = family.name, result
                seconds = self._durations.get(key, timedelta()).total_seconds()
                yield sample(family, self._measured[key], suffix="_count", result=result)
                yield sample(family, seconds, suffix="_sum", result=result)

    def _count(self, claim: NodeClaim, outcome: Condition, before: _Reboot) -> None:
        result = _result(claim, outcome, before)
        self._counts[result] += 1
        self._measure(families.REBOOT_DURATION, result, before.requested, outcome.last_transition_time)
        if result == SUCCEEDED:
            self._measure(families.REBOOT_RECOVERY, "", before.issued, outcome.last_transition_time)

    def _measure(self, family: Family, result: str, since: datetime | None, until: datetime | None) -> None:
        if since is not None and until is not None:
            key = family.name, result
            self._measured[key] += 1
            self._durations[key] = self._durations.get(key, timedelta()) + (until - since)


def _result(claim: NodeClaim, outcome: Condition, before: _Reboot) -> str:
    """A reboot that failed has deleted its NodeClaim, unless its request couldn't be read."""
    if outcome.reason == reboot.SUCCEEDED:
        return SUCCEEDED
    if claim.metadata.deletion_timestamp is None:
        return INVALID
    return NOT_BACK if before.issued is not None else NOT_CALLED

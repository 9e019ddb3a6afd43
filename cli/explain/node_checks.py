"""The checks of disruption for one node: what allows it, what blocks it, and what consolidation would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.explain.explanation import Check
from shared.api import nodeclaim
from shared.api.pods import is_daemon, is_mirror
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.disruption import candidates, consolidation, drift, repair, savings
from shared.disruption.budgets import allowed_disruptions, budget_problems, hold
from shared.disruption.command import DRIFTED, EMPTY, EXPIRED, UNDERUTILIZED, UNHEALTHY, Blocker
from shared.disruption.soft_taints import could_go, soft_taint_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.disruption.candidates import Candidate
    from shared.disruption.command import Command
    from shared.disruption.disruption_state import DisruptionState

SAVES = "saves"
"""The check of what the removal of the node alone would save."""
_MAX_INSTANCE_TYPES = 5
_MAX_PODS = 3
_COULD_GO = "avoid the node, by soft taints: its pods would fit on other nodes of the NodePool and zone"
_LESS_USED = "first fill nodes of the NodePool and zone that are used more, by a soft taint"


class NodeChecks(Struct, kw_only=True):
    """One candidate for disruption, and the cluster that it is checked in."""

    view: DisruptionState
    candidate: Candidate

    def all(self) -> tuple[Check, ...]:
        """All checks, in the order in which disruption makes them."""
        pods = [p for p in self.view.pods.get(self.candidate.name, ()) if not (is_daemon(p) or is_mirror(p))]
        expires = nodeclaim.expiration_time(self.candidate.claim)
        drifted = drift.disruption_message(self.view, self.candidate)
        unhealthy = repair.disruption_message(self.view, self.candidate)
        checks = [
            self._blocked(),
            *([Check(name="unhealthy", ok=None, detail=unhealthy)] if unhealthy else []),
            Check(name="expires", ok=None, detail=_expiration(expires, self.view.now)),
            Check(name="drifted", ok=None, detail=drifted or "no, it matches its NodePool and node class"),
            Check(name="empty", ok=None, detail=f"no: {_names(pods)}" if pods else "yes"),
        ]
        is_expired = expires is not None and expires <= self.view.now
        replaced = ((UNHEALTHY, bool(unhealthy)), (EXPIRED, is_expired), (DRIFTED, bool(drifted)))
        reasons = [reason for reason, holds in replaced if holds]
        checks += self._budgets([*reasons, UNDERUTILIZED if pods else EMPTY])
        if pods:
            checks += [*self._policy(), self._savings(), self._savings_duration()]
            if consolidation.pending_pods_need_nodes(self.view):
                checks.append(Check(name="pending pods", ok=False, detail="they need new nodes first"))
        elif self.candidate.pool.spec.disruption.consolidate_after == "Never":
            checks.append(Check(name="consolidateAfter", ok=False, detail="Never: empty nodes are kept"))
        checks += self._soft_taints()
        return tuple(checks)

    def _soft_taints(self) -> list[Check]:
        node = self.candidate.node
        detail = _COULD_GO if could_go(node) else _LESS_USED
        return [Check(name="new pods", ok=None, detail=detail)] if soft_taint_count(node) else []

    def _blocked(self) -> Check:
        blocker = candidates.disruption_blocker(self.view, self.candidate)
        detail = blocker.message if blocker is not None else "nothing blocks it"
        return Check(name="may be disrupted", ok=blocker is None, detail=detail)

    def _budgets(self, reasons: Sequence[str]) -> list[Check]:
        pool = self.candidate.pool
        if problems := budget_problems(pool):
            detail = f"NodePool {pool.name} allows none until its budgets are mended: {'; '.join(problems)}"
            return [Check(name="budgets", ok=False, detail=detail)]
        checks = []
        for reason in reasons:
            allowed = allowed_disruptions(pool, self.view.snapshot, reason=reason, now=self.view.now)
            held = "" if allowed else hold(pool, self.view.snapshot, reason=reason, now=self.view.now)
            detail = held or f"NodePool {pool.name} allows {allowed} more now"
            checks.append(Check(name=f"budgets for {reason}", ok=allowed > 0, detail=detail))
        return checks

    def _policy(self) -> list[Check]:
        disruption = self.candidate.pool.spec.disruption
        policy, after = disruption.consolidation_policy, disruption.consolidate_after
        if policy == "WhenEmpty":
            detail = f"WhenEmpty: NodePool {self.candidate.pool.name} only consolidates empty nodes"
            return [Check(name="consolidationPolicy", ok=False, detail=detail)]
        if after == "Never":
            return [Check(name="consolidateAfter", ok=False, detail="Never: nodes are not consolidated")]
        now = self.view.now
        due = consolidation.due_time(self.candidate) or now
        is_due = due <= now
        rest = "is over" if is_due else f"ends in {terminal.age(due - now)}"
        return [
            Check(name="consolidationPolicy", ok=True, detail=policy),
            Check(name="consolidateAfter", ok=is_due, detail=f"{after} after its last new pod, which {rest}"),
        ]

    def _savings_duration(self) -> Check:
        """How long savings are expected to last, and why."""
        pool = self.candidate.pool.name
        evidence = self.view.evidence.get(pool)
        duration = savings.savings_duration(
            self.candidate, time_since_launch=self.view.time_since_launch(pool), now=self.view.now, evidence=evidence
        )
        created = self.candidate.claim.metadata.creation_timestamp
        why = evidence.why if evidence is not None and evidence.applies_to(created) else "by the node's age"
        hours = f"{duration.short_term:.1f} h"
        if duration.long_term > duration.short_term:
            hours += f", or {duration.long_term:.1f} h where nothing pays back sooner"
        return Check(name="savings last", ok=None, detail=f"about {hours}: {why}")

    def _savings(self) -> Check:
        """What the disruption of this node alone would save, after what it costs."""
        alone = consolidation.remove_alone(self.view, self.candidate)
        if isinstance(alone, Blocker):
            return Check(name=SAVES, ok=False, detail=alone.message)
        return Check(name=SAVES, ok=True, detail=self._saving(alone))

    def _saving(self, alone: Command) -> str:
        count = len(self.candidate.pods)
        saved, pods = f"{terminal.usd(alone.savings)}/h", plural(count, "pod")
        if not alone.replacements:
            return f"{saved}: its {pods} {'fits' if count == 1 else 'fit'} on other nodes"
        replacements = ", ".join(
            f"{c.cheapest.instance_type} {c.cheapest.capacity_type}" for c in alone.replacements[:_MAX_INSTANCE_TYPES]
        )
        price = sum(c.cheapest.effective_price for c in alone.replacements)
        return (
            f"{saved}: its {pods} would get {replacements} for {terminal.usd(price)}/h; the node costs "
            f"{terminal.usd(price + alone.savings)}/h"
        )


def _expiration(expires: datetime | None, now: datetime) -> str:
    if expires is None:
        return "never"
    if expires > now:
        return f"in {terminal.age(expires - now)}"
    return f"{terminal.age(now - expires)} ago: it may be replaced"


def _names(pods: Sequence[Pod]) -> str:
    keys = sorted(p.key for p in pods)
    return f"{', '.join(keys[:_MAX_PODS])}{f' and {len(keys) - _MAX_PODS} more' if len(keys) > _MAX_PODS else ''}"

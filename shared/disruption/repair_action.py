"""What is done about an unhealthy node: it is replaced, or rebooted in place.

It is rebooted where the policy of its condition says so, its NodePool allows it, the deployment has the right, and it
wasn't rebooted twice within a day already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.labels import NODE_REPAIR
from shared.api.meta import EventReason
from shared.api.reboot import may_reboot
from shared.disruption.command import REBOOT, REPLACE, DisruptionWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.disruption.candidates import Candidate
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.repair_policies import RepairDecision

REBOOT_NOT_POSSIBLE = EventReason("RebootNotPossible")
_OFF = (
    f"annotation {NODE_REPAIR} of its NodePool asks for a reboot, and reboots are off: -c reboot=on gives the "
    "lifecycle function ec2:RebootInstances; until then the node is replaced"
)


def repair_action(state: DisruptionState, candidate: Candidate, decision: RepairDecision) -> str:
    """What is done about the node."""
    if not (state.reboots and _asks_for_reboot(candidate, decision)):
        return REPLACE
    return REBOOT if may_reboot(candidate.claim, now=state.now) else REPLACE


def reboot_warnings(
    state: DisruptionState, unhealthy: Iterable[tuple[Candidate, RepairDecision]]
) -> Iterator[DisruptionWarning]:
    """Of each node that would be rebooted if the deployment had the right, that it hasn't."""
    for candidate, decision in unhealthy if not state.reboots else ():
        if _asks_for_reboot(candidate, decision):
            yield DisruptionWarning(ref=candidate.node.ref, reason=REBOOT_NOT_POSSIBLE, message=_OFF)


def _asks_for_reboot(candidate: Candidate, decision: RepairDecision) -> bool:
    return decision.action == REBOOT and candidate.pool.repairs_by_reboot

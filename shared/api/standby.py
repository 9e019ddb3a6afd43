"""Standby nodes: what a NodePool asks for, and the states of a NodeClaim whose node is one.

A standby node is a stopped instance that has booted and joined once. Its NodeClaim has annotation
``tenon.sh/standby``, which says what it is now; without it the NodeClaim is like any other:

- *warming*: launched to be stopped. Its node is cordoned, so that only DaemonSets' pods run there, and is stopped when
  they are ready.
- *stopped*: the instance is stopped, and the node isn't Ready.
- *starting*: a decision needs the node, so its instance is started. The annotation goes when the node is Ready.

StopInstances is only called while a NodeClaim is *warming*, StartInstances only while it is *starting*, and each change
of state names the resourceVersion that it follows from. So no function stops an instance that another one starts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import annotated, condition
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodepool import NodePool

WARMING, STOPPED, STARTING = "warming", "stopped", "starting"
_STATES = frozenset({WARMING, STOPPED, STARTING})
MAX_COUNT = 100
"""The most standby nodes of a NodePool: a slip of the finger must not buy a thousand machines."""
STARTED = "Started"
"""Reason of condition Launched once a standby node's instance was started for pods."""
_WANTED = re.compile(r"(\d{1,4})(?:\s+([a-z0-9-]+\.[a-z0-9-]+))?")


class WantedStandbys(Struct, kw_only=True):
    """How many standby nodes a NodePool wants, of which instance type ("": Tenon's choice); or what is wrong."""

    count: int = 0
    instance_type: str = ""
    error: str = ""


def wanted_standbys(pool: NodePool) -> WantedStandbys:
    """What the NodePool's annotation asks for, or its template's; nothing while the NodePool is being deleted."""
    own, template = pool.metadata.annotations, pool.spec.template.metadata.annotations
    text = own.get(names.STANDBY, template.get(names.STANDBY, "")).strip()
    if not text or pool.metadata.deletion_timestamp is not None:
        return WantedStandbys()
    match = _WANTED.fullmatch(text)
    if match is None:
        return WantedStandbys(
            error=f'annotation {names.STANDBY}: "{text}" must be a number, or a number and an instance type'
        )
    count = int(match[1])
    if count > MAX_COUNT:
        return WantedStandbys(error=f"annotation {names.STANDBY}: {count} must be at most {MAX_COUNT}")
    return WantedStandbys(count=count, instance_type=match[2] or "")


def standby_state(claim: NodeClaim) -> str:
    """Warming, stopped or starting; "" if the NodeClaim is like any other."""
    state = claim.metadata.annotations.get(names.STANDBY, "")
    return state if state in _STATES else ""


def is_held(claim: NodeClaim) -> bool:
    """Whether the NodeClaim's node is kept on standby: no pods but DaemonSets' run there, or ever have."""
    return standby_state(claim) in {WARMING, STOPPED}


def awaits_start(claim: NodeClaim) -> bool:
    """Whether a decision needs the node, and StartInstances may not have been called yet."""
    return standby_state(claim) == STARTING and not was_standby(claim)


def was_standby(claim: NodeClaim) -> bool:
    """Whether the NodeClaim's instance was started from standby: it was created long before it was needed."""
    launched = condition(claim.status.conditions, nodeclaim.LAUNCHED)
    return launched is not None and launched.reason == STARTED


def with_annotations(claim: NodeClaim, annotations: Mapping[str, str | None], *, expected: str) -> NodeClaim:
    """The NodeClaim with these annotations (None: without), if it still is in the expected state; else as it is."""
    if standby_state(claim) != expected:
        return claim
    return with_fields(claim, metadata=annotated(claim.metadata, annotations))

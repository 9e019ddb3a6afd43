"""What pools could launch now, and the claims of planned machines: the steps that everyone who buys has in common."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shared import aws
from shared.instances import unavailable
from shared.launch import supply
from shared.lifecycle import claims as claim_making

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.info import ClusterInfo
    from shared.instances.catalog import RawCatalog
    from shared.launch.supply import Supply
    from shared.scheduling.decision import PlannedClaim
    from shared.snapshot import Snapshot

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def offers(
    snapshot: Snapshot,
    raw: RawCatalog,
    cluster: ClusterInfo,
    *,
    table: str,
    default_instance_profile: str,
    now: datetime,
    lately: bool = False,
) -> Supply:
    """What the snapshot's pools could launch now; ``table`` is DynamoDB's, which keeps what has no capacity.

    ``lately``: only what was refused lately counts as having none (:data:`shared.instances.unavailable.ASK_AGAIN`).
    """
    return supply.gather(
        snapshot.node_pools,
        snapshot.node_classes,
        raw,
        cluster,
        unavailable={
            offering
            for offering, at in unavailable.marked(aws.dynamodb(), table, now=now).items()
            if not lately or now - at < unavailable.ASK_AGAIN
        },
        default_instance_profile=default_instance_profile,
        now=now,
        nodes=snapshot.nodes,
        claims=snapshot.node_claims,
    )


def planned(
    machines: Iterable[PlannedClaim], snapshot: Snapshot, supply_: Supply, *, decision: str
) -> tuple[NodeClaim, ...]:
    """The claims of planned machines, not written yet; their names follow from the decision's id."""
    pools = {p.name: p for p in snapshot.node_pools}
    return tuple(
        claim_making.claim_for(
            one,
            pools[one.node_pool],
            supply_.node_classes[one.node_pool],
            decision=decision,
            name=f"{one.node_pool}-{_suffix(decision, i)}",
        )
        for i, one in enumerate(machines)
    )


def _suffix(decision: str, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same decision."""
    digest = hashlib.sha256(f"{decision}/{index}".encode()).digest()
    return "".join(_LETTERS[b % len(_LETTERS)] for b in digest[:5])

"""One round of provisioning, under the cluster's lease: read, adjust, decide, adjust, write.

The lease also covers the creation of the NodeClaims. If a run dies after writing, the next run of any function launches
them: every round returns those that aren't launched yet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.cluster.lease import hold
from shared.cluster.snapshot_reader import read_snapshot
from shared.provisioning.features.doors import FEATURES
from shared.provisioning.launch_records import nominated_claims
from shared.provisioning.launching import add_planned_pods, unlaunched_claims
from shared.provisioning.nodeclaim_creation import batch_launches, one_on_trial
from shared.provisioning.round import Round, schedule_with

if TYPE_CHECKING:
    from shared.cluster.lease import Lease
    from shared.provisioning.round import Feature, Provisioning


def schedule_round(provisioning: Provisioning, attempt: int, leaving: frozenset[str]) -> Round:
    """Schedule pending pods and those of ``leaving`` nodes (by name), which take no pods.

    Raises:
        LeaseHeldError: another function is deciding.
        LeaseLostError: this one took too long; nothing is written.
    """
    cluster, holder = provisioning.settings.cluster_name, f"{provisioning.by}/{provisioning.run}"
    with hold(provisioning.client, cluster=cluster, holder=holder, now=provisioning.clock) as lease:
        round_ = _read(provisioning, lease, attempt, leaving)
        features: list[Feature] = []
        for door in FEATURES:
            if feature := door(provisioning, round_):
                features.insert(0, feature)
                round_ = feature.before(round_)
        round_ = provisioning.decide(round_)
        for feature in features:
            round_ = feature.after(round_)
        lease.check()
        round_ = replace(round_, unlaunched=unlaunched_claims(round_.snapshot.node_claims))
        for feature in features:
            round_ = feature.write(round_)
        return _create_planned(provisioning, round_)


def _read(provisioning: Provisioning, lease: Lease, attempt: int, leaving: frozenset[str]) -> Round:
    now = provisioning.clock()
    return Round(
        lease=lease,
        now=now,
        attempt=attempt,
        leaving=leaving,
        decision_id=f"{provisioning.run}/{attempt}",
        snapshot=read_snapshot(provisioning.client, now=now, leaving=leaving),
        schedule=partial(schedule_with, leaving=leaving),
    )


def _create_planned(provisioning: Provisioning, round_: Round) -> Round:
    """Write the NodeClaims of the decision, and the pods that it adds to nodes on their way."""
    decision, snapshot, pools = round_.decision, round_.snapshot, round_.resolved_pools
    planned = one_on_trial(batch_launches(decision, snapshot, pools), snapshot.node_claims, pools)
    prices = {c.pods + c.chunks: c.cheapest.price for c in decision.new_node_claims}
    claims = provisioning.create_node_claims(planned, round_, decision_id=round_.decision_id, prices=prices)
    add_planned_pods(provisioning.client, decision, snapshot)
    on_new = {pod: claim.name for plan, claim in zip(planned, claims, strict=True) for pod in plan.pods}
    created = (*round_.created, *claims)
    return replace(
        round_,
        created=created,
        unlaunched=unlaunched_claims(round_.unlaunched, created),
        nominated_claims={**nominated_claims(decision, snapshot), **on_new},
    )

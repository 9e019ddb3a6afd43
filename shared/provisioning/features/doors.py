"""The optional features of provisioning, in their order, and when each is on.

A door looks at the round and the settings, and imports its feature only if that is on. Each feature's ``before`` runs
in the order of the list, ``after`` and ``write`` in the reverse order: the first feature is around all others.
The order follows from what features see of each other:

- gangs come last of all after the decision: whatever has cut one, nothing is launched for its rest;
- hourly limits come last but for these: they hold back what would be launched, and count the rest;
- a zonal shift only changes what the snapshot says, which all others see;
- a pause is around everything else: its pods wait whatever else is decided, and nothing that it keeps back is launched;
- standby nodes are hidden before replicas are counted and groups are read, and are used instead of nodes that the
  brake still allows;
- expected growth changes how everything after it is decided;
- what NodePools can launch follows from the snapshot that is left;
- replicas of static NodePools exist before pods are scheduled;
- node groups take part in every decision of the round, so that of the brake, too;
- the brake decides again before anything else changes the decision;
- annotations of pods are only reported, so their place doesn't matter.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import waited
from shared.provisioning.round import SETTLING_SECONDS, LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.api.nodeclaim import NodeClaim
    from shared.provisioning.round import Feature, Provisioning, Round

FEW_NODES = 100
"""A cluster with fewer NodeClaims and waiting pods than this is far from any hourly limit, unless one is set."""
SETTLED = timedelta(minutes=30)
"""A cluster without any node of this age has only just begun to grow, which says nothing about the next hour."""
_REPORTED = frozenset({names.SPOT_SHARE, names.LOST_WORK})
_COUNTED = frozenset({names.HOURLY_LIMITS, names.CLUSTER_HOURLY_LIMITS, names.STANDBY})


def _hourly_limits(provisioning: Provisioning, round_: Round) -> Feature | None:
    snapshot, leaving = round_.snapshot, round_.leaving
    claims, pools = snapshot.node_claims, snapshot.node_pools
    has_limits = any(not _COUNTED.isdisjoint(p.metadata.annotations) or p.spec.replicas is not None for p in pools)
    # As many nodes as pods at most, if nothing else asks for any.
    is_large = len(claims) + sum(not pod.spec.node_name for pod in snapshot.pods) >= FEW_NODES
    are_removed = any(c.status.node_name in leaving for c in claims if c.metadata.deletion_timestamp is None)
    is_counted = names.LAST_HOUR in round_.lease.annotations
    if not (has_limits or is_large or are_removed or is_counted or snapshot.capacity_buffers):
        return None
    from shared.provisioning.features.hourly_limits import hourly_limits

    return hourly_limits(provisioning, round_)


def remember_failed_launches(provisioning: Provisioning, round_: Round, claims: Sequence[NodeClaim]) -> None:
    """Remember the NodeClaims that got no instance, if the round has counted them in the last hour."""
    if not claims or names.LAST_HOUR not in round_.lease_annotations:
        return
    from shared.provisioning.features import failed_launches

    failed_launches.remember(provisioning, claims, now=round_.now)


def _gangs(provisioning: Provisioning, round_: Round) -> Feature | None:
    if not round_.snapshot.pod_groups:
        return None
    from shared.provisioning.features.gangs import gangs

    return gangs(provisioning, round_)


def _zonal_shift(provisioning: Provisioning, round_: Round) -> Feature | None:
    if names.SHIFTED_ZONES not in round_.lease.annotations:
        return None
    from shared.provisioning.features.zonal_shift import zonal_shift

    return zonal_shift(provisioning, round_)


def _pause(provisioning: Provisioning, round_: Round) -> Feature | None:
    if names.PAUSED not in round_.lease.annotations:
        return None
    from shared.provisioning.features.pause import paused_provisioning

    return paused_provisioning(provisioning, round_)


def _standby_nodes(provisioning: Provisioning, round_: Round) -> Feature | None:
    snapshot = round_.snapshot
    annotations = (
        *(claim.metadata.annotations for claim in snapshot.node_claims),
        *(pool.metadata.annotations for pool in snapshot.node_pools),
        *(pool.spec.template.metadata.annotations for pool in snapshot.node_pools),
    )
    if not any(names.STANDBY in own for own in annotations):
        return None
    from shared.provisioning.features.standby import standby

    return standby(provisioning, round_)


def _expected_growth(provisioning: Provisioning, round_: Round) -> Feature | None:
    created = (claim.metadata.creation_timestamp for claim in round_.snapshot.node_claims)
    if not any(at is not None and round_.now - at >= SETTLED for at in created):
        return None
    if any(p.metadata.annotations.get(names.EXPECTED_GROWTH) == "false" for p in round_.snapshot.node_pools):
        return None
    from shared.provisioning.features.expected_growth import expected_growth

    return expected_growth(provisioning)


def _launch_options(provisioning: Provisioning, _: Round) -> Feature:
    return LaunchOptions(provisioning=provisioning)


def _static_pools(provisioning: Provisioning, round_: Round) -> Feature | None:
    if all(pool.spec.replicas is None for pool in round_.snapshot.node_pools):
        return None
    from shared.provisioning.features.static_pools import StaticPools

    return StaticPools(provisioning=provisioning)


def _node_groups(provisioning: Provisioning, round_: Round) -> Feature | None:
    if provisioning.settings.node_groups != "on" or round_.pause is not None:
        return None
    from shared.provisioning.features.node_groups import node_groups

    return node_groups(provisioning, round_)


def _displaced_pods(provisioning: Provisioning, round_: Round) -> Feature | None:
    snapshot = round_.snapshot
    pending = (pod for pod in snapshot.pods if not pod.spec.node_name)
    if not snapshot.node_claims and all(waited(pod, now=round_.now) < SETTLING_SECONDS for pod in pending):
        return None
    from shared.provisioning.features.displaced_pods import DisplacedPods

    return DisplacedPods(provisioning=provisioning)


def _pod_annotations(provisioning: Provisioning, round_: Round) -> Feature | None:
    pending = (pod for pod in round_.snapshot.pods if not pod.spec.node_name)
    if all(_REPORTED.isdisjoint(pod.metadata.annotations) for pod in pending):
        return None
    from shared.provisioning.features.pod_annotations import PodAnnotations

    return PodAnnotations(recorder=provisioning.recorder)


FEATURES: tuple[Callable[[Provisioning, Round], Feature | None], ...] = (
    _gangs,
    _hourly_limits,
    _zonal_shift,
    _pause,
    _standby_nodes,
    _expected_growth,
    _launch_options,
    _static_pools,
    _node_groups,
    _displaced_pods,
    _pod_annotations,
)
"""The doors of all features."""

"""The pods after a plan with their zones, and the traffic between zones that follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.plan.traffic import PlannedTraffic
from cli.traffic.cross_zone import cross_zone_traffic
from cli.traffic.placed_pods import is_ready, node_zones, placed, running_pods
from shared.scheduling.scheduler import schedule_on_existing_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.cluster.services import ObservedServices
    from cli.plan.planning import Plan
    from cli.traffic.placed_pods import PlacedPod
    from shared.snapshot import Snapshot

_NO_ENDPOINTS = "no Service with a selector has ready endpoints"


def planned_traffic(observed: ObservedServices, before: Snapshot, plan: Plan) -> PlannedTraffic:
    """The traffic of the cluster ``before``, and after the plan for it."""
    if observed.problem:
        return PlannedTraffic(problem=observed.problem)
    now = cross_zone_traffic(observed.services, list(running_pods(before)))
    after = cross_zone_traffic(observed.services, list(planned_pods(plan)))
    return PlannedTraffic(before=now, after=after, problem="" if now.services or after.services else _NO_ENDPOINTS)


def planned_pods(plan: Plan) -> Iterator[PlacedPod]:
    """The pods after the plan, in the zones of their nodes. Those that the plan starts are taken as ready."""
    zones = node_zones(plan.snapshot)
    removed = {*plan.lost, *plan.disruption.nodes}
    zone_by_pod = _planned_zones(plan, zones)
    for pod in plan.snapshot.pods:
        name = pod.spec.node_name
        zone = zone_by_pod.get(pod.key, "")
        if not zone and name not in removed:
            zone = zones.get(name or pod.status.nominated_node_name, "")
        if zone:
            yield from placed(pod, zone, is_ready=not name or is_ready(pod))


def _planned_zones(plan: Plan, zones: dict[str, str]) -> dict[str, str]:
    """The zones of the pods (namespace/name) that the plan puts on new or existing nodes."""
    planned = {key: zones.get(node, "") for node, keys in plan.launches.existing_nodes.items() for key in keys}
    planned |= {key: zones.get(node, "") for node, keys in _moved_pods(plan).items() for key in keys}
    claims = [*plan.launches.new_node_claims, *(c for a in plan.disruption.actions for c in a.replacements)]
    return planned | {key: claim.cheapest.zone for claim in claims for key in claim.pods}


def _moved_pods(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Where pods of removed nodes find room, by existing node: commands only say what their replacements take."""
    if not any(action.pod_count for action in plan.disruption.actions):
        return {}
    return dict(schedule_on_existing_nodes(plan.after_launches, frozenset(plan.disruption.nodes)).existing_nodes)

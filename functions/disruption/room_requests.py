"""Finds full nodes whose pods wait for room, and sends their names to the termination function, which evicts pods.

Each sweep sends at most :data:`MIN_NODES` nodes, or a fifth of the cluster's if that is more. Pods that get no room get
an event with the reason, and so does their node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.base import hints, queues
from shared.disruption.candidates import initialized_nodes
from shared.disruption.node_room import MAKE_ROOM, node_blocker, plan_room, pods_by_node, waiting_node
from shared.disruption.room_record import room_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_sqs import SQSClient

    from functions.disruption.settings import DisruptionSettings
    from shared.api.kubernetes import Node, Pod
    from shared.cluster.events import Recorder
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.node_room import RoomPlan

MIN_NODES = 50
"""This many nodes in any case: a new DaemonSet runs on 50 full nodes after one sweep. PodDisruptionBudgets limit how
many pods of a workload move at once, and kube-scheduler's preemption, for DaemonSets of a higher priority, has no
limit."""
_SHARE = 5
"""One of this many nodes of a larger cluster."""
_MAX_EVENTS = 20
"""How many pods get an event in one sweep; the others follow in the next ones."""


def request_room(
    state: DisruptionState, settings: DisruptionSettings, recorder: Recorder, *, sqs: Callable[[], SQSClient]
) -> int:
    """Send the nodes on which room can be made, or whose cordon is left from that; returns how many."""
    plans = list(_plans(state))
    blocked = [(node, pod, why) for node, plan in plans for pod, why in plan.blocked]
    for node, pod, why in blocked[:_MAX_EVENTS]:
        for ref in (pod.ref, node.ref):
            recorder.record(ref, "Warning", "FailedMakingRoom", f"No room for pod {pod.key}: {why}")
    limit = max(MIN_NODES, len(state.snapshot.nodes) // _SHARE)
    due = [node.metadata.name for node, plan in plans if plan.evict][:limit]
    cordoned = [n.metadata.name for n in state.snapshot.nodes if room_record(n.metadata.annotations).cordoned_since]
    keys = sorted({*due, *cordoned})
    bodies = hints.message_bodies(hints.ROOM_NEEDED, cluster=settings.cluster_name, keys=keys, time=state.now)
    queues.try_send(sqs, settings.termination_queue_url, bodies)
    return len(keys)


def _plans(state: DisruptionState) -> Iterator[tuple[Node, RoomPlan]]:
    """The nodes that pods wait for, with what can be done."""
    waiting = {name for pod in state.snapshot.pods if (name := waiting_node(pod))}
    if not waiting:
        return
    by_node: dict[str, list[Pod]] = pods_by_node(state.snapshot.pods, waiting)
    for claim, node in initialized_nodes(state):
        pool = state.pools.get(node.metadata.labels.get(names.NODEPOOL, ""))
        if node.metadata.name not in waiting or pool is None or pool.name in state.paused:
            continue
        if pool.metadata.annotations.get(MAKE_ROOM) == "false":
            continue
        yield (
            node,
            plan_room(
                node,
                by_node[node.metadata.name],
                state.pod_disruption_budgets,
                room_record(node.metadata.annotations),
                now=state.now,
                blocker=node_blocker(node, claim, pool, now=state.now),
            ),
        )

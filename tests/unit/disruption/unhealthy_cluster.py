"""A cluster whose NodePool has node repair, and what makes its nodes unhealthy; for the tests of repair."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import Condition, annotated, with_condition
from shared.base.struct import with_fields
from shared.disruption import disruption_queue, repair
from shared.disruption.disruption_queue import QueueEntry
from tests.unit.disruption.conftest import NOW

if TYPE_CHECKING:
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.disruption.command import Command, MethodResult
    from tests.unit.disruption.conftest import Cluster

LIMIT = "tenon.sh/repair-limit"
LONG = timedelta(minutes=45)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def with_repair(cluster: Cluster) -> Cluster:
    """The cluster with node repair, and five nodes of 4 cpus with a pod of 3 cpus each."""
    annotate_pool(cluster, {"tenon.sh/repair": "true"})
    for name in "abcde":
        cluster.node(name, 4)
        cluster.pod(f"pod-{name}", name, 3000)
    return cluster


def annotate_pool(cluster: Cluster, annotations: dict[str, str]) -> None:
    cluster.pool = with_fields(cluster.pool, metadata=annotated(cluster.pool.metadata, annotations))


def spec(cluster: Cluster, **fields: Any) -> None:
    cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, **fields))


def annotate(cluster: Cluster, name: str, annotations: dict[str, str], *, claim: bool = False) -> None:
    """Annotate a node or its claim."""
    objects: list[Any] = cluster.claims if claim else cluster.nodes
    key = f"claim-{name}" if claim else name
    i = [o.metadata.name for o in objects].index(key)
    objects[i] = with_fields(objects[i], metadata=annotated(objects[i].metadata, annotations))


def break_node(cluster: Cluster, name: str, *, ago: timedelta = LONG, reason: str = "", **condition: str) -> None:
    """Give a node an unhealthy condition, Ready by default."""
    type_, status = condition.get("type", "Ready"), condition.get("status", "False")
    i = [n.metadata.name for n in cluster.nodes].index(name)
    broken = Condition(type=type_, status=status, reason=reason, last_transition_time=NOW - ago)
    rest = [c for c in cluster.nodes[i].status.conditions if c.type != type_]
    cluster.nodes[i] = with_conditions(cluster.nodes[i], [*rest, broken])


def heal(cluster: Cluster, name: str) -> None:
    i = [n.metadata.name for n in cluster.nodes].index(name)
    cluster.nodes[i] = with_conditions(cluster.nodes[i], [Condition(type="Ready", status="True")])


def with_conditions(node: Node, conditions: list[Condition]) -> Node:
    return with_fields(node, status=with_fields(node.status, conditions=conditions))


def uninitialize(cluster: Cluster, name: str) -> None:
    """A node that has registered, and never became initialized."""
    i = [c.name for c in cluster.claims].index(f"claim-{name}")
    conditions = with_condition(
        cluster.claims[i].status.conditions,
        nodeclaim.INITIALIZED,
        status=False,
        reason="NodeNotReady",
        now=NOW,
        generation=1,
    )
    status = with_fields(cluster.claims[i].status, conditions=conditions)
    cluster.claims[i] = with_fields(cluster.claims[i], status=status)
    labels = {k: v for k, v in cluster.nodes[i].metadata.labels.items() if k != names.INITIALIZED}
    cluster.nodes[i] = with_fields(cluster.nodes[i], metadata=with_fields(cluster.nodes[i].metadata, labels=labels))


def compute(cluster: Cluster) -> MethodResult:
    return repair.compute(cluster.state(), cluster.budget_tracker())


def repaired(cluster: Cluster) -> list[str]:
    return [node for command in compute(cluster).commands for node in command.nodes]


def blocked(cluster: Cluster) -> dict[str, str]:
    return {b.node: b.message for b in compute(cluster).blocked}


def the_command(cluster: Cluster) -> Command:
    (command,) = compute(cluster).commands
    return command


def queue(cluster: Cluster, name: str, *replacements: str, reason: str = "Unhealthy") -> NodeClaim:
    """Queue the node's claim, as the disruption function does."""
    i = [c.name for c in cluster.claims].index(f"claim-{name}")
    entry = QueueEntry(id="1", reason=reason, since=NOW, replacements=[*replacements])
    claim = disruption_queue.with_queue_entry(cluster.claims[i], entry, grace_period=minutes(10))
    cluster.claims[i] = disruption_queue.with_disruption_condition(claim, entry, now=NOW)
    return cluster.claims[i]

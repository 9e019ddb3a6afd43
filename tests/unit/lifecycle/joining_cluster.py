"""A cluster whose nodes join for planned pods, as the lifecycle function's snapshot has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from functions.lifecycle.claims.nomination import nominate_pods
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, Pod, Taint
from shared.api.meta import Condition
from shared.api.nodeclaim import NodeClaim
from shared.api.taints import PODS_NOT_NOMINATED
from shared.base.struct import with_fields
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.lifecycle.claims.nomination import PodNominations
    from shared.api.daemon_set import DaemonSet

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": names.ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
ALONE: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}

APART: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": names.HOSTNAME,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


def pod(
    name: str,
    cpu: str = "1",
    *,
    tried: int = 1,
    age: timedelta = timedelta(minutes=1),
    **fields: Any,
) -> Pod:
    """A pending pod; ``tried`` is its place in kube-scheduler's order. ``fields`` are of its spec or status."""
    status = {key: fields.pop(key) for key in ("nominatedNodeName",) if key in fields}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "resourceVersion": str(tried),
                "creationTimestamp": (NOW - age).isoformat(),
                "labels": {"app": "web"},
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **fields},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
                **status,
            },
        },
        Pod,
    )


def bound(name: str, node: str, *, since: datetime, cpu: str = "1") -> Pod:
    """A pod that kube-scheduler bound to the node at some time."""
    pending = pod(name, cpu, nodeName=node)
    return with_fields(
        pending, status=with_fields(pending.status, conditions=[true_condition("PodScheduled", since=since)])
    )


def plain(name: str) -> Pod:
    """A pending pod that no other pod's rules concern."""
    web = pod(name)
    return with_fields(web, metadata=with_fields(web.metadata, labels={"app": name}))


class Cluster:
    """NodeClaims that are 40 s old, with their nodes, and pending pods."""

    def __init__(self, *pods: Pod, daemon_sets: tuple[DaemonSet, ...] = ()) -> None:
        self.pods = pods
        self.daemon_sets = daemon_sets
        self.claims: list[NodeClaim] = []
        self.nodes: list[Node] = []

    def claim(self, name: str, planned: str, *, zone: str = "a", cpu: int = 4) -> NodeClaim:
        """A launched NodeClaim without a node, for planned pods (their names, separated by spaces)."""
        claim = msgspec.convert(
            {
                "metadata": {
                    "name": name,
                    "uid": name,
                    "creationTimestamp": (NOW - 40 * SECOND).isoformat(),
                    "labels": {names.NODEPOOL: "default", names.ZONE: zone},
                    "annotations": {names.PLANNED_PODS: ",".join(f"default/{key}" for key in planned.split())},
                },
                "spec": {"startupTaints": [{"key": names.PODS_NOT_NOMINATED_TAINT, "effect": "NoSchedule"}]},
                "status": {"providerID": f"aws:///{zone}/{name}", "allocatable": {"cpu": str(cpu), "pods": "10"}},
            },
            NodeClaim,
        )
        self.claims.append(claim)
        return claim

    def joined(
        self,
        name: str,
        planned: str,
        *,
        zone: str = "a",
        cpu: int = 4,
        ready_for: timedelta | None = SECOND,
        taints: Iterable[Taint] = (PODS_NOT_NOMINATED,),
    ) -> None:
        """A NodeClaim whose node ``node-NAME`` has joined; ``ready_for`` None: it isn't Ready yet."""
        claim = self.claim(name, planned, zone=zone, cpu=cpu)
        ready = [] if ready_for is None else [true_condition("Ready", since=NOW - ready_for)]
        self._add_node(claim, zone, cpu, ready, taints, {})

    def initialized(self, name: str, planned: str, *, ago: timedelta, zone: str = "a", cpu: int = 4) -> None:
        """A NodeClaim whose node ``node-NAME`` has taken pods for some time."""
        claim = self.claim(name, planned, zone=zone, cpu=cpu)
        self.claims[-1] = with_fields(
            claim,
            status=with_fields(
                claim.status,
                node_name=f"node-{name}",
                conditions=[true_condition(nodeclaim.INITIALIZED, since=NOW - ago)],
            ),
        )
        self._add_node(claim, zone, cpu, [true_condition("Ready", since=NOW - ago)], (), {names.INITIALIZED: "true"})

    def _add_node(
        self,
        claim: NodeClaim,
        zone: str,
        cpu: int,
        conditions: list[Condition],
        taints: Iterable[Taint],
        labels: dict[str, str],
    ) -> None:
        node = msgspec.convert(
            {
                "metadata": {
                    "name": f"node-{claim.name}",
                    "labels": {names.REGISTERED: "true", names.NODEPOOL: "default", names.ZONE: zone, **labels},
                },
                "spec": {"providerID": claim.status.provider_id},
                "status": {"allocatable": {"cpu": str(cpu), "pods": "10"}},
            },
            Node,
        )
        spec, status = with_fields(node.spec, taints=list(taints)), with_fields(node.status, conditions=conditions)
        self.nodes.append(with_fields(node, spec=spec, status=status))

    def nominate(self) -> PodNominations:
        snapshot = Snapshot(
            taken_at=NOW,
            pods=self.pods,
            node_claims=tuple(self.claims),
            nodes=tuple(self.nodes),
            daemon_sets=self.daemon_sets,
        )
        return nominate_pods(snapshot, self.pairs(), now=NOW)

    def pairs(self) -> list[tuple[NodeClaim, Node]]:
        """The NodeClaims with a node, and that."""
        claims = {c.status.provider_id: c for c in self.claims}
        return [(claims[n.spec.provider_id], n) for n in self.nodes]


def true_condition(type_: str, *, since: datetime) -> Condition:
    return Condition(type=type_, status="True", last_transition_time=since)

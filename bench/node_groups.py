"""Processor time of a decision and of a scale-down sweep in a cluster whose nodes are all of node groups.

The decision is the pure part: state, placement of pending pods on groups, and what the groups are asked for. The sweep
chooses unneeded nodes among all. Both begin with nothing cached but imports.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from shared.api.kubernetes import Node, Pod
from shared.node_groups.group_pools import GroupPool, instance_types, present, scale_ups
from shared.node_groups.node_group import GroupInstance, NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.scale_down import member_nodes, plan_scale_down
from shared.node_groups.template_node import TemplateNode
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule
from shared.snapshot import Snapshot

GROUPS, NODES, PODS, PENDING = 20, 1_000, 30_000, 2_000
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALLOCATABLE = {"cpu": "15890m", "memory": "60Gi", "pods": "110"}
FULL, HALF_EMPTY = 500, 200
"""Milli-cores of a pod, of which thirty are on each node."""
RUNS = 5
GIB = 1024**3


def cluster(cpu: int) -> tuple[Snapshot, tuple[GroupPool, ...]]:
    """A thousand nodes in twenty groups with thirty thousand pods of that many milli-cores, and pending ones."""
    groups: list[NodeGroup] = []
    nodes: list[Node] = []
    pods: list[Pod] = []
    for number in range(GROUPS):
        instances = []
        for index in range(NODES // GROUPS):
            zone, name = ZONES[index % len(ZONES)], f"i-{number:03}{index:04}"
            instances.append(GroupInstance(id=name, zone=zone, instance_type="m5.4xlarge", state="InService"))
            nodes.append(_node(name, zone))
            pods += [_pod(f"{name}-{p}", cpu, node=name) for p in range(PODS // NODES)]
        size = len(instances)
        groups.append(
            NodeGroup(
                name=f"group-{number}",
                minimum=0,
                maximum=2 * size,
                desired=size,
                zones=ZONES,
                instances=tuple(instances),
            )
        )
    pods += [_pod(f"pending-{p}", (500, 1000, 2000)[p % 3]) for p in range(PENDING)]
    pools = tuple(GroupPool(group=group, node=_template(0.7 + 0.01 * i)) for i, group in enumerate(groups))
    return Snapshot(taken_at=NOW, nodes=tuple(nodes), pods=tuple(pods)), pools


def _template(price: float) -> TemplateNode:
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    allocatable = {"cpu": 15_890, "memory": 60 * GIB, "pods": 110}
    return TemplateNode(instance_type="m5.4xlarge", allocatable=allocatable, labels=labels, taints=(), price=price)


def _node(name: str, zone: str) -> Node:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "kubernetes.io/arch": "amd64"}
    raw = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": (NOW - timedelta(days=1)).isoformat()},
        "spec": {"providerID": f"aws:///{zone}/{name}"},
        "status": {"allocatable": ALLOCATABLE, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return msgspec.convert(raw, Node)


def _pod(name: str, cpu: int, *, node: str = "") -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    raw: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m", "memory": "512Mi"}}}],
        },
        "status": {"phase": "Running"} if node else {"phase": "Pending", "conditions": [waiting]},
    }
    return msgspec.convert(raw, Pod)


def run() -> list[dict[str, str]]:
    """The rows of the report."""
    decisions, sweeps, grown = [], [], 0
    for _ in range(RUNS):
        snapshot, pools = cluster(FULL)
        started = time.process_time()
        types = {pool.pool_name: instance_types(pool) for pool in pools}
        decision = schedule(Problem(snapshot=present(snapshot, pools), instance_types=types))
        planned = scale_ups(decision, pools)
        decisions.append(time.process_time() - started)
        grown = sum(scale_up.nodes for scale_up in planned)
        assert grown
        assert not decision.pod_errors
        snapshot, pools = cluster(HALF_EMPTY)
        started = time.process_time()
        members = member_nodes(snapshot, [pool.group for pool in pools])
        plan = plan_scale_down(snapshot, members, NodeGroupOptions(), now=NOW)
        sweeps.append(time.process_time() - started)
        assert plan.unneeded
    size = f"{NODES:,} nodes in {GROUPS} groups, {PODS:,} pods"
    how = f"processor time of the pure part, median of {RUNS}"
    return [
        {
            "measurement": f"Decision: {size}, {PENDING:,} of them more pending",
            "target": "≤ 1 s",
            "result": f"{statistics.median(decisions):.2f} s ({grown} nodes asked for)",
            "method": how,
        },
        {
            "measurement": f"Scale-down sweep: {size}, all nodes below the threshold",
            "target": "",
            "result": f"{statistics.median(sweeps):.2f} s",
            "method": f"{how}; at most 30 simulations",
        },
    ]

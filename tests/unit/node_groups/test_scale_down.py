"""Which pods keep a node of a group: by Cluster Autoscaler's rules, and by those of NodePools."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.api.kubernetes import EmptyDir, Node, Pod, PodSpec, Volume
from shared.api.meta import ObjectMeta, OwnerReference
from shared.node_groups.node_group import NodeGroup
from shared.node_groups.options import NodeGroupOptions
from shared.node_groups.scale_down import SAFE_TO_EVICT, MemberNode, _blocking_pods

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CACHE = [Volume(name="cache", empty_dir=EmptyDir())]
REPLICA_SET = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="web", controller=True)


def pod(namespace: str = "default", *, volumes: list[Volume] | None = None, safe: str = "", owned: bool = True) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="web",
            namespace=namespace,
            annotations={SAFE_TO_EVICT: safe} if safe else {},
            owner_references=[REPLICA_SET] if owned else [],
        ),
        spec=PodSpec(node_name="node", volumes=volumes or []),
    )


def blocks(pod: Pod, options: NodeGroupOptions) -> bool:
    group = NodeGroup(name="batch", minimum=0, maximum=6, desired=1)
    member = MemberNode(node=Node(metadata=ObjectMeta(name="node")), group=group, pods=(pod,))
    return bool(list(_blocking_pods(member, [], options, now=NOW)))


@pytest.mark.parametrize(
    ("keeping", "by_groups", "by_node_pools"),
    [
        pytest.param(pod(), False, False, id="a replica"),
        pytest.param(pod("kube-system"), True, False, id="of kube-system"),
        pytest.param(pod(owned=False), True, False, id="without a controller"),
        pytest.param(pod(volumes=CACHE), True, False, id="with local storage"),
        pytest.param(pod(volumes=CACHE, safe="true"), False, False, id="with local storage, but safe to evict"),
        pytest.param(pod(safe="false"), True, True, id="not safe to evict"),
    ],
)
def test_a_node_stays_because_of_a_pod(keeping: Pod, *, by_groups: bool, by_node_pools: bool) -> None:
    assert blocks(keeping, NodeGroupOptions()) is by_groups
    assert blocks(keeping, NodeGroupOptions(consolidates=True)) is by_node_pools

"""Plans the chunks of CapacityBuffers after the pods, which never lose capacity to them.

1. Pods are planned alone. Those that existing nodes take keep their places.
2. Chunks fill what is left on existing nodes; for the rest, new nodes are planned, together with the pods that need
   new nodes anyway. Together, because fewer and larger nodes are cheaper.
3. If a pod found no place in that plan, the pods' own plan holds. The chunks wait for the next decision, for which the
   pods' nodes exist.

Nodes with pods come first, so that the nodes that are kept for chunks alone are few, and the same in each decision.

Where there are no chunks, pods that are expected, but don't exist yet, are planned like them. They only make the nodes
larger that are launched for pods: none is launched for them alone. What is free on nodes that were launched with room
for expected pods is theirs first, so that it isn't bought again by each decision. What is free on other nodes isn't
counted: that was not enough for the pods that are pending, and counting it cost more (``bench.month``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pods import is_daemon, is_mirror
from shared.base.struct import with_fields
from shared.scheduling.buffers.chunks import chunk_pods
from shared.scheduling.decision import Placement, UnschedulableReason
from shared.scheduling.state.state_nodes import StateNode, StateNodes, with_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.scheduling.decision import PlannedNodeClaim
    from shared.snapshot import Snapshot

    Place = Callable[[StateNodes, Iterable[Pod]], Placement]
    """Plans pods on given nodes and on new ones."""

_MOST_PODS_TOGETHER = 20_000
"""Up to this many pods that need new nodes are planned together with chunks: that is a second plan for them. Beyond,
the chunks wait for the next decision."""
PODS_FIRST = UnschedulableReason(message="pods that are pending need new nodes first")


def place(plan: Place, state_nodes: StateNodes, pods: Sequence[Pod], snapshot: Snapshot) -> tuple[Placement, Placement]:
    """The placement of the pods, with all new NodeClaims, and that of the chunks, without."""
    chunks = chunk_pods(snapshot)
    alone = plan(state_nodes, pods) if pods else Placement()
    expected = {pod.key: pod for pod in snapshot.growth} if alone.node_claims and not chunks else {}
    if not (chunks or expected):
        return alone, Placement()
    by_key = {pod.key: pod for pod in pods}
    pods_by_node = {name: [by_key[key] for key in keys] for name, keys in alone.existing_nodes.items()}
    nodes = with_pods(state_nodes, pods_by_node)
    nodes = _pods_first(nodes) if chunks else _with_bought_room(nodes, snapshot)
    on_new_nodes = [by_key[key] for claim in alone.node_claims for key in claim.pods]
    if len(on_new_nodes) <= _MOST_PODS_TOGETHER:
        together = plan(nodes, [*on_new_nodes, *chunks.values(), *expected.values()])
        if together.errors.keys() <= chunks.keys() | expected.keys():
            return _combined(alone, _without(together, expected), chunks)
    return alone, Placement(errors=dict.fromkeys(sorted(chunks), PODS_FIRST))


def _without(placement: Placement, expected: Collection[str]) -> Placement:
    """The placement without expected pods, and without the nodes that would have no others."""
    if not expected:
        return placement
    claims = (
        with_fields(claim, pods=pods, expected=len(claim.pods) - len(pods))
        for claim in placement.node_claims
        if (pods := tuple(key for key in claim.pods if key not in expected))
    )
    existing = ((name, tuple(k for k in keys if k not in expected)) for name, keys in placement.existing_nodes.items())
    return Placement(
        node_claims=tuple(claims),
        existing_nodes={name: keys for name, keys in existing if keys},
        errors={key: why for key, why in placement.errors.items() if key not in expected},
    )


def _pods_first(state_nodes: StateNodes) -> StateNodes:
    """The nodes, initialized ones first, and of these the ones with workload pods."""
    nodes = sorted(state_nodes.nodes, key=lambda node: (not node.initialized, not _has_workload(node), node.name))
    return with_fields(state_nodes, nodes=tuple(nodes), columns={}, masks={})


def _with_bought_room(state_nodes: StateNodes, snapshot: Snapshot) -> StateNodes:
    """The nodes; of initialized ones only those that were launched with room for expected pods have any."""
    roomy = {c.node_or_own_name for c in snapshot.node_claims if names.EXPECTED_PODS in c.metadata.annotations}
    nodes = (
        with_fields(node, available={}) if node.initialized and node.name not in roomy else node
        for node in state_nodes.nodes
    )
    return with_fields(state_nodes, nodes=tuple(nodes))


def _has_workload(node: StateNode) -> bool:
    return any(not (is_daemon(pod) or is_mirror(pod)) for pod in node.pods)


def _combined(alone: Placement, together: Placement, chunks: Mapping[str, Pod]) -> tuple[Placement, Placement]:
    existing = {name: list(keys) for name, keys in alone.existing_nodes.items()}
    for name, keys in together.existing_nodes.items():
        existing.setdefault(name, []).extend(key for key in keys if key not in chunks)
    claims = tuple(_apart(claim, chunks) for claim in together.node_claims)
    return (
        Placement(
            node_claims=claims,
            existing_nodes={name: tuple(keys) for name, keys in existing.items() if keys},
            errors=alone.errors,
        ),
        Placement(
            existing_nodes={
                name: on_node
                for name, keys in sorted(together.existing_nodes.items())
                if (on_node := tuple(sorted(key for key in keys if key in chunks)))
            },
            errors=together.errors,
        ),
    )


def _apart(claim: PlannedNodeClaim, chunks: Collection[str]) -> PlannedNodeClaim:
    """The NodeClaim with its chunks apart from its pods."""
    return with_fields(
        claim,
        pods=tuple(key for key in claim.pods if key not in chunks),
        chunks=tuple(key for key in claim.pods if key in chunks),
    )

"""Nodes of a zone that traffic is shifted away from: no method disrupts them, and none moves pods onto them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api.labels import ZONE
from shared.api.nodeclaim import NodeClaimSpec
from shared.base.struct import with_fields
from shared.disruption import consolidation
from shared.disruption.candidates import all_candidates
from shared.disruption.methods import METHODS

if TYPE_CHECKING:
    from shared.disruption.disruption_state import DisruptionState
    from shared.disruption.methods import Method
    from tests.unit.disruption.conftest import Cluster


def shifted(cluster: Cluster, zone: str) -> DisruptionState:
    state = cluster.state()
    return with_fields(
        state, snapshot=with_fields(state.snapshot, shifted_zones={zone: state.now + timedelta(hours=1)})
    )


def removed(state: DisruptionState, cluster: Cluster, method: Method) -> list[str]:
    return [r.node for c in method.compute(state, cluster.budget_tracker(), bool).commands for r in c.removals]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.REASON)
def test_no_method_finds_a_candidate_there(cluster: Cluster, method: Method) -> None:
    cluster.node("expired", 4, spec=NodeClaimSpec(expire_after="1h"))
    cluster.node("underused", 8)
    cluster.pod("web", "underused")
    assert method.find_candidates(shifted(cluster, "a")) == ()
    assert removed(shifted(cluster, "a"), cluster, method) == []
    assert len(list(all_candidates(shifted(cluster, "b")))) == 2


def test_pods_are_not_moved_onto_nodes_there(cluster: Cluster) -> None:
    cluster.node("there", 8)
    cluster.node("here", 2, spot=True)
    cluster.pod("big", "there", cpu=1000)
    cluster.pod("web", "here", cpu=1500)
    for obj in (cluster.nodes[1], cluster.claims[1]):
        obj.metadata.labels[ZONE] = "b"
    assert removed(cluster.state(), cluster, consolidation)
    assert removed(shifted(cluster, "a"), cluster, consolidation) == []

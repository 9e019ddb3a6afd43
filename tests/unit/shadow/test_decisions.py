"""What shadow mode decides for a cluster that it only reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bench import consolidation as sample
from functions.shadow.decisions import Decider
from functions.shadow.virtual_fleet import VirtualFleet
from shared.api.nodeclass import EC2NodeClass
from shared.cloud_provider import ResolvedNodePools
from shared.instance_types.catalog import InstanceTypeCatalog
from shared.shadow.ledger import Ledger
from shared.snapshot import Snapshot
from tests.unit.scheduling.test_capacity_buffers import objects

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOLS = ResolvedNodePools(
    instance_types={"default": sample.instance_types()}, not_ready={}, node_classes={"default": EC2NodeClass()}
)


def test_a_capacity_buffer_gets_a_node_although_no_pod_waits() -> None:
    cluster = Snapshot(taken_at=NOW, node_pools=(sample.pool(),), capacity_buffers=(objects(replicas=1),))
    fleet = VirtualFleet(real=cluster, autoscalers={}, nodes={}, bindings={})
    decider = Decider(
        fleet=fleet,
        resolved_pools=POOLS,
        catalog=InstanceTypeCatalog(region="us-east-1", types_at=NOW, prices_at=NOW),
        ledger=Ledger(()),
        run="run",
        since=NOW - timedelta(minutes=5),
        now=NOW,
        begin_search=lambda: lambda: True,
    )
    assert len(decider.provision().new_node_claims) == 1
    assert len(fleet.nodes) == 1
    assert decider.provision().new_node_claims == ()

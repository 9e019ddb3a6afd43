"""What NodePools can launch has the prices that decisions compare: of the instance, and of the class's volumes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from bench import consolidation as sample
from shared.api import labels
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclass import (
    READY,
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    ResolvedSubnet,
)
from shared.base.struct import with_fields
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool

NOW = datetime(2026, 11, 24, tzinfo=UTC)
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=(
        Hardware(
            name="m5.large",
            arch="amd64",
            vcpus=2,
            memory_mib=8192,
            interfaces=3,
            addresses=10,
            capacity_types=("on-demand", "spot"),
        ),
    ),
    on_demand={"m5.large": 0.096},
    spot={"m5.large": {"us-east-1a": 0.04}},
    offered={"m5.large": ("us-east-1a",)},
    zones={"us-east-1a": ""},
)


def node_class(name: str, size: str) -> EC2NodeClass:
    volume = BlockDeviceMapping(device_name="/dev/xvda", ebs=BlockDevice(volume_size=size))
    status = EC2NodeClassStatus(
        subnets=[ResolvedSubnet(id="subnet-a", zone="us-east-1a")],
        conditions=[Condition(type=READY, status="True", reason=READY)],
    )
    return EC2NodeClass(
        metadata=ObjectMeta(name=name), spec=EC2NodeClassSpec(block_device_mappings=[volume]), status=status
    )


def node_pool(name: str, node_class: str) -> NodePool:
    base = sample.pool()
    spec = base.spec.template.spec
    spec = with_fields(spec, node_class_ref=with_fields(spec.node_class_ref, name=node_class))
    template = with_fields(base.spec.template, spec=spec)
    return with_fields(
        base, metadata=with_fields(base.metadata, name=name), spec=with_fields(base.spec, template=template)
    )


def test_volumes_and_interruptions_are_in_the_effective_price_of_each_nodepool() -> None:
    pools = [node_pool(name, name) for name in ("small", "large")]
    classes = [node_class("small", "20Gi"), node_class("large", "730Gi")]
    snapshot = Snapshot(taken_at=NOW, node_pools=tuple(pools))
    conditions = LaunchConditions(interruption_rates={("m5.large", "us-east-1a"): 0.1})
    cache = InstanceTypeCache()
    resolved = resolve_node_pools(snapshot, classes, CATALOG, conditions, cache=cache, now=NOW)
    assert resolved.volume_prices == {"small": pytest.approx(20 * 0.08 / 730), "large": pytest.approx(0.08)}
    for pool, volumes in resolved.volume_prices.items():
        (instance_type,) = resolved.instance_types[pool]
        on_demand, spot = sorted(instance_type.offerings, key=lambda o: o.capacity_type)
        assert (on_demand.price, spot.price) == (0.096, 0.04)
        assert on_demand.effective_price == pytest.approx(0.096 + volumes)
        assert spot.effective_price == pytest.approx(0.04 * 1.2165 + volumes, rel=1e-4)
    again = resolve_node_pools(snapshot, classes, CATALOG, conditions, cache=cache, now=NOW)
    assert all(again.instance_types[pool] is resolved.instance_types[pool] for pool in ("small", "large"))


def test_nodepools_of_one_node_class_share_a_list_unless_a_step_differs() -> None:
    capped = node_pool("capped", "small")
    annotations = {labels.MAX_SPOT_PRICE_SHARE: "0.1"}
    capped = with_fields(capped, metadata=with_fields(capped.metadata, annotations=annotations))
    snapshot = Snapshot(taken_at=NOW, node_pools=(node_pool("a", "small"), capped, node_pool("b", "small")))
    conditions = LaunchConditions(interruption_rates={("m5.large", "us-east-1a"): 0.1})
    resolved = resolve_node_pools(
        snapshot, [node_class("small", "20Gi")], CATALOG, conditions, cache=InstanceTypeCache(), now=NOW
    )
    types = resolved.instance_types
    assert types["a"] is types["b"]
    assert [o.available for o in types["a"][0].offerings] == [True, True]
    assert [o.available for o in types["capped"][0].offerings] == [True, False]

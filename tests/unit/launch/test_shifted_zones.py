"""What NodePools can launch while traffic is shifted away from zones."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.labels import ZONE
from shared.api.nodeclass import ResolvedSubnet
from shared.base.struct import with_fields
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.node_class.free_addresses import ShortSubnet
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools
from shared.snapshot import Snapshot
from tests.unit.launch.test_resolved_prices import CATALOG, NOW, node_class, node_pool

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools

ZONES = ("us-east-1a", "us-east-1b")
EVERYWHERE = with_fields(
    CATALOG,
    spot={"m5.large": dict.fromkeys(ZONES, 0.04)},
    offered={"m5.large": ZONES},
    zones=dict.fromkeys(ZONES, ""),
)


def resolve(*shifted: str, pool: NodePool | None = None, short: tuple[ShortSubnet, ...] = ()) -> ResolvedNodePools:
    base = node_class("default", "20Gi")
    subnets = [ResolvedSubnet(id=f"subnet-{zone[-1]}", zone=zone) for zone in ZONES]
    of_both = with_fields(base, status=with_fields(base.status, subnets=subnets))
    snapshot = Snapshot(
        taken_at=NOW,
        node_pools=(pool or node_pool("default", "default"),),
        shifted_zones=dict.fromkeys(shifted, NOW + timedelta(hours=1)),
    )
    return resolve_node_pools(
        snapshot, [of_both], EVERYWHERE, LaunchConditions(short_subnets=short), cache=InstanceTypeCache(), now=NOW
    )


def available(resolved: ResolvedNodePools) -> set[str]:
    return {o.zone for t in resolved.instance_types["default"] for o in t.offerings if o.available}


def test_a_zone_is_left_out_while_it_is_shifted_away() -> None:
    assert available(resolve()) == set(ZONES)
    assert available(resolve("us-east-1a")) == {"us-east-1b"}
    prices = {o.zone: o.price for t in resolve("us-east-1a").instance_types["default"] for o in t.offerings}
    assert set(prices) == set(ZONES), "offerings keep their prices, which nodes there are worth"


def test_a_pool_without_another_zone_is_not_ready_and_says_why() -> None:
    base = node_pool("default", "default")
    there = NodeSelectorRequirement(key=ZONE, operator="In", values=["us-east-1a"])
    spec = with_fields(base.spec.template.spec, requirements=[there])
    only_there = with_fields(base, spec=with_fields(base.spec, template=with_fields(base.spec.template, spec=spec)))
    until = "(until 2026-11-24 01:00 UTC)"
    why = f"traffic is shifted away from all its zones: us-east-1a {until}"
    assert resolve("us-east-1a", pool=only_there).not_ready == {"default": why}
    assert resolve("us-east-1b", pool=only_there).not_ready == {}
    assert "us-east-1b" in resolve(*ZONES).not_ready["default"]


def test_a_zone_short_of_addresses_is_used_where_the_other_is_shifted_away() -> None:
    short = (ShortSubnet(id="subnet-b", zone="us-east-1b", free_addresses=1),)
    assert available(resolve(short=short)) == {"us-east-1a"}
    assert available(resolve("us-east-1a", short=short)) == {"us-east-1b"}

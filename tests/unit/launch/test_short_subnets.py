"""Zones whose subnets are short of addresses aren't offered, unless a NodePool has no other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import consolidation as sample
from shared.api import labels
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclass import READY, EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, ResolvedSubnet
from shared.base.struct import with_fields
from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
from shared.instance_types.provider import InstanceTypeCache
from shared.launch.node_class.free_addresses import ShortSubnet, node_addresses, short_zones
from shared.launch.resolved_node_pools import LaunchConditions, resolve_node_pools
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from shared.api.nodepool import NodePool
    from shared.cloud_provider import ResolvedNodePools

NOW = datetime(2026, 11, 24, tzinfo=UTC)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SUBNETS = [ResolvedSubnet(id=f"subnet-{zone[-1]}{i}", zone=zone) for zone in ZONES for i in (1, 2)]
HARDWARE = Hardware(
    name="m5.large", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10, capacity_types=("on-demand",)
)
CATALOG = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=(HARDWARE,),
    on_demand={"m5.large": 0.1},
    spot={},
    offered={"m5.large": ZONES},
    zones=dict.fromkeys(ZONES, ""),
)
CACHE = InstanceTypeCache()
PLAIN = EC2NodeClassSpec()


def short(*names: str) -> tuple[ShortSubnet, ...]:
    by_id = {s.id: s.zone for s in SUBNETS}
    return tuple(ShortSubnet(id=name, zone=by_id[name], free_addresses=3) for name in names)


def resolve(pool: NodePool, *subnets: ShortSubnet, spec: EC2NodeClassSpec = PLAIN) -> ResolvedNodePools:
    ready = [Condition(type=READY, status="True", reason=READY)]
    status = EC2NodeClassStatus(subnets=SUBNETS, conditions=ready)
    node_class = EC2NodeClass(metadata=ObjectMeta(name="default"), spec=spec, status=status)
    snapshot = Snapshot(taken_at=NOW, node_pools=(pool,))
    conditions = LaunchConditions(short_subnets=subnets)
    return resolve_node_pools(snapshot, [node_class], CATALOG, conditions, cache=CACHE, now=NOW)


def pool(*zones: str) -> NodePool:
    base = sample.pool()
    required = [NodeSelectorRequirement(key=labels.ZONE, operator="In", values=list(zones))] if zones else []
    reference = with_fields(base.spec.template.spec.node_class_ref, name="default")
    spec = with_fields(base.spec.template.spec, requirements=required, node_class_ref=reference)
    return with_fields(base, spec=with_fields(base.spec, template=with_fields(base.spec.template, spec=spec)))


def available(resolved: ResolvedNodePools) -> set[str]:
    (types,) = resolved.instance_types.values()
    return {o.zone for t in types for o in t.offerings if o.available}


def test_a_zone_whose_subnets_are_all_short_is_not_offered_and_they_are_named() -> None:
    resolved = resolve(pool(), *short("subnet-a1", "subnet-a2", "subnet-b1"))
    assert available(resolved) == {"us-east-1b", "us-east-1c"}
    assert resolved.short_zones == {
        "default": (
            "subnet-a1 in us-east-1a has 3 free addresses",
            "subnet-a2 in us-east-1a has 3 free addresses",
        )
    }


def test_if_all_zones_of_the_nodepool_are_short_all_are_offered() -> None:
    everywhere = resolve(pool(), *short(*(s.id for s in SUBNETS)))
    assert available(everywhere) == set(ZONES)
    assert everywhere.short_zones == {}
    only_a = resolve(pool("us-east-1a"), *short("subnet-a1", "subnet-a2"))
    assert "us-east-1a" in available(only_a)
    assert only_a.short_zones == {}


def test_nothing_known_leaves_the_identical_types() -> None:
    before, after = resolve(pool()), resolve(pool(), *short("subnet-a1"))
    assert before.instance_types["default"] is after.instance_types["default"]


def test_equal_short_zones_give_the_identical_types() -> None:
    names = ("subnet-a1", "subnet-a2")
    fewer = tuple(with_fields(s, free_addresses=1) for s in short(*names))
    first, second = resolve(pool(), *short(*names)), resolve(pool(), *fewer)
    assert first.instance_types["default"] is second.instance_types["default"]


@given(st.sets(st.sampled_from([s.id for s in SUBNETS])))
def test_a_zone_is_left_out_only_if_another_is_offered(names: set[str]) -> None:
    zones = short_zones(SUBNETS, short(*names))
    assert len(zones) < len(ZONES)
    for zone, subnets in zones.items():
        assert {s.id for s in subnets} == {s.id for s in SUBNETS if s.zone == zone} <= names


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        (EC2NodeClassSpec(), 17),
        (EC2NodeClassSpec(ip_prefix_count=1), 17),
        (EC2NodeClassSpec(ip_prefix_count=4), 65),
        (EC2NodeClassSpec(ip_prefix_count=2, network_interfaces=[{}, {"interfaceType": "interface"}]), 66),
        (EC2NodeClassSpec(ip_prefix_count=2, network_interfaces=[{}, {"interfaceType": "efa-only"}]), 33),
    ],
)
def test_a_prefix_that_an_interface_gets_at_launch_takes_sixteen_addresses(
    spec: EC2NodeClassSpec, addresses: int
) -> None:
    assert node_addresses(spec) == addresses


def test_nodes_of_an_ipv6_cluster_need_their_own_address_only() -> None:
    assert node_addresses(EC2NodeClassSpec(), ipv6=True) == 1
    assert node_addresses(EC2NodeClassSpec(ip_prefix_count=4), ipv6=True) == 1


def test_a_subnet_is_short_for_the_classes_whose_nodes_need_more() -> None:
    subnets = tuple(with_fields(s, free_addresses=20) for s in short("subnet-a1", "subnet-a2"))
    assert available(resolve(pool(), *subnets)) == set(ZONES)
    assert available(resolve(pool(), *subnets, spec=EC2NodeClassSpec(ip_prefix_count=2))) == set(ZONES) - {ZONES[0]}

"""ARC shifts the cluster's traffic away from a zone, and back.

Karpenter's specs that need no account, and where they are covered:

- no offering of the zone is available while the shift lasts, and all are afterwards (instancetype, "zonal shift"):
  ``test_200_pods``;
- nodes for a zonal spread are launched in the other zones only, one pod waits, and the zone is used again afterwards
  (suites/scheduling, "zonal topology spread when a Zonal Shift is active"):
  ``test_one_pod_of_a_spread_waits_for_the_zone``;
- events of NodePools that may use the zone, once for each change, none of others (controllers/arczonalshift):
  ``test_200_pods``, ``test_events_are_those_of_pools_that_may_use_the_zone``;
- instances of the zone aren't rebooted (instance, "Zonal Shift"): ``test_a_reboot_in_place_waits_for_the_zone``;
- instances of the zone aren't given up while EC2 doesn't describe them (instance, "Zonal Shift"):
  ``tests/integration/termination/test_garbage_collection.py``.

Differences: Karpenter doesn't terminate in the zone; here nothing decides that, so that only what users delete, and
what EC2 interrupts, is terminated.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import backends
from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.cluster.lease import lease_name
from tests.e2e.rebooting_nodes import calls, request
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ZONE = "topology.kubernetes.io/zone"
SHIFTED = "us-east-1a"
ANNOTATION = "tenon.sh/shifted-zones"
HOUR = timedelta(hours=1)


@contextmanager
def shifting(*, context: Mapping[str, str] = MappingProxyType({}), **pool: Any) -> Iterator[World]:
    """A cluster that follows zonal shifts, with a NodePool of small on-demand nodes."""
    with World(cluster="demo", options=Options(context={"zonalShift": "on", **context})) as world:
        world.apply([sample_objects.node_class(world), node_pool(**pool)])
        yield world


def node_pool(**pool: Any) -> dict[str, Any]:
    requirements = {
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.k8s.aws/instance-cpu": ["4"],
        "karpenter.k8s.aws/instance-category": ["m"],
        **pool.pop("requirements", {}),
    }
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1m",
        "budgets": [{"nodes": "100%"}],
    }
    return sample_objects.node_pool(requirements, disruption=disruption, **pool)


def spread(name: str, replicas: int, *, when: str = "DoNotSchedule", cpu: str = "700m") -> dict[str, Any]:
    constraint = sample_objects.zone_spread(name, when=when)
    return sample_objects.deployment(name, replicas, {"cpu": cpu}, topologySpreadConstraints=[constraint])


def shift(world: World, zone: str = SHIFTED, *, expires_in: str = "1h") -> str:
    """``aws arc-zonal-shift start-zonal-shift``; returns the shift's id."""
    ids = {name: zone_id for zone_id, name in world.aws.zonal_shifts.zone_names().items()}
    (arn,) = world.aws.zonal_shifts.resources
    started = backends.client("arc-zonal-shift").start_zonal_shift(
        resourceIdentifier=arn, awayFrom=ids[zone], expiresIn=expires_in, comment="test"
    )
    return str(started["zonalShiftId"])


def cancel(shift_id: str) -> None:
    backends.client("arc-zonal-shift").cancel_zonal_shift(zonalShiftId=shift_id)


def annotation(world: World) -> str:
    leases = {lease["metadata"]["name"]: lease for lease in world.store.list(kinds.LEASES)}
    metadata = leases.get(lease_name("demo"), {}).get("metadata", {})
    return str(metadata.get("annotations", {}).get(ANNOTATION, ""))


def zones(world: World, app: str) -> Counter[str]:
    """The running pods of an app by zone."""
    of_node = {n["metadata"]["name"]: n["metadata"]["labels"][ZONE] for n in world.nodes()}
    return Counter(of_node[pod["spec"]["nodeName"]] for pod in running(world, app))


def instances(world: World, zone: str = SHIFTED) -> set[str]:
    return {i.id for i in world.instances() if i.availability_zone == zone}


def uids(world: World, app: str, zone: str) -> set[str]:
    of_node = {n["metadata"]["name"]: n["metadata"]["labels"][ZONE] for n in world.nodes()}
    return {p["metadata"]["uid"] for p in running(world, app) if of_node[p["spec"]["nodeName"]] == zone}


@pytest.mark.flow
def test_200_pods_with_spread_rules_lose_nothing_while_a_zone_is_shifted_away_and_keep_their_rules() -> None:
    with shifting() as world:
        world.apply([spread("strict", 60), spread("soft", 60, when="ScheduleAnyway")])
        world.run_until(lambda: len(running(world)) == 120, limit=HOUR)
        world.run_until_idle()
        assert zones(world, "strict") == Counter(dict.fromkeys(("us-east-1a", "us-east-1b", "us-east-1c"), 20))
        before, kept = instances(world), uids(world, "strict", SHIFTED) | uids(world, "soft", SHIFTED)
        shift_id = shift(world, expires_in="72h")
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=2))

        world.scale("default", "strict", 100)
        world.scale("default", "soft", 100)
        world.run_until(lambda: len(running(world, "soft")) == 100, limit=HOUR)
        world.run_for(timedelta(minutes=10))
        assert instances(world) == before, "nothing is launched in the zone, and nothing of it is removed"
        assert kept <= uids(world, "strict", SHIFTED) | uids(world, "soft", SHIFTED)
        assert zones(world, "strict") == {"us-east-1a": 20, "us-east-1b": 21, "us-east-1c": 21}
        waiting = events(world, "FailedScheduling", kind="Pod")
        assert any("waits because traffic is shifted away from us-east-1a" in e["message"] for e in waiting)
        assert [e["reason"] for e in events(world, kind="NodePool") if "Shift" in e["reason"]] == ["ZonalShiftActive"]

        cancel(shift_id)
        world.run_until(lambda: len(running(world)) == 200, limit=HOUR)
        world.run_until_idle()
        strict = zones(world, "strict")
        assert sum(strict.values()) == 100
        assert max(strict.values()) - min(strict.values()) <= 1
        assert annotation(world) == ""
        assert "ZonalShiftCleared" in {e["reason"] for e in events(world, kind="NodePool")}
        assert not world.dead_letters()


def test_one_pod_of_a_spread_waits_for_the_zone() -> None:
    with shifting() as world:
        shift_id = shift(world)
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=3))
        world.apply([spread("web", 3, cpu="3")])
        world.run_until(lambda: len(running(world)) == 2, limit=HOUR)
        world.run_for(timedelta(minutes=5))
        assert {n["metadata"]["labels"][ZONE] for n in world.nodes()} == {"us-east-1b", "us-east-1c"}
        assert len(world.pending()) == 1
        cancel(shift_id)
        world.run_until(lambda: len(running(world)) == 3, limit=HOUR)
        assert {n["metadata"]["labels"][ZONE] for n in world.nodes()} == {SHIFTED, "us-east-1b", "us-east-1c"}


def test_events_are_those_of_pools_that_may_use_the_zone() -> None:
    with shifting() as world:
        world.apply(
            [
                node_pool(name="only-there", requirements={ZONE: [SHIFTED]}),
                node_pool(name="elsewhere", requirements={ZONE: ["us-east-1b", "us-east-1c"]}),
                node_pool(name="static", requirements={ZONE: [SHIFTED, "us-east-1c"]}, replicas=0),
            ]
        )
        world.run_for(timedelta(minutes=1))
        shift_id = shift(world)
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=3))
        pools = world.store.kind("karpenter.sh/v1", "NodePool")
        world.store.patch(pools, "static", {"spec": {"replicas": 3}})
        selector = {"karpenter.sh/nodepool": "only-there"}
        world.apply([sample_objects.deployment("there", 1, {"cpu": "1"}, nodeSelector=selector)])
        world.run_until(lambda: len(world.nodes("static")) == 3, limit=HOUR)
        assert {n["metadata"]["labels"][ZONE] for n in world.nodes()} == {"us-east-1c"}
        shifted = {e["involvedObject"]["name"]: e["count"] for e in events(world, "ZonalShiftActive")}
        assert shifted == {"default": 1, "only-there": 1, "static": 1}
        (event,) = events(world, "AllZonesShifted")
        assert event["involvedObject"]["name"] == "only-there"
        (pod,) = world.pending()
        reasons = [e["message"] for e in events(world, "FailedScheduling", name=pod["metadata"]["name"])]
        assert any("traffic is shifted away from all its zones: us-east-1a (until " in why for why in reasons)
        cancel(shift_id)
        world.run_until(lambda: len(running(world, "there")) == 1, limit=HOUR)
        assert {e["involvedObject"]["name"] for e in events(world, "ZonalShiftCleared")} == set(shifted)


def test_a_shift_holds_until_its_end_although_it_cannot_be_read() -> None:
    with shifting() as world:
        shift(world, expires_in="20m")
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=3))
        world.aws.enforcement.deny("lifecycle", "arc-zonal-shift:GetManagedResource")
        there = {ZONE: SHIFTED}
        world.apply([sample_objects.deployment("there", 1, {"cpu": "1"}, nodeSelector=there)])
        world.run_for(timedelta(minutes=15))
        assert world.pending()
        assert "arc-zonal-shift:GetManagedResource" in events(world, "ZonalShiftUnknown")[0]["message"]
        world.run_until(lambda: len(running(world, "there")) == 1, limit=timedelta(minutes=10))
        world.expect_denials()


def test_nodes_of_the_zone_are_neither_removed_nor_replaced_nor_filled() -> None:
    with shifting(template={"expireAfter": "30m"}) as world:
        world.apply([spread("web", 6, cpu="3")])
        world.run_until(lambda: len(running(world)) == 6, limit=HOUR)
        there = instances(world)
        world.aws.zonal_shifts.autoshift(SHIFTED)
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=3))
        world.scale("default", "web", 0)
        world.run_for(timedelta(hours=2))
        assert instances(world) == there == {i.id for i in world.instances()}
        world.aws.zonal_shifts.end_autoshifts()
        world.run_until(lambda: not world.instances(), limit=timedelta(minutes=30))


def test_a_reboot_in_place_waits_for_the_zone() -> None:
    with shifting(context={"reboot": "on"}) as world:
        there = {ZONE: SHIFTED}
        world.apply([sample_objects.deployment("there", 1, {"cpu": "1"}, nodeSelector=there)])
        world.run_until(lambda: len(running(world)) == 1, limit=HOUR)
        world.run_until_idle()
        (claim,) = world.claims()
        shift_id = shift(world)
        world.run_until(lambda: SHIFTED in annotation(world), limit=timedelta(minutes=3))
        request(world, claim)
        world.run_for(timedelta(minutes=10))
        assert calls(world) == 0
        cancel(shift_id)
        world.run_until(lambda: calls(world) == 1, limit=timedelta(minutes=10))


def test_without_the_option_nothing_is_asked_and_nothing_changes() -> None:
    with World(cluster="demo", options=Options()) as world:
        world.apply([sample_objects.node_class(world), node_pool()])
        shift(world)
        world.apply([spread("web", 3, cpu="3")])
        world.run_until(lambda: len(running(world)) >= 2, limit=HOUR)
        assert not any(
            service == "arc-zonal-shift" for service, _ in world.aws.calls.count() if _ == "GetManagedResource"
        )
        assert annotation(world) == ""

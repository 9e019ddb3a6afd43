"""A zone about which EC2 doesn't answer: calls without ids fail, and those about its instances."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3

from local.world import sample_objects
from shared.api import labels

if TYPE_CHECKING:
    from local.world import World

DISRUPTION = timedelta(minutes=20)


def zone_of(claim: dict[str, Any]) -> str:
    return str(claim["metadata"]["labels"][labels.ZONE])


def test_nothing_is_given_up_there_and_an_instance_that_goes_elsewhere_is_noticed(spot_default: World) -> None:
    world = spot_default
    spread = sample_objects.zone_spread("web")
    world.apply(sample_objects.deployment("web", 6, {"cpu": "3"}, topologySpreadConstraints=[spread]))
    world.run_until(lambda: len(world.pods(phase="Running")) == 6)
    world.run_for(timedelta(minutes=3))
    by_zone = Counter(zone_of(c) for c in world.claims())
    disrupted, healthy = sorted(by_zone)[:2]
    before = {c["metadata"]["name"] for c in world.claims() if zone_of(c) == disrupted}
    began = world.clock.now()
    with world.aws.lock:
        world.aws.consistency.disrupted_zones = frozenset({disrupted})

    gone = next(i for i in world.instances() if i.placement.zone == healthy)
    boto3.client("ec2").terminate_instances(InstanceIds=[gone.id])
    world.run_for(DISRUPTION)

    assert before <= {c["metadata"]["name"] for c in world.claims()}
    assert gone.id not in {c["status"].get("providerID", "").rpartition("/")[2] for c in world.claims()}
    assert len(world.pods(phase="Running")) == 6
    assert not [i for i in world.aws.functions.invocations if i.at >= began and not i.ok]
    assert not world.dead_letters()

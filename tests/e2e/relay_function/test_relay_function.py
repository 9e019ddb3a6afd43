"""The relay as a function: its invocations succeed one another, and no pod of Tenon's is in the cluster."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from functions.relay import tenure
from infra import function_sizes
from local.kubernetes import kinds
from local.world import sample_objects

if TYPE_CHECKING:
    from local.aws.invocation import Invocation
    from local.world import World

MANIFESTS = Path(__file__).parents[3] / "cli" / "demo" / "manifests"
MINUTE = timedelta(minutes=1)
LEASE_RENEWAL = timedelta(seconds=6)


def apply_pool(world: World) -> None:
    text = (MANIFESTS / "spot-default.yaml").read_text().replace("CLUSTER", world.cluster)
    world.apply([doc for doc in yaml.safe_load_all(text) if doc])


def results(world: World) -> list[str]:
    return [i.result["relay"] if i.ok else i.error.partition(":")[0] for i in relay_invocations(world)]


def relay_invocations(world: World) -> list[Invocation]:
    return [i for i in world.aws.functions.invocations if i.function == function_sizes.RELAY]


def spread_pods(world: World, count: int) -> None:
    """That many new pods, each of which needs a node of its own."""
    term: dict[str, Any] = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    name = f"spread-{len(world.pods())}"
    world.apply([sample_objects.deployment(name, count, {"cpu": "100m"}, affinity=affinity)])


def seconds_until_claimed(world: World) -> list[float]:
    """For each wave of new pods, the seconds until the first NodeClaim after it."""
    created = sorted({event.at for event in world.timeline.of("pod created")})
    claimed = [event.at for event in world.timeline.of("claim created")]
    return [min((at - moment).total_seconds() for at in claimed if at >= moment) for moment in created]


@pytest.mark.flow
def test_a_cluster_without_a_node_gets_its_first_pods_running_and_none_of_them_is_tenons(world: World) -> None:
    apply_pool(world)
    assert world.nodes() == []
    assert world.pods() == []
    world.run_for(2 * MINUTE)
    world.scale("default", "inflate", 5)
    world.run_until(lambda: len(world.pods(phase="Running")) == 5)
    first_claim = world.timeline.of("claim created")[0].at
    assert first_claim - world.timeline.of("pod created")[0].at < timedelta(seconds=4)
    assert {pod["metadata"]["labels"]["app"] for pod in world.pods()} == {"inflate"}
    assert not [obj for obj in world.store.list(kinds.DEPLOYMENTS) if "tenon" in obj["metadata"]["name"]]
    assert world.failures() == []


@pytest.mark.flow
def test_one_invocation_holds_the_watch_and_the_next_succeeds_it_before_its_end(world: World) -> None:
    world.run_for(timedelta(minutes=45))
    ended = [i for i in relay_invocations(world) if i.result == {"relay": "ended"}]
    assert len(ended) == 3
    assert set(results(world)) == {"ended", "held"}
    for before, after in itertools.pairwise(ended):
        overlap = before.at + tenure.LIFETIME - after.at
        assert timedelta() < overlap <= tenure.HANDOVER_WINDOW
    assert world.failures() == []


def test_each_pod_gets_one_node_through_handovers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_lives(monkeypatch)
    apply_pool(world)
    world.run_for(2 * MINUTE)
    for _ in range(8):
        spread_pods(world, 3)
        world.run_for(timedelta(seconds=31))
    world.run_until(lambda: len(world.pods(phase="Running")) == 24)
    assert results(world).count("ended") >= 5
    assert len(world.timeline.of("claim created")) == 24
    assert len(world.aws.instances.all) == 24
    assert max(seconds_until_claimed(world)) <= 4
    assert world.failures() == []


@pytest.mark.long
def test_a_relay_that_dies_at_any_write_is_replaced_within_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_lives(monkeypatch)
    apply_pool(world)
    points = world.faults.crash_around_each_write("relay")
    for _ in range(40):
        spread_pods(world, 1)
        world.run_for(timedelta(seconds=45))
    assert {call.partition(" ")[2] for call in points.calls} >= {"PutEvents", "PATCH leases/NAME", "POST leases"}
    assert points.remaining == set()
    assert "Crash" in results(world)
    # EventBridge's next check, the renewals that it waits for, and the first lists.
    assert max(seconds_until_claimed(world)) <= (MINUTE + 2 * LEASE_RENEWAL).total_seconds()
    world.run_until(lambda: not world.pending())


def test_who_loses_the_lease_stops_without_sending(world: World) -> None:
    apply_pool(world)
    world.run_for(2 * MINUTE)
    lease = {"spec": {"holderIdentity": "another"}}
    world.store.patch(kinds.LEASES, "tenon-relay", lease, namespace="kube-system")
    # It learns of it when it renews the Lease, every five seconds.
    world.run_until(lambda: results(world)[-1:] == ["lost"], limit=timedelta(seconds=8))
    sent = world.aws.calls.count()["eventbridge", "PutEvents"]
    world.scale("default", "inflate", 1)
    world.run_for(timedelta(seconds=10))
    assert world.aws.calls.count()["eventbridge", "PutEvents"] == sent
    # The other never renews.
    world.run_for(2 * MINUTE)
    assert world.aws.calls.count()["eventbridge", "PutEvents"] > sent


def test_a_check_while_the_watch_is_held_starts_no_second_one(world: World) -> None:
    world.run_for(2 * MINUTE)
    for _ in range(3):
        world.redeliver()
        world.run_for(timedelta(seconds=5))
    assert len(world.aws.functions.waiting_caches(function_sizes.RELAY)) == 1
    assert set(results(world)) == {"held"}


def shorten_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand over each minute: from half a minute after its start, an invocation may be succeeded."""
    monkeypatch.setattr(tenure, "LIFETIME", timedelta(seconds=180))

"""A paused cluster, or NodePool: nothing is launched or removed but what interruptions force."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubelets.behavior import MachineBehavior
from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.cluster.lease import lease_name
from tests.e2e.cli.conftest import Shell
from tests.e2e.interruptions.environment import deployment, event, fill, health, instance_of, nodes_of, send
from tests.e2e.world_state import events, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


POOL = ("karpenter.sh/v1", "NodePool")
LEASE = lease_name("demo")
HOUR = timedelta(hours=1)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A cluster with a NodePool of small nodes that removes empty nodes and expires them after forty minutes."""
    with open_shell(tmp_path, Options()) as opened:
        yield opened


@contextmanager
def open_shell(tmp_path: Path, options: Options) -> Iterator[Shell]:
    with World(cluster="demo", options=options) as world:
        world.apply([sample_objects.node_class(world), pool()])
        path = tmp_path / "kubeconfig"
        path.write_text(world.kubectl_config())
        yield Shell(world, path)


def pool(name: str = "default") -> dict[str, Any]:
    return sample_objects.node_pool(
        {
            "karpenter.sh/capacity-type": ["spot"],
            "karpenter.k8s.aws/instance-cpu": ["2"],
            "karpenter.k8s.aws/instance-category": ["m"],
        },
        name=name,
        template={"expireAfter": "40m"},
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "1m",
            "budgets": [{"nodes": "100%"}],
        },
    )


def annotate(world: World, **annotations: str) -> None:
    values = {f"tenon.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.store.patch(world.store.kind(*POOL), "default", {"metadata": {"annotations": values}})


def standing(world: World) -> set[str]:
    return {n["metadata"]["name"] for n in world.nodes() if not n["metadata"].get("deletionTimestamp")}


def condition(world: World, name: str = "default") -> dict[str, Any] | None:
    status = world.store.get(world.store.kind(*POOL), name).get("status", {})
    return next((c for c in status.get("conditions", []) if c["type"] == "Paused"), None)


def expect_nothing_failed(world: World) -> None:
    assert world.failures() == []
    assert world.dead_letters() == []


@pytest.mark.flow
def test_a_paused_cluster_launches_and_removes_nothing_until_it_is_resumed(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 6)])
    fill(world, 6)
    before = {i.id for i in world.instances()}
    assert len(before) == 3
    paused = shell.tenon("pause", "demo", "--reason", "incident 4711")
    assert "the cluster is paused since" in paused.out
    assert "by kubernetes-admin until it is resumed: incident 4711" in paused.out

    # Empty and underutilized nodes, drifted ones, expired ones, pending pods.
    world.scale("default", "web", 1)
    world.run_until(lambda: len(world.pods()) == 1)  # no later pod waits for the room of one that is still ending
    changed = pool()
    changed["spec"]["template"]["metadata"] = {"labels": {"team": "a"}}
    world.apply([changed, sample_objects.deployment("big", 4, {"cpu": "1500m"})])
    world.run_for(HOUR)
    assert {i.id for i in world.instances()} == before
    assert len(standing(world)) == 3
    assert not any(c["metadata"].get("deletionTimestamp") for c in world.claims())
    waiting = [p for p in world.pods() if p["metadata"]["name"].startswith("big") and not p["spec"].get("nodeName")]
    assert waiting
    pending = {p["metadata"]["name"] for p in waiting}
    waits = [e for e in events(world, "FailedScheduling", kind="Pod") if "the cluster is paused" in e["message"]]
    assert {e["involvedObject"]["name"] for e in waits} == pending
    assert all("by kubernetes-admin" in e["message"] and "incident 4711" in e["message"] for e in waits)
    assert len(waits) == len(pending)  # one object each, whose count grows at most every five minutes
    assert max(e["count"] for e in waits) <= 13
    stated = condition(world)
    assert stated is not None
    assert stated["status"] == "True"
    assert "incident 4711" in stated["message"]
    (said,) = events(world, "Paused", kind="NodePool")
    assert said["count"] == 1

    resumed = shell.tenon("resume", "demo")
    assert "resumed" in resumed.out
    world.run_until(lambda: len(running(world)) == 5, limit=timedelta(minutes=10))
    world.run_for(timedelta(minutes=30))
    assert condition(world) is None
    assert events(world, "Resumed", kind="NodePool")
    assert not before & {i.id for i in world.instances()}
    expect_nothing_failed(world)


def test_interruptions_are_handled_meanwhile_with_room_for_the_pods_of_their_nodes_only(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 4)])
    fill(world, 4)
    first = world.instances()[0].id
    (node,) = nodes_of(world, {first})
    shell.tenon("pause", "demo")
    world.apply([deployment("later", 6)])
    world.run_for(timedelta(minutes=5))
    assert len(world.instances()) == 2
    world.interrupt_spot([first])
    warning = event(
        world, "EC2 Spot Instance Interruption Warning", {"instance-id": first, "instance-action": "terminate"}
    )
    send(world, warning)
    send(world, warning)
    world.run_until(lambda: node not in standing(world), limit=timedelta(minutes=5))
    world.run_until(
        lambda: sum(p["metadata"]["name"].startswith("web") for p in world.pods(phase="Running")) == 4,
        limit=timedelta(minutes=5),
    )
    world.redeliver()
    world.run_for(timedelta(minutes=15))
    assert len(world.instances()) == 2
    assert not any(p["metadata"]["name"].startswith("later") for p in world.pods(phase="Running"))
    expect_nothing_failed(world)


def test_maintenance_is_done_when_it_is_near_although_the_cluster_is_paused(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 4)])
    fill(world, 4)
    shell.tenon("pause", "demo")
    far, near = (i.id for i in world.instances())
    for instance, ahead in ((far, timedelta(hours=20)), (near, timedelta(minutes=50))):
        world.aws.statuses.schedule(instance, "instance-retirement", world.clock.now() + ahead)
        send(world, health(world, instance, start=world.clock.now() + ahead))
    world.run_for(timedelta(minutes=15))
    assert {i.id for i in world.instances()} >= {far}
    assert near not in {i.id for i in world.instances()}
    assert len(running(world)) == 4
    expect_nothing_failed(world)


def test_a_pause_ends_by_itself(shell: Shell) -> None:
    world = shell.world
    world.run_for(timedelta(minutes=2))
    assert "until" in shell.tenon("pause", "--for", "1h").out
    world.apply([deployment("web", 2)])
    world.run_for(timedelta(minutes=55))
    assert not world.claims()
    world.run_until(lambda: len(running(world)) == 2, limit=timedelta(minutes=10))
    assert "was not paused" in shell.tenon("resume", "demo").out


def test_pausing_again_changes_the_end_and_keeps_the_beginning(shell: Shell) -> None:
    world = shell.world
    first = shell.tenon("pause", "demo", "--for", "10m", "--reason", "a").out
    world.run_for(timedelta(minutes=5))
    again = shell.tenon("pause", "demo").out
    assert first.partition(" by ")[0] == again.partition(" by ")[0]
    world.apply([deployment("web", 2)])
    world.run_for(timedelta(minutes=20))
    assert not world.claims()
    assert ": a" not in again


def test_a_pause_that_cannot_be_read_counts_and_says_so(shell: Shell) -> None:
    world = shell.world
    world.run_for(timedelta(minutes=2))
    lease = {"metadata": {"annotations": {"tenon.sh/paused": "until monday"}}}
    world.store.patch(kinds.LEASES, LEASE, lease, namespace="kube-system")
    world.apply([deployment("web", 2)])
    world.run_for(timedelta(minutes=10))
    assert not world.claims()
    stated = condition(world)
    assert stated is not None
    assert 'annotation tenon.sh/paused is "until monday"' in stated["message"]
    assert any("until monday" in e["message"] for e in events(world, "FailedScheduling", kind="Pod"))


def test_a_drain_that_has_begun_goes_on_and_so_does_a_deletion_by_a_person(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 4)])
    fill(world, 4)
    first, second = sorted(c["metadata"]["name"] for c in world.claims())
    claims = world.store.kind("karpenter.sh/v1", "NodeClaim")
    world.store.delete(claims, first)
    shell.tenon("pause", "demo")
    world.run_until(lambda: first not in {c["metadata"]["name"] for c in world.claims()}, limit=timedelta(minutes=10))
    world.store.delete(claims, second)
    world.run_until(lambda: second not in {c["metadata"]["name"] for c in world.claims()}, limit=timedelta(minutes=10))
    world.run_for(timedelta(minutes=10))
    running_before = len(world.instances())
    world.run_for(timedelta(minutes=10))
    assert len(world.instances()) == running_before <= 1
    shell.tenon("resume", "demo")
    world.run_until(lambda: len(running(world)) == 4, limit=timedelta(minutes=10))


def test_a_machine_that_does_not_join_stays_while_the_cluster_is_paused(tmp_path: Path) -> None:
    with open_shell(tmp_path, Options(behavior=lambda _: MachineBehavior(never_joins=True))) as shell:
        world = shell.world
        world.apply([deployment("web", 2)])
        world.run_until(lambda: bool(world.instances()))
        shell.tenon("pause", "demo")
        (instance,) = world.instances()
        world.run_for(timedelta(minutes=30))
        assert [i.id for i in world.instances()] == [instance.id]
        shell.tenon("resume", "demo")
        world.run_until(lambda: instance.id not in {i.id for i in world.instances()}, limit=timedelta(minutes=10))


@pytest.mark.long
def test_a_paused_pool_launches_nothing_and_keeps_its_nodes_while_others_go_on(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 4)])
    fill(world, 4)
    before = {i.id for i in world.instances()}
    annotate(world, paused="true", paused_reason="frozen for an audit")
    world.scale("default", "web", 0)
    world.apply([deployment("later", 2)])
    world.scale("default", "later", 10)
    world.run_for(HOUR)
    assert {i.id for i in world.instances()} == before
    stated = condition(world)
    assert stated is not None
    assert "NodePool default is paused until it is resumed: frozen for an audit" in stated["message"]
    shown = shell.tenon("explain", "nodepool", "default").out
    assert "paused: NodePool default is paused" in shown
    pod = next(p["metadata"]["name"] for p in world.pods() if not p["spec"].get("nodeName"))
    assert "frozen for an audit" in shell.tenon("explain", "pod", f"default/{pod}").out
    node = min(standing(world))
    assert "frozen for an audit" in shell.tenon("explain", "node", node).out
    world.apply([pool("other")])
    world.run_until(lambda: len(running(world)) == 10, limit=timedelta(minutes=10))
    assert before < {i.id for i in world.instances()}
    assert all(instance_of(world, n["metadata"]["name"]) not in before for n in world.nodes("other"))
    until = world.clock.now() + timedelta(minutes=10)
    annotate(world, paused=until.isoformat())
    world.run_for(timedelta(minutes=25))
    assert condition(world) is None
    assert not before <= {i.id for i in world.instances()}
    expect_nothing_failed(world)


def test_static_pools_stop_too(shell: Shell) -> None:
    world = shell.world
    fixed = sample_objects.node_pool(
        {"node.kubernetes.io/instance-type": ["m5.large"], "karpenter.sh/capacity-type": ["on-demand"]},
        name="fixed",
        replicas=2,
        disruption={"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]},
    )
    world.apply([fixed])
    world.run_until(lambda: len(world.nodes("fixed")) == 2, limit=timedelta(minutes=10))
    world.run_for(timedelta(minutes=2))
    shell.tenon("pause", "demo")
    for replicas in (0, 5):
        world.store.patch(world.store.kind(*POOL), "fixed", {"spec": {"replicas": replicas}})
        world.run_for(timedelta(minutes=10))
        assert len(world.claims()) == len(world.nodes("fixed")) == 2
    shell.tenon("resume", "demo")
    world.run_until(lambda: len(world.nodes("fixed")) == 5, limit=timedelta(minutes=10))


def test_commands_show_the_pause(shell: Shell) -> None:
    world = shell.world
    world.apply([deployment("web", 2)])
    fill(world, 2)
    shell.tenon("pause", "demo", "--for", "2h", "--reason", "incident 4711")
    world.apply([deployment("later", 2)])
    world.run_for(timedelta(minutes=2))
    for arguments in (["plan"], ["nodes", "--once"], ["status"]):
        shown = shell.tenon(*arguments).out
        assert "the cluster is paused since" in shown, arguments
        assert "incident 4711" in shown, arguments
    planned = shell.tenon("plan", "--json").json
    assert planned["launches"]["nodeClaims"] == []
    assert "incident 4711" in planned["pauses"][0]
    pod = next(p["metadata"]["name"] for p in world.pods() if not p["spec"].get("nodeName"))
    assert "the cluster is paused" in shell.tenon("explain", "pod", f"default/{pod}").out
    (node,) = standing(world)
    assert "is kept" in (explained := shell.tenon("explain", "node", node).out)
    assert "the cluster is paused" in explained


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "--for", "soon"), "not a duration"),
        (("pause", "--for", "0"), "no length"),
        (("pause", "other"), "differ"),
        (("resume", "other"), "differ"),
    ],
)
def test_what_a_pause_cannot_be(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    result = shell.tenon(*arguments)
    assert result.code == 2
    assert said in result.err

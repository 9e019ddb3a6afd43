"""Changes from outside to nodes, NodeClaims and instances: Tenon converges, and an event says what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels as names
from shared.base import aws, runtime
from shared.cluster.resources import NODE_CLAIMS, NODE_POOLS, NODES

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Environment


pytestmark = pytest.mark.usefixtures("turns")  # every test holds in a large cluster too, which lists a portion


def assert_all_removed(env: Environment, instance: str) -> None:
    assert env.claims() == env.nodes() == []
    assert env.states()[instance] == "terminated"


@pytest.mark.parametrize("edited", ["banana", "", "aws:///us-east-1a/i-0123456789abcdef0"])
def test_an_edited_provider_id_is_restored(env: Environment, edited: str) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    before = env.stored_claim("claim-old")["status"]["providerID"]
    env.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), {"status": {"providerID": edited}})
    env.turn(60)
    env.settle(minutes=3)
    assert env.stored_claim("claim-old")["status"]["providerID"] == before
    assert env.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]
    (event,) = env.events("ProviderIDRestored")
    assert instance in event["message"]


@pytest.mark.parametrize("removed", [{"status": None}, {"status": {"conditions": []}}])
def test_a_removed_status_is_restored_and_the_nodeclaim_keeps_its_node(
    env: Environment, removed: dict[str, Any]
) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    before = env.stored_claim("claim-old")["status"]
    env.turn(3600)
    cleared = {"status": dict.fromkeys(before)} if removed["status"] is None else removed
    env.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), cleared)
    env.settle(minutes=3)
    after = env.stored_claim("claim-old")["status"]
    assert (after["providerID"], after["nodeName"]) == (before["providerID"], "old")
    assert {c["type"] for c in after["conditions"] if c["status"] == "True"} >= {"Launched", "Registered"}
    assert env.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]
    if removed["status"] is None:
        (event,) = env.events("ProviderIDRestored")
        assert instance in event["message"]


def test_a_nodeclaim_without_any_instance_is_deleted_with_the_reason(env: Environment) -> None:
    env.claim("odd", "banana", registered=False)
    env.turn(60)
    env.settle(minutes=3)
    assert env.claims() == []
    (event,) = env.events("InstanceGone")
    assert "banana" in event["message"]


def test_a_removed_finalizer_is_restored(env: Environment) -> None:
    env.a_node("old")
    env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    env.settle(minutes=1)
    assert env.stored_claim("claim-old")["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]


def test_a_force_deleted_nodeclaim_has_its_node_drained_before_its_instance_is_terminated(
    env: Environment,
) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}}
    env.client.create(NODE_POOLS.path(), {**pool, "spec": {"template": {"spec": {"nodeClassRef": reference}}}})
    env.turn(1)
    instance = env.a_node("old")
    env.pod("web-1", "old")
    env.pod("web-2", "old")
    env.budget("web", 1)
    env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    env.client.delete(NODE_CLAIMS.path("claim-old"))
    env.turn(60)
    env.settle(minutes=3)
    left = {p["metadata"]["name"] for p in env.pods() if "deletionTimestamp" not in p["metadata"]}
    assert len(left) == 1
    assert env.states()[instance] == "running"
    (event,) = env.events("NodeClaimGone")
    assert event["involvedObject"]["name"] == "old"
    for pod in ("web-1", "web-2"):
        env.stop(pod)
    env.settle(minutes=2)
    assert_all_removed(env, instance)


def test_a_force_deleted_node_has_its_instance_terminated_and_its_nodeclaim_deleted(env: Environment) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    env.client.patch(NODES.path("old"), {"metadata": {"finalizers": []}})
    env.client.delete(NODES.path("old"))
    env.turn(60)
    env.settle(minutes=3)
    assert_all_removed(env, instance)
    (event,) = env.events("NodeGone")
    assert instance in event["message"]


@pytest.mark.parametrize("state", ["launched", "joining", "registered", "draining"])
def test_an_instance_terminated_from_outside_has_its_nodeclaim_and_node_removed(env: Environment, state: str) -> None:
    if state in ("launched", "joining"):
        instance, provider_id = env.instance(**{names.NODECLAIM_TAG: "claim-old"})
        env.claim("claim-old", provider_id, registered=False)
        if state == "joining":
            env.node("old", provider_id, ready=False, managed=False)
    else:
        instance = env.a_node("old")
        env.pod("web", "old")
        env.budget("web", 1)
    if state == "draining":
        env.delete("claim-old")
        for _ in range(3):
            env.step()
        assert len(env.pods()) == 1
    env.terminate_from_outside(instance)
    if state != "launched":
        env.set_ready("old", "Unknown")
    env.turn(60)
    env.settle(minutes=4)
    assert_all_removed(env, instance)
    assert env.events("InstanceGone")


def test_a_node_with_an_invalid_provider_id_gets_an_event_and_is_removed_once_not_ready(env: Environment) -> None:
    instance, provider_id = env.instance(**{names.NODECLAIM_TAG: "claim-odd"})
    env.claim("claim-odd", provider_id, registered=False)
    env.node("odd", "banana", managed=False)
    env.settle(minutes=18)
    (message,) = {e["message"] for e in env.events("ProviderIDUnknown")}
    assert "banana" in message
    assert env.events("RegistrationTimeout")
    assert env.states()[instance] == "terminated"
    assert len(env.nodes()) == 1
    env.set_ready("odd", "Unknown")
    env.settle(minutes=3)
    assert_all_removed(env, instance)


def test_a_nodeclaim_with_an_unassigned_instance_gets_the_registration_timeout(env: Environment, turns: int) -> None:
    group = {names.LAUNCH_GROUP: "g"}
    instance, _ = env.instance(**group)
    env.claim("late", "", registered=False)
    env.client.patch(NODE_CLAIMS.path("late"), {"metadata": {"annotations": group}})
    env.client.patch(NODE_CLAIMS.path("late", subresource="status"), {"status": {"conditions": []}})
    env.turn(301)
    env.settle(minutes=8)
    assert "deletionTimestamp" not in env.stored_claim("late")["metadata"]
    assert env.states()[instance] == "running"
    env.settle(minutes=3 + turns)
    (event,) = env.events("RegistrationTimeout")
    assert instance in event["message"]
    assert_all_removed(env, instance)


def test_instances_of_node_groups_are_left_alone_although_they_have_the_clusters_tag(env: Environment) -> None:
    instance, provider_id = env.instance()
    env.client.create(
        NODES.path(),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "group"}, "spec": {"providerID": provider_id}},
    )
    _untag(env, instance)
    env.turn(60)
    env.settle(minutes=3)
    assert env.states()[instance] == "running"
    assert len(env.nodes()) == 1


def _untag(env: Environment, instance: str) -> None:
    with runtime.using(env.host):
        aws.ec2().delete_tags(Resources=[instance], Tags=[{"Key": names.NODEPOOL}])


def test_nodeclaims_of_karpenter_get_new_hashes_and_hashes_of_our_version_are_kept(env: Environment) -> None:
    env.client.create(
        "/apis/karpenter.sh/v1/nodepools",
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default"},
            "spec": {
                "template": {
                    "spec": {
                        "requirements": [],
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    }
                }
            },
        },
    )
    env.a_node("theirs")
    env.a_node("ours")
    theirs = {names.NODEPOOL_HASH: "1234", names.NODEPOOL_HASH_VERSION: "v2"}
    ours = {names.NODEPOOL_HASH: "before the pool changed", names.NODEPOOL_HASH_VERSION: "v3"}
    env.client.patch(NODE_CLAIMS.path("claim-theirs"), {"metadata": {"annotations": theirs}})
    env.client.patch(NODE_CLAIMS.path("claim-ours"), {"metadata": {"annotations": ours}})
    env.settle(minutes=1)
    annotations = env.stored_claim("claim-theirs")["metadata"]["annotations"]
    assert annotations[names.NODEPOOL_HASH_VERSION] == "v3"
    assert annotations[names.NODEPOOL_HASH] != "1234"
    assert env.stored_claim("claim-ours")["metadata"]["annotations"][names.NODEPOOL_HASH] == ours[names.NODEPOOL_HASH]


def collectable(env: Environment, claim: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition GarbageCollectable; empty without it."""
    conditions = env.stored_claim(claim)["status"]["conditions"]
    written: dict[str, str] = next((c for c in conditions if c["type"] == "GarbageCollectable"), {})
    return written.get("status", ""), written.get("reason", ""), written.get("message", "")


def test_a_nodeclaim_is_deleted_when_ec2_says_twice_that_its_instance_is_gone(env: Environment) -> None:
    instance = env.a_node("old")
    env.set_ready("old", "Unknown")
    env.turn(360)
    with env.unknown_instances(instance):
        env.reconcile()
    assert collectable(env, "claim-old")[:2] == ("True", "InstanceNotFound")
    env.turn(60)
    env.reconcile()
    assert collectable(env, "claim-old")[:2] == ("False", "InstanceExists")
    assert "deletionTimestamp" not in env.stored_claim("claim-old")["metadata"]
    with env.unknown_instances(instance):
        for _ in range(2):
            env.turn(60)
            env.reconcile()
    assert "deletionTimestamp" in env.stored_claim("claim-old")["metadata"]
    (event,) = env.events("InstanceGone")
    assert instance in event["message"]
    assert env.states()[instance] == "running"
    env.settle(minutes=3)
    assert_all_removed(env, instance)


def test_an_instance_in_a_zone_shifted_away_is_not_given_up(env: Environment) -> None:
    class ZonalShifts:
        shifts: tuple[str, ...] = ("use1-az1",)

        def get_managed_resource(self, **_: str) -> dict[str, Any]:
            ends = {"expiryTime": env.now + timedelta(hours=1), "appliedStatus": "APPLIED"}
            return {"zonalShifts": [{"awayFrom": zone, **ends} for zone in self.shifts]}

    env.options["TENON_ZONAL_SHIFT"] = "on"
    env.warm["aws:arc-zonal-shift"] = arc = ZonalShifts()
    instance = env.a_node("old")
    zone = {names.ZONE: "us-east-1a", names.ZONE_ID: "use1-az1"}
    for path in (NODES.path("old"), NODE_CLAIMS.path("claim-old")):
        env.client.patch(path, {"metadata": {"labels": zone}})
    env.set_ready("old", "Unknown")
    env.turn(360)
    with env.unknown_instances(instance):
        for _ in range(3):
            env.turn(60)
            env.reconcile()
        assert "deletionTimestamp" not in env.stored_claim("claim-old")["metadata"]
        arc.shifts = ()
        for _ in range(2):
            env.turn(60)
            env.reconcile()
    assert "deletionTimestamp" in env.stored_claim("claim-old")["metadata"]


def test_a_new_nodeclaim_whose_instance_ec2_does_not_know_has_the_registration_timeout(env: Environment) -> None:
    instance, provider_id = env.instance(**{names.NODECLAIM_TAG: "new"})
    env.claim("new", provider_id, registered=False)
    with env.unknown_instances(instance):
        env.settle(minutes=14)
    assert "deletionTimestamp" not in env.stored_claim("new")["metadata"]


def test_one_sweep_deletes_at_most_five_nodeclaims_and_marks_the_others(
    env: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    instances = [env.a_node(f"n{i}") for i in range(8)]
    for i, instance in enumerate(instances):
        env.terminate_from_outside(instance)
        env.set_ready(f"n{i}", "Unknown")
    env.turn(60)
    env.reconcile()
    env.turn(60)
    env.reconcile()
    deleting = [c["metadata"]["name"] for c in env.claims() if "deletionTimestamp" in c["metadata"]]
    assert deleting == [f"claim-n{i}" for i in range(5)]
    status, _, message = collectable(env, "claim-n7")
    assert status == "True"
    assert "kept: one sweep deletes at most 5 NodeClaims" in message
    assert '"tenon_garbage_kept_total":[3.0]' in capsys.readouterr().out.replace(" ", "")
    env.settle(minutes=3)
    assert env.claims() == env.nodes() == []


def test_one_sweep_terminates_at_most_five_instances_without_a_nodeclaim(env: Environment) -> None:
    for _ in range(8):
        env.instance()
    env.turn(60)
    env.reconcile()
    env.run(limit=timedelta(seconds=1))
    assert sorted(env.states().values()) == ["running"] * 3 + ["terminated"] * 5
    env.settle(minutes=2)
    assert set(env.states().values()) == {"terminated"}


def test_an_instance_that_ec2_does_not_describe_is_terminated_before_its_nodeclaim_is_removed(env: Environment) -> None:
    instance = env.a_node("old")
    with env.unknown_instances(instance):
        env.delete("claim-old")
        env.run(limit=timedelta(minutes=1))
    assert env.states()[instance] == "terminated"
    env.run()
    assert_all_removed(env, instance)


def test_a_node_not_ready_for_a_moment_is_drained_while_ec2_does_not_know_its_instance(env: Environment) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.set_ready("old", "Unknown")
    with env.unknown_instances(instance):
        env.delete("claim-old")
        env.run(limit=timedelta(minutes=3))
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]
    assert env.states()[instance] == "running"

"""Changes from outside to nodes, NodeClaims and instances: Tenon converges, and an event says what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.lifecycle.claims.node_repair import REPAIR_ANNOTATION
from local.aws import backends
from shared.api import labels as names
from shared.base import aws, runtime
from shared.cluster.resources import LEASES, NODE_CLAIMS, NODES

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Rig


def assert_all_removed(rig: Rig, instance: str) -> None:
    assert rig.claims() == rig.nodes() == []
    assert rig.states()[instance] == "terminated"


@pytest.mark.parametrize("edited", ["banana", "", "aws:///us-east-1a/i-0123456789abcdef0"])
def test_an_edited_provider_id_is_restored(rig: Rig, edited: str) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    before = rig.stored_claim("claim-old")["status"]["providerID"]
    rig.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), {"status": {"providerID": edited}})
    rig.turn(60)
    rig.settle(minutes=3)
    assert rig.stored_claim("claim-old")["status"]["providerID"] == before
    assert rig.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    (event,) = rig.events("ProviderIDRestored")
    assert instance in event["message"]


@pytest.mark.parametrize("removed", [{"status": None}, {"status": {"conditions": []}}])
def test_a_removed_status_is_restored_and_the_nodeclaim_keeps_its_node(rig: Rig, removed: dict[str, Any]) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    before = rig.stored_claim("claim-old")["status"]
    rig.turn(3600)
    cleared = {"status": dict.fromkeys(before)} if removed["status"] is None else removed
    rig.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), cleared)
    rig.settle(minutes=3)
    after = rig.stored_claim("claim-old")["status"]
    assert (after["providerID"], after["nodeName"]) == (before["providerID"], "old")
    assert {c["type"] for c in after["conditions"] if c["status"] == "True"} >= {"Launched", "Registered"}
    assert rig.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    if removed["status"] is None:
        (event,) = rig.events("ProviderIDRestored")
        assert instance in event["message"]


def test_a_nodeclaim_without_any_instance_is_deleted_with_the_reason(rig: Rig) -> None:
    rig.claim("odd", "banana", registered=False)
    rig.turn(60)
    rig.settle(minutes=3)
    assert rig.claims() == []
    (event,) = rig.events("InstanceGone")
    assert "banana" in event["message"]


def test_a_removed_finalizer_is_restored(rig: Rig) -> None:
    rig.a_node("old")
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    rig.settle(minutes=1)
    assert rig.stored_claim("claim-old")["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]


def test_a_force_deleted_nodeclaim_has_its_node_drained_before_its_instance_is_terminated(
    rig: Rig,
) -> None:
    instance = rig.a_node("old")
    rig.pod("web-1", "old")
    rig.pod("web-2", "old")
    rig.budget("web", 1)
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    rig.client.delete(NODE_CLAIMS.path("claim-old"))
    rig.turn(60)
    rig.settle(minutes=3)
    left = {p["metadata"]["name"] for p in rig.pods() if "deletionTimestamp" not in p["metadata"]}
    assert len(left) == 1
    assert rig.states()[instance] == "running"
    (event,) = rig.events("NodeClaimGone")
    assert event["involvedObject"]["name"] == "old"
    for pod in ("web-1", "web-2"):
        rig.stop(pod)
    rig.settle(minutes=2)
    assert_all_removed(rig, instance)


def test_a_force_deleted_node_has_its_instance_terminated_and_its_nodeclaim_deleted(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.client.patch(NODES.path("old"), {"metadata": {"finalizers": []}})
    rig.client.delete(NODES.path("old"))
    rig.turn(60)
    rig.settle(minutes=3)
    assert_all_removed(rig, instance)
    (event,) = rig.events("NodeGone")
    assert instance in event["message"]


@pytest.mark.parametrize("state", ["launched", "joining", "registered", "draining"])
def test_an_instance_terminated_from_outside_has_its_nodeclaim_and_node_removed(rig: Rig, state: str) -> None:
    if state in ("launched", "joining"):
        instance, provider_id = rig.instance(**{names.NODECLAIM_TAG: "claim-old"})
        rig.claim("claim-old", provider_id, registered=False)
        if state == "joining":
            rig.node("old", provider_id, ready=False, managed=False)
    else:
        instance = rig.a_node("old")
        rig.pod("web", "old")
        rig.budget("web", 1)
    if state == "draining":
        rig.delete("claim-old")
        for _ in range(3):
            rig.step()
        assert len(rig.pods()) == 1
    rig.terminate_from_outside(instance)
    if state != "launched":
        rig.set_ready("old", "Unknown")
    rig.turn(60)
    rig.settle(minutes=4)
    assert_all_removed(rig, instance)
    assert rig.events("InstanceGone")


def test_a_node_with_an_invalid_provider_id_gets_an_event_and_is_removed_once_not_ready(rig: Rig) -> None:
    instance, provider_id = rig.instance(**{names.NODECLAIM_TAG: "claim-odd"})
    rig.claim("claim-odd", provider_id, registered=False)
    rig.node("odd", "banana", managed=False)
    rig.settle(minutes=18)
    (message,) = {e["message"] for e in rig.events("ProviderIDUnknown")}
    assert "banana" in message
    assert rig.events("RegistrationTimeout")
    assert rig.states()[instance] == "terminated"
    assert len(rig.nodes()) == 1
    rig.set_ready("odd", "Unknown")
    rig.settle(minutes=3)
    assert_all_removed(rig, instance)


def test_a_nodeclaim_with_an_unassigned_instance_gets_the_registration_timeout(rig: Rig) -> None:
    group = {names.LAUNCH_GROUP: "g"}
    instance, _ = rig.instance(**group)
    rig.claim("late", "", registered=False)
    rig.client.patch(NODE_CLAIMS.path("late"), {"metadata": {"annotations": group}})
    rig.client.patch(NODE_CLAIMS.path("late", subresource="status"), {"status": {"conditions": []}})
    rig.turn(301)
    rig.settle(minutes=8)
    assert "deletionTimestamp" not in rig.stored_claim("late")["metadata"]
    assert rig.states()[instance] == "running"
    rig.settle(minutes=4)
    (event,) = rig.events("RegistrationTimeout")
    assert instance in event["message"]
    assert_all_removed(rig, instance)


def test_instances_of_node_groups_are_left_alone_although_they_have_the_clusters_tag(rig: Rig) -> None:
    instance, provider_id = rig.instance()
    rig.client.create(
        NODES.path(),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "group"}, "spec": {"providerID": provider_id}},
    )
    _untag(rig, instance)
    rig.turn(60)
    rig.settle(minutes=3)
    assert rig.states()[instance] == "running"
    assert len(rig.nodes()) == 1


def _untag(rig: Rig, instance: str) -> None:
    with runtime.using(rig.host):
        aws.ec2().delete_tags(Resources=[instance], Tags=[{"Key": names.NODEPOOL}])


def test_nodeclaims_of_karpenter_get_new_hashes_and_hashes_of_our_version_are_kept(rig: Rig) -> None:
    rig.client.create(
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
    rig.a_node("theirs")
    rig.a_node("ours")
    theirs = {names.NODEPOOL_HASH: "1234", names.NODEPOOL_HASH_VERSION: "v2"}
    ours = {names.NODEPOOL_HASH: "before the pool changed", names.NODEPOOL_HASH_VERSION: "v3"}
    rig.client.patch(NODE_CLAIMS.path("claim-theirs"), {"metadata": {"annotations": theirs}})
    rig.client.patch(NODE_CLAIMS.path("claim-ours"), {"metadata": {"annotations": ours}})
    rig.settle(minutes=1)
    annotations = rig.stored_claim("claim-theirs")["metadata"]["annotations"]
    assert annotations[names.NODEPOOL_HASH_VERSION] == "v3"
    assert annotations[names.NODEPOOL_HASH] != "1234"
    assert rig.stored_claim("claim-ours")["metadata"]["annotations"][names.NODEPOOL_HASH] == ours[names.NODEPOOL_HASH]


def test_unhealthy_nodes_are_replaced_if_repair_is_enabled_and_at_most_a_fifth_is_unhealthy(rig: Rig) -> None:
    for i in range(10):
        rig.a_node(f"n-{i}")
    rig.client.create(
        "/apis/karpenter.sh/v1/nodepools",
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "default", "annotations": {REPAIR_ANNOTATION: "true"}},
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
    for i in range(3):
        rig.set_ready(f"n-{i}", "Unknown")
    rig.turn(timedelta(minutes=31).total_seconds())
    rig.settle(minutes=2)
    assert len(rig.claims()) == 10
    assert rig.events("NodeRepairBlocked")
    rig.set_ready("n-2", "True")
    rig.settle(minutes=3)
    assert {c["metadata"]["name"] for c in rig.claims()} == {f"claim-n-{i}" for i in range(2, 10)}
    assert {e["involvedObject"]["name"] for e in rig.events("NodeUnhealthy")} == {"claim-n-0", "claim-n-1"}


def test_launch_templates_unused_for_an_hour_and_leases_without_node_are_deleted(rig: Rig) -> None:
    ours = [{"Key": names.CLUSTER_TAG.format(cluster="demo"), "Value": "owned"}]
    with runtime.using(rig.host):
        template_ids = {}
        for name, tags in (("tenon-demo-used", ours), ("tenon-demo-unused", ours), ("theirs", [])):
            specs: Any = [{"ResourceType": "launch-template", "Tags": tags}] if tags else []
            template_ids[name] = aws.ec2().create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-1"}, TagSpecifications=specs
            )["LaunchTemplate"]["LaunchTemplateId"]
    rig.turn(1800)
    rig.a_node("used")
    _tag_template(template_ids["tenon-demo-used"])
    for lease, owner in (
        ("gone", []),
        ("used", []),
        ("owned", [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]),
    ):
        rig.client.create(
            LEASES.path(namespace="kube-node-lease"),
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": lease, "namespace": "kube-node-lease", "ownerReferences": owner},
                "spec": {"renewTime": f"{rig.now:%Y-%m-%dT%H:%M:%S.%fZ}"},
            },
        )
    assert templates(rig) == {"tenon-demo-used", "tenon-demo-unused", "theirs"}
    rig.reconcile()
    assert templates(rig) == {"tenon-demo-used", "tenon-demo-unused", "theirs"}
    rig.turn(3700 - 1800)
    rig.restart()
    rig.reconcile()
    assert templates(rig) == {"tenon-demo-used", "theirs"}
    rig.turn(3700)
    rig.reconcile()
    assert templates(rig) == {"theirs"}
    pages = rig.client.list_pages(LEASES.path(namespace="kube-node-lease"))
    assert sorted(n for page in pages for n in ("gone", "used", "owned") if f'"name":"{n}"'.encode() in page) == [
        "owned",
        "used",
    ]


def templates(rig: Rig) -> set[str]:
    with runtime.using(rig.host):
        return {t["LaunchTemplateName"] for t in aws.ec2().describe_launch_templates()["LaunchTemplates"]}


def _tag_template(template: str) -> None:
    """As EC2 does: an instance is tagged with the launch template that it was launched from."""
    ec2 = backends.ec2("us-east-1")
    for instance in (i for r in ec2.reservations.values() for i in r.instances):
        ec2.create_tags([instance.id], {"aws:ec2launchtemplate:id": template})


def collectable(rig: Rig, claim: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition GarbageCollectable; empty without it."""
    conditions = rig.stored_claim(claim)["status"]["conditions"]
    written: dict[str, str] = next((c for c in conditions if c["type"] == "GarbageCollectable"), {})
    return written.get("status", ""), written.get("reason", ""), written.get("message", "")


def test_a_nodeclaim_whose_node_is_ready_is_kept_whatever_ec2_answers(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.turn(60)
    with rig.unknown_instances(instance):
        rig.settle(minutes=10)
    assert "deletionTimestamp" not in rig.stored_claim("claim-old")["metadata"]
    assert collectable(rig, "claim-old") == ("", "", "")
    assert rig.states()[instance] == "running"


def test_a_nodeclaim_is_deleted_when_ec2_says_twice_that_its_instance_is_gone(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.set_ready("old", "Unknown")
    rig.turn(360)
    with rig.unknown_instances(instance):
        rig.reconcile()
    assert collectable(rig, "claim-old")[:2] == ("True", "InstanceNotFound")
    rig.turn(60)
    rig.reconcile()
    assert collectable(rig, "claim-old")[:2] == ("False", "InstanceExists")
    assert "deletionTimestamp" not in rig.stored_claim("claim-old")["metadata"]
    with rig.unknown_instances(instance):
        for _ in range(2):
            rig.turn(60)
            rig.reconcile()
    assert "deletionTimestamp" in rig.stored_claim("claim-old")["metadata"]
    (event,) = rig.events("InstanceGone")
    assert instance in event["message"]
    assert rig.states()[instance] == "running"
    rig.settle(minutes=3)
    assert_all_removed(rig, instance)


def test_a_new_nodeclaim_whose_instance_ec2_does_not_know_has_the_registration_timeout(rig: Rig) -> None:
    instance, provider_id = rig.instance(**{names.NODECLAIM_TAG: "new"})
    rig.claim("new", provider_id, registered=False)
    with rig.unknown_instances(instance):
        rig.settle(minutes=14)
    assert "deletionTimestamp" not in rig.stored_claim("new")["metadata"]


def test_one_sweep_deletes_at_most_five_nodeclaims_and_marks_the_others(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    instances = [rig.a_node(f"n{i}") for i in range(8)]
    for i, instance in enumerate(instances):
        rig.terminate_from_outside(instance)
        rig.set_ready(f"n{i}", "Unknown")
    rig.turn(60)
    rig.reconcile()
    rig.turn(60)
    rig.reconcile()
    deleting = [c["metadata"]["name"] for c in rig.claims() if "deletionTimestamp" in c["metadata"]]
    assert deleting == [f"claim-n{i}" for i in range(5)]
    status, _, message = collectable(rig, "claim-n7")
    assert status == "True"
    assert "kept: one sweep deletes at most 5 NodeClaims" in message
    assert '"tenon_garbage_kept_total":[3.0]' in capsys.readouterr().out.replace(" ", "")
    rig.settle(minutes=3)
    assert rig.claims() == rig.nodes() == []


def test_one_sweep_terminates_at_most_five_instances_without_a_nodeclaim(rig: Rig) -> None:
    for _ in range(8):
        rig.instance()
    rig.turn(60)
    rig.reconcile()
    rig.run(limit=timedelta(seconds=1))
    assert sorted(rig.states().values()) == ["running"] * 3 + ["terminated"] * 5
    rig.settle(minutes=2)
    assert set(rig.states().values()) == {"terminated"}


def test_an_instance_that_ec2_does_not_describe_is_terminated_before_its_nodeclaim_is_removed(rig: Rig) -> None:
    instance = rig.a_node("old")
    with rig.unknown_instances(instance):
        rig.delete("claim-old")
        rig.run(limit=timedelta(minutes=1))
    assert rig.states()[instance] == "terminated"
    rig.run()
    assert_all_removed(rig, instance)


def test_a_node_that_is_not_ready_for_a_moment_is_drained_while_ec2_does_not_know_its_instance(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.set_ready("old", "Unknown")
    with rig.unknown_instances(instance):
        rig.delete("claim-old")
        rig.run(limit=timedelta(minutes=3))
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    assert rig.states()[instance] == "running"

"""What people and EC2 do to nodes behind Tenon's back: it converges, and an event says what happened."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.lifecycle.node_repair import REPAIR_ANNOTATION
from local.aws import backends
from shared import aws, runtime
from shared.api import labels as names
from shared.cluster.resources import LEASES, NODE_CLAIMS, NODES

if TYPE_CHECKING:
    from tests.integration.termination.conftest import Rig


def all_is_gone(rig: Rig, instance: str) -> None:
    assert rig.claims() == rig.nodes() == []
    assert rig.states()[instance] == "terminated"


@pytest.mark.parametrize("edited", ["banana", "", "aws:///us-east-1a/i-0123456789abcdef0"])
def test_a_claims_instance_that_somebody_edited_is_written_again(rig: Rig, edited: str) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    right = rig.stored_claim("claim-old")["status"]["providerID"]
    rig.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), {"status": {"providerID": edited}})
    rig.turn(60)
    rig.settle(minutes=3)
    assert rig.stored_claim("claim-old")["status"]["providerID"] == right
    assert rig.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    (told,) = rig.events("ProviderIDRestored")
    assert instance in told["message"]


@pytest.mark.parametrize("wiped", [{"status": None}, {"status": {"conditions": []}}])
def test_a_claim_whose_status_somebody_wiped_is_told_its_instance_again_and_keeps_its_node(
    rig: Rig, wiped: dict[str, Any]
) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    before = rig.stored_claim("claim-old")["status"]
    rig.turn(3600)
    cleared = {"status": dict.fromkeys(before)} if wiped["status"] is None else wiped
    rig.client.patch(NODE_CLAIMS.path("claim-old", subresource="status"), cleared)
    rig.settle(minutes=3)
    after = rig.stored_claim("claim-old")["status"]
    assert (after["providerID"], after["nodeName"]) == (before["providerID"], "old")
    assert {c["type"] for c in after["conditions"] if c["status"] == "True"} >= {"Launched", "Registered"}
    assert rig.states()[instance] == "running"
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    if wiped["status"] is None:
        (told,) = rig.events("ProviderIDRestored")
        assert instance in told["message"]


def test_a_claim_that_names_no_instance_and_none_names_is_removed_with_the_reason(rig: Rig) -> None:
    rig.claim("odd", "banana", registered=False)
    rig.turn(60)
    rig.settle(minutes=3)
    assert rig.claims() == []
    (told,) = rig.events("InstanceGone")
    assert "banana" in told["message"]


def test_a_claim_whose_finalizer_somebody_took_off_gets_it_back(rig: Rig) -> None:
    rig.a_node("old")
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"finalizers": []}})
    rig.settle(minutes=1)
    assert rig.stored_claim("claim-old")["metadata"]["finalizers"] == [names.TERMINATION_FINALIZER]


def test_a_claim_deleted_by_force_has_its_node_drained_under_its_budgets_before_the_instance_goes(rig: Rig) -> None:
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
    (told,) = rig.events("NodeClaimGone")
    assert told["involvedObject"]["name"] == "old"
    for pod in ("web-1", "web-2"):
        rig.stop(pod)
    rig.settle(minutes=4)
    all_is_gone(rig, instance)


def test_a_node_deleted_by_force_takes_its_instance_and_claim_with_it(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.client.patch(NODES.path("old"), {"metadata": {"finalizers": []}})
    rig.client.delete(NODES.path("old"))
    rig.turn(60)
    rig.settle(minutes=3)
    all_is_gone(rig, instance)
    (told,) = rig.events("NodeGone")
    assert instance in told["message"]


@pytest.mark.parametrize("state", ["launched", "joining", "registered", "draining"])
def test_an_instance_terminated_from_outside_has_its_claim_and_node_removed(rig: Rig, state: str) -> None:
    if state in ("launched", "joining"):
        instance, provider_id = rig.instance(**{names.NODECLAIM_TAG: "claim-old"})
        rig.claim("claim-old", provider_id, registered=False)
        if state == "joining":
            rig.node("old", provider_id, ready=False, ours=False)
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
        rig.say_ready("old", "Unknown")
    rig.turn(60)
    rig.settle(minutes=4)
    all_is_gone(rig, instance)
    assert rig.events("InstanceGone")


def test_a_node_whose_provider_id_is_garbage_is_told_so_and_removed_once_its_kubelet_is_silent(rig: Rig) -> None:
    instance, provider_id = rig.instance(**{names.NODECLAIM_TAG: "claim-odd"})
    rig.claim("claim-odd", provider_id, registered=False)
    rig.node("odd", "banana", ours=False)
    rig.settle(minutes=18)
    (told,) = {e["message"] for e in rig.events("ProviderIDUnknown")}
    assert "banana" in told
    assert rig.events("RegistrationTimeout")
    assert rig.states()[instance] == "terminated"
    assert len(rig.nodes()) == 1
    rig.say_ready("odd", "Unknown")
    rig.settle(minutes=3)
    all_is_gone(rig, instance)


def test_a_claim_whose_instance_was_launched_but_not_handed_over_is_waited_for(rig: Rig) -> None:
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
    (told,) = rig.events("RegistrationTimeout")
    assert instance in told["message"]
    all_is_gone(rig, instance)


def test_a_node_groups_instances_are_never_touched_though_they_carry_the_clusters_tag(rig: Rig) -> None:
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


def test_karpenters_claims_are_stamped_anew_and_their_own_fingerprints_are_kept_when_they_are_ours(rig: Rig) -> None:
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
    theirs = {names.NODEPOOL_HASH: "1234", names.NODEPOOL_HASH_VERSION: "v3"}
    ours = {names.NODEPOOL_HASH: "before the pool changed", names.NODEPOOL_HASH_VERSION: "tenon-v1"}
    rig.client.patch(NODE_CLAIMS.path("claim-theirs"), {"metadata": {"annotations": theirs}})
    rig.client.patch(NODE_CLAIMS.path("claim-ours"), {"metadata": {"annotations": ours}})
    rig.settle(minutes=1)
    stamped = rig.stored_claim("claim-theirs")["metadata"]["annotations"]
    assert stamped[names.NODEPOOL_HASH_VERSION] == "tenon-v1"
    assert stamped[names.NODEPOOL_HASH] != "1234"
    assert rig.stored_claim("claim-ours")["metadata"]["annotations"][names.NODEPOOL_HASH] == ours[names.NODEPOOL_HASH]


def test_unhealthy_nodes_are_replaced_where_the_pool_asks_for_it_and_never_a_fifth_of_it(rig: Rig) -> None:
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
        rig.say_ready(f"n-{i}", "Unknown")
    rig.turn(timedelta(minutes=31).total_seconds())
    rig.settle(minutes=2)
    assert len(rig.claims()) == 10
    assert rig.events("NodeRepairBlocked")
    rig.say_ready("n-2", "True")
    rig.settle(minutes=3)
    assert {c["metadata"]["name"] for c in rig.claims()} == {f"claim-n-{i}" for i in range(2, 10)}
    assert {e["involvedObject"]["name"] for e in rig.events("NodeUnhealthy")} == {"claim-n-0", "claim-n-1"}


def test_launch_templates_that_made_nothing_for_an_hour_and_leases_of_gone_nodes_are_cleared_up(rig: Rig) -> None:
    ours = [{"Key": names.CLUSTER_TAG.format(cluster="demo"), "Value": "owned"}]
    with runtime.using(rig.host):
        made = {}
        for name, tags in (("tenon-demo-used", ours), ("tenon-demo-unused", ours), ("theirs", [])):
            specs: Any = [{"ResourceType": "launch-template", "Tags": tags}] if tags else []
            made[name] = aws.ec2().create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-1"}, TagSpecifications=specs
            )["LaunchTemplate"]["LaunchTemplateId"]
    rig.turn(1800)
    rig.a_node("used")
    _tag_template(made["tenon-demo-used"])
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
    rig.sweep()
    assert templates(rig) == {"tenon-demo-used", "tenon-demo-unused", "theirs"}
    rig.turn(3700 - 1800)
    rig.restart()
    rig.sweep()
    assert templates(rig) == {"tenon-demo-used", "theirs"}
    rig.turn(3700)
    rig.sweep()
    assert templates(rig) == {"theirs"}
    kept = rig.client.list_pages(LEASES.path(namespace="kube-node-lease"))
    assert sorted(n for page in kept for n in ("gone", "used", "owned") if f'"name":"{n}"'.encode() in page) == [
        "owned",
        "used",
    ]


def templates(rig: Rig) -> set[str]:
    with runtime.using(rig.host):
        return {t["LaunchTemplateName"] for t in aws.ec2().describe_launch_templates()["LaunchTemplates"]}


def _tag_template(template: str) -> None:
    """As EC2 does: what made an instance stands on it."""
    ec2 = backends.ec2("us-east-1")
    for instance in (i for r in ec2.reservations.values() for i in r.instances):
        ec2.create_tags([instance.id], {"aws:ec2launchtemplate:id": template})

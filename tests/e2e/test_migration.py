"""Karpenter to Tenon, Tenon back to Karpenter, and Cluster Autoscaler to Tenon, as docs/migration.md says it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml

from local.aws import backends
from local.kubernetes import kinds
from tests.e2e.conftest import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Obj
    from local.world import World

KARPENTERS_CONDITIONS = {
    "Launched", "Registered", "Initialized", "Ready", "Consolidatable", "Drifted", "Drained", "VolumesDetached",
    "InstanceTerminating", "ConsistentStateFound", "DisruptionReason",
}  # fmt: skip
"""Of NodeClaims: sigs.k8s.io/karpenter, pkg/apis/v1/nodeclaim_status.go (v1.14)."""
OURS = "tenon.sh/"
ROOT = Path(__file__).parents[2]
ACCOUNT_SPECIFIC = re.compile(r"(?<=\()\w+(?= is not)|(?<=:iam::)\d+(?=:)")
"""The parts of an access error that differ by account: the caller's name and the account id."""


def names_of(objects: list[Obj]) -> set[str]:
    return {o["metadata"]["name"] for o in objects}


def tags_of_instances() -> dict[str, dict[str, str]]:
    """The tags of living instances, by id."""
    pages = (
        boto3.client("ec2")
        .get_paginator("describe_instances")
        .paginate(Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}])
    )
    instances = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
    return {i["InstanceId"]: {t["Key"]: t["Value"] for t in i["Tags"]} for i in instances}


@pytest.fixture
def karpenters(spot_default: World) -> World:
    """A cluster whose nodes were made by Karpenter: its hashes, and nothing that only Tenon writes."""
    world = spot_default
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    for kind in (world.store.kind("karpenter.sh/v1", "NodeClaim"), kinds.NODES):
        for obj in world.store.list(kind):
            left = _as_karpenter_leaves_it(obj)
            changed = world.store.replace(kind, left)
            if kind.plural == "nodeclaims":
                changed["status"] = left["status"]
                world.store.replace(kind, changed, subresource="status")
    ec2 = boto3.client("ec2")
    for id_, tags in tags_of_instances().items():
        ec2.delete_tags(Resources=[id_], Tags=[{"Key": key} for key in tags if key.startswith(OURS)])
    return world


def _as_karpenter_leaves_it(obj: Obj) -> Obj:
    meta = obj["metadata"]
    kept = {k: v for k, v in meta.get("annotations", {}).items() if not k.startswith(OURS)}
    for kind in ("nodepool", "ec2nodeclass"):
        group = "karpenter.sh" if kind == "nodepool" else "karpenter.k8s.aws"
        if f"{group}/{kind}-hash" in kept:
            kept |= {f"{group}/{kind}-hash": "1234567890123456789", f"{group}/{kind}-hash-version": "v2"}
    conditions = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] != "Empty"]
    return {
        **obj,
        "metadata": {**meta, "annotations": kept},
        **({"status": {**obj["status"], "conditions": conditions}} if conditions else {}),
    }


@pytest.mark.flow
def test_karpenters_nodes_and_claims_are_taken_over_as_they_are(karpenters: World) -> None:
    world = karpenters
    machines, claims, nodes = {i.id for i in world.instances()}, names_of(world.claims()), names_of(world.nodes())
    world.run_for(timedelta(hours=1))
    assert {i.id for i in world.instances()} == machines
    assert names_of(world.claims()) == claims
    assert names_of(world.nodes()) == nodes
    assert len(world.pods(phase="Running")) == 5
    for claim in world.claims():
        assert claim["metadata"]["annotations"]["karpenter.sh/nodepool-hash"] != "1234567890123456789"
        assert not any(c["type"] == "Drifted" and c["status"] == "True" for c in claim["status"]["conditions"])
    assert world.dead_letters() == []


def test_new_pods_get_nodes_and_empty_nodes_are_deleted(karpenters: World) -> None:
    world = karpenters
    world.scale("default", "inflate", 9)
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 9
    world.scale("default", "inflate", 0)
    world.run_until_idle()
    assert world.nodes() == world.claims() == world.instances() == []


@pytest.mark.flow
def test_the_cluster_can_be_handed_back(world: World, load: Callable[[str], list[dict[str, Any]]]) -> None:
    """Everything Karpenter reads is there in its own form, and what is ours in addition is only annotations."""
    world.apply([*load("v1.yaml"), *(o for o in load("spot-default.yaml") if o["kind"] == "Deployment")])
    world.scale("default", "inflate", 5)
    world.run_until_idle()
    for claim in world.claims():
        meta, status = claim["metadata"], claim["status"]
        assert "karpenter.sh/termination" in meta["finalizers"]
        assert meta["labels"]["karpenter.sh/nodepool"] == "default"
        assert meta["ownerReferences"][0]["kind"] == "NodePool"
        assert {"karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"} <= set(meta["annotations"])
        assert not any(key.startswith(OURS) for key in meta["labels"])
        assert status["providerID"].startswith("aws:///")
        assert status["nodeName"] in names_of(world.nodes())
        assert status["imageID"].startswith("ami-")
        met = {c["type"] for c in status["conditions"] if c["status"] == "True"}
        assert {"Launched", "Registered", "Initialized", "Ready"} <= met
        assert met <= KARPENTERS_CONDITIONS
    for node in world.nodes():
        labels = node["metadata"]["labels"]
        assert labels["karpenter.sh/registered"] == labels["karpenter.sh/initialized"] == "true"
        assert node["metadata"]["finalizers"] == ["karpenter.sh/termination"]
        # Where OwnerReferencesPermissionEnforcement is on, an owner reference would need the right to delete nodes.
        assert "ownerReferences" not in node["metadata"]
    for tags in tags_of_instances().values():
        assert tags[f"kubernetes.io/cluster/{CLUSTER}"] == "owned"
        assert tags["karpenter.sh/nodepool"] == "default"
        assert tags["karpenter.sh/nodeclaim"] in names_of(world.claims())
        assert tags["eks:eks-cluster-name"] == CLUSTER
    pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    (manifest,) = (o for o in load("v1.yaml") if o["kind"] == "NodePool")
    assert pool["spec"]["template"]["spec"]["requirements"] == manifest["spec"]["template"]["spec"]["requirements"]


def _group(world: World, count: int) -> None:
    """A managed node group's machines: they join by their own user data, and belong to no pool."""
    cluster = boto3.client("eks").describe_cluster(name=CLUSTER)["cluster"]
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": CLUSTER,
                "apiServerEndpoint": cluster["endpoint"],
                "certificateAuthority": cluster["certificateAuthority"]["data"],
                "cidr": cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
            },
            "kubelet": {"flags": ["--node-labels=eks.amazonaws.com/nodegroup=old"]},
        },
    }
    ec2 = boto3.client("ec2")
    (like, *_) = world.instances()
    instances = ec2.run_instances(
        ImageId=like.image_id,
        InstanceType="m5.xlarge",
        MinCount=count,
        MaxCount=count,
        SubnetId=like.subnet_id,
        UserData=yaml.safe_dump(config),
        IamInstanceProfile={
            "Name": boto3.client("iam").list_instance_profiles()["InstanceProfiles"][0]["InstanceProfileName"]
        },
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}]}
        ],
    )["Instances"]
    for instance in instances:  # EC2's own course of things, which the local world knows of fleets alone
        world.aws.instances.launched(backends.ec2(world.region).get_instance(instance["InstanceId"]))


def test_a_node_group_is_emptied_into_pools(spot_default: World) -> None:
    world = spot_default
    world.scale("default", "inflate", 1)
    world.run_until_idle()  # one machine of the pool, to know an image and a subnet by
    _group(world, 2)
    world.run_until(lambda: sum("eks.amazonaws.com/nodegroup" in n["metadata"]["labels"] for n in world.nodes()) == 2)
    world.scale("default", "inflate", 6)
    world.run_until_idle()
    group = {n["metadata"]["name"] for n in world.nodes() if "eks.amazonaws.com/nodegroup" in n["metadata"]["labels"]}
    assert any(p["spec"].get("nodeName") in group for p in world.pods(phase="Running"))

    for node in world.nodes():
        if node["metadata"]["name"] in group:
            taints = [{"key": "gone", "value": "soon", "effect": "NoSchedule"}]
            world.store.replace(kinds.NODES, {**node, "spec": {**node["spec"], "taints": taints}})
    for pod in world.pods():
        if pod["spec"].get("nodeName") in group and pod["metadata"]["name"].startswith("inflate"):
            world.store.delete(kinds.PODS, pod["metadata"]["name"], namespace="default")
    world.run_until_idle()
    running = world.pods(phase="Running")
    assert len(running) == 6
    assert not any(p["spec"]["nodeName"] in group for p in running)
    # the group is nobody's to take away but its owner's
    assert group <= names_of(world.nodes())


@pytest.mark.parametrize("has_profile", [True, False])
def test_a_class_whose_role_the_deployment_does_not_name_is_reported(
    world: World, load: Callable[[str], list[dict[str, Any]]], *, has_profile: bool
) -> None:
    role, iam = "KarpenterNodeRole-NAME", boto3.client("iam")
    iam.create_role(RoleName=role, AssumeRolePolicyDocument='{"Version": "2012-10-17", "Statement": []}')
    if has_profile:
        iam.create_instance_profile(InstanceProfileName=role)
        iam.add_role_to_instance_profile(InstanceProfileName=role, RoleName=role)
    tagged = [{"tags": {"karpenter.sh/discovery": world.cluster}}]
    spec = {"amiSelectorTerms": [{"alias": "al2023@latest"}], "role": role}
    spec |= {"subnetSelectorTerms": tagged, "securityGroupSelectorTerms": tagged}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "theirs"}
    world.apply(
        [
            {
                "apiVersion": "karpenter.k8s.aws/v1",
                "kind": "EC2NodeClass",
                "metadata": {"name": "theirs"},
                "spec": spec,
            },
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": "theirs"},
                "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}},
            },
            *(doc for doc in load("spot-default.yaml") if doc["kind"] == "Deployment"),
        ]
    )
    world.scale("default", "inflate", 1)
    world.run_for(timedelta(minutes=2))
    about, reason = ("NodeClaim", "UnauthorizedOperation") if has_profile else ("EC2NodeClass", "Unauthorized")
    (message,) = {
        e["message"]
        for e in world.store.list(kinds.EVENTS)
        if (e["involvedObject"]["kind"], e["reason"]) == (about, reason)
    }
    page = " ".join((ROOT / "docs" / "migration.md").read_text(encoding="utf-8").split())
    assert all(part in page for part in ACCOUNT_SPECIFIC.split(message))
    assert not world.instances()
    world.expect_denials()

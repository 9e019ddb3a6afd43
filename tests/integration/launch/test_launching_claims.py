"""Launching NodeClaims: the CreateFleet request, the assignment of instances, and that none is launched twice."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels
from shared.api.meta import Condition
from shared.api.nodeclaim import NodeClaimStatus, ResourceRequests
from shared.base import aws
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance, LaunchFailure
from shared.launch.instances import list_by_cluster, terminate

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

    Types = tuple[InstanceType, ...]

Account = Any
"""The fixture's class: tests can't import from conftest."""

SPOT_OR_NOT = (labels.CAPACITY_TYPE, "In", ["spot", "on-demand"])


def test_identical_claims_are_one_call_and_each_gets_its_own_instance(account: Account, types: Types) -> None:
    claims = [account.claim(f"web-{i}", SPOT_OR_NOT) for i in range(5)]
    results = account.launch(claims, types)
    assert [r.claim_name for r in results] == [c.name for c in claims]
    assert all(isinstance(r, LaunchedInstance) and r.capacity_type == "spot" for r in results)
    assert len({r.instance_id for r in results}) == 5
    assert account.fleets.calls == 1
    for result in results:
        tags = account.tags(result.instance_id)
        assert not {"karpenter.sh/nodeclaim", "Name"} & tags.keys()
        assert tags["kubernetes.io/cluster/demo"] == "owned"
        assert tags["karpenter.sh/nodepool"] == tags["karpenter.k8s.aws/ec2nodeclass"] == "default"
        assert tags["eks:eks-cluster-name"] == "demo"
        assert tags["tenon.sh/launch-group"] == "group"
    first = results[0]
    assert first.provider_id == f"aws:///{first.zone}/{first.instance_id}"
    assert first.allocatable["cpu"] == 1930
    assert first.labels[labels.ZONE] == first.zone


def test_the_instance_of_a_single_claim_is_tagged_at_its_launch(account: Account, types: Types) -> None:
    (result,) = account.launch([account.claim("web")], types)
    tags = account.tags(result.instance_id)
    assert tags["karpenter.sh/nodeclaim"] == tags["Name"] == "web"


def test_claims_of_different_groups_are_different_calls(account: Account, types: Types) -> None:
    account.launch([account.claim("a", group="a"), account.claim("b", group="b")], types)
    assert account.fleets.calls == 2


def test_both_architectures_go_into_one_call_each_with_its_image(account: Account) -> None:
    types = (
        account.instance_type("m5.large", spot=0.03, on_demand=0.096),
        account.instance_type("m6g.large", spot=0.0301, on_demand=0.077, arch="arm64"),
    )
    account.launch([account.claim("web")], types)
    (request,) = account.fleets.requests
    assert len(request["LaunchTemplateConfigs"]) == 2
    templates = aws.ec2().describe_launch_template_versions(Versions=["$Latest"])["LaunchTemplateVersions"]
    assert {t["LaunchTemplateData"]["ImageId"] for t in templates} == set(account.images.values())
    for config in request["LaunchTemplateConfigs"]:
        assert len({o["InstanceType"] for o in config["Overrides"]}) == 1
        assert len({o["SubnetId"] for o in config["Overrides"]}) == 3


def test_the_request_is_what_the_claim_requires(account: Account, types: Types) -> None:
    zone = (labels.ZONE, "In", ["us-east-1b"])
    result = account.launch([account.claim("web", zone, (labels.CAPACITY_TYPE, "In", ["on-demand"]))], types)[0]
    assert (result.zone, result.capacity_type) == ("us-east-1b", "on-demand")
    (request,) = account.fleets.requests
    overrides = [o for c in request["LaunchTemplateConfigs"] for o in c["Overrides"]]
    assert {o["SubnetId"] for o in overrides} == {account.subnets["us-east-1b"]}
    assert request["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert request["Type"] == "instant"


def test_a_partial_launch_assigns_its_instances_and_names_offerings_without_capacity(
    account: Account, types: Types
) -> None:
    account.fleets.room = 2
    account.fleets.without_capacity = {("spot", "m5.large", "us-east-1a")}
    only_spot = (labels.CAPACITY_TYPE, "In", ["spot"])
    results = account.launch([account.claim(f"web-{i}", only_spot) for i in range(5)], types)
    launched = [r for r in results if isinstance(r, LaunchedInstance)]
    failed = [r for r in results if isinstance(r, LaunchFailure)]
    assert len(launched) == len(account.running()) == 2
    assert {f.kind for f in failed} == {"capacity"}
    assert all(("spot", "m5.large", "us-east-1a") in f.unavailable for f in failed)
    assert all(("spot", "m5.large", "us-east-1a") in r.unavailable for r in launched)


def test_no_capacity_names_every_offering_of_the_request(account: Account, types: Types) -> None:
    account.fleets.without_capacity = {
        ("spot", t.name, o.zone) for t in types for o in t.offerings if o.capacity_type == "spot"
    }
    (failed,) = account.launch([account.claim("web", (labels.CAPACITY_TYPE, "In", ["spot"]))], types)
    assert isinstance(failed, LaunchFailure)
    assert failed.kind == "capacity"
    assert set(failed.unavailable) == account.fleets.without_capacity
    assert failed.reason == "InsufficientInstanceCapacity"
    assert "EC2 has no spot capacity for m6g.large in us-east-1a" in failed.message
    assert account.running() == []


def test_without_any_spot_capacity_the_claims_are_launched_on_demand_at_once(account: Account, types: Types) -> None:
    account.fleets.without_capacity = {("spot", t.name, o.zone) for t in types for o in t.offerings}
    claims = [account.claim(f"web-{i}") for i in range(3)]
    results = account.launch(claims, types)
    assert {r.capacity_type for r in results if isinstance(r, LaunchedInstance)} == {"on-demand"}
    assert account.fleets.calls == 3  # the cheapest spot pools, the other spot pools, on-demand
    assert all(set(r.unavailable) == account.fleets.without_capacity for r in results)
    account.restart()
    replayed = account.launch(claims, types)
    assert [r.instance_id for r in replayed] == [r.instance_id for r in results]
    known = [
        with_fields(t, offerings=tuple(with_fields(o, available=o.capacity_type != "spot") for o in t.offerings))
        for t in types
    ]
    assert [r.instance_id for r in account.launch(claims, known)] == [r.instance_id for r in results]
    assert len(account.running()) == 3


def test_a_spot_offering_without_an_error_is_scheduled_again_before_on_demand(account: Account, types: Types) -> None:
    account.fleets.room = 1
    account.fleets.code = "InternalError"
    results = account.launch([account.claim(f"web-{i}") for i in range(3)], types)
    assert [r.capacity_type for r in results if isinstance(r, LaunchedInstance)] == ["spot"]
    assert account.fleets.calls == 1


def test_a_deleted_launch_template_is_created_again(account: Account, types: Types) -> None:
    account.launch([account.claim("first", group="one")], types)
    for template in aws.ec2().describe_launch_templates()["LaunchTemplates"]:
        aws.ec2().delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    (result,) = account.launch([account.claim("second", group="two")], types)
    assert isinstance(result, LaunchedInstance)


def test_a_throttled_call_fails_as_throttled_and_is_not_repeated(account: Account, types: Types) -> None:
    account.fleets.errors_to_return = [("RequestLimitExceeded", "Request limit exceeded.")]
    (failed,) = account.launch([account.claim("web")], types)
    assert (failed.kind, failed.reason) == ("throttled", "RequestLimitExceeded")
    assert account.fleets.calls == 1
    assert isinstance(account.launch([account.claim("web")], types)[0], LaunchedInstance)


@pytest.mark.parametrize(
    ("code", "message", "kind", "says"),
    [
        ("UnauthorizedOperation", "You are not authorized: ec2:CreateFleet", "configuration", "lacks that permission"),
        ("InvalidParameterValue", "Invalid IAM Instance Profile name", "configuration", "spec.instanceProfile"),
        ("InvalidKMSKey.InvalidState", "The KMS key is disabled", "configuration", "kmsKeyID"),
        ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", "capacity", "quota"),
        ("InvalidSubnetID.NotFound", "The subnet does not exist", "gone", "does not exist"),
    ],
)  # fmt: skip
def test_an_error_says_what_to_change(
    account: Account, types: Types, code: str, message: str, kind: str, says: str
) -> None:
    account.fleets.errors_to_return = [(code, message)] * 3
    (failed,) = account.launch([account.claim("web")], types)
    assert failed.kind == kind
    assert says in failed.message
    assert failed.reason.isalnum()


def test_no_available_offering_fails_without_a_call(account: Account, types: Types) -> None:
    (failed,) = account.launch([account.claim("web", (labels.ZONE, "In", ["us-east-1f"]))], types)
    assert failed.kind == "capacity"
    assert account.fleets.calls == 0


def test_spot_that_is_more_expensive_than_on_demand_is_not_requested(account: Account) -> None:
    types = (
        account.instance_type("m5.large", spot=0.03, on_demand=0.05),
        account.instance_type("m5.xlarge", spot=0.06, on_demand=0.2),
    )
    account.launch([account.claim("web", SPOT_OR_NOT)], types)
    (request,) = account.fleets.requests
    overrides = [o for c in request["LaunchTemplateConfigs"] for o in c["Overrides"]]
    assert {o["InstanceType"] for o in overrides} == {"m5.large"}


def test_gpu_types_are_left_out_unless_no_others_are_allowed(account: Account) -> None:
    gpu = account.instance_type("g5.xlarge", spot=0.01, on_demand=1.0, **{"nvidia.com__gpu": 1})
    plain = account.instance_type("m5.large", spot=0.03, on_demand=0.09)
    assert account.launch([account.claim("web", group="a")], (gpu, plain))[0].instance_type == "m5.large"
    assert account.launch([account.claim("ml", group="b")], (gpu,))[0].instance_type == "g5.xlarge"


def test_the_subnet_of_a_zone_with_more_free_addresses_is_used(account: Account, types: Types) -> None:
    roomy = account.add_subnet("us-east-1a", "10.0.128.0/20")
    account.launch([account.claim("web", (labels.ZONE, "In", ["us-east-1a"]))], types)
    (request,) = account.fleets.requests
    assert {o["SubnetId"] for c in request["LaunchTemplateConfigs"] for o in c["Overrides"]} == {roomy}


def test_the_clusters_instances_are_listed_and_terminated_by_id(account: Account, types: Types) -> None:
    results = account.launch([account.claim(f"web-{i}") for i in range(3)], types)
    instances = list_by_cluster(aws.ec2(), "demo")
    assert {i.id for i in instances} == {r.instance_id for r in results}
    assert {i.capacity_type for i in instances} == {"spot"}
    assert list_by_cluster(aws.ec2(), "another") == ()
    ids = [instances[0].id, "i-00000000000000000", instances[1].id]
    assert set(terminate(aws.ec2(), ids).known) == {instances[0].id, instances[1].id}
    assert len(account.running()) == 1
    assert terminate(aws.ec2(), ["i-00000000000000000"]).known == ()


def test_a_repeated_launch_finds_its_spot_instances_even_if_it_would_launch_on_demand_now(
    account: Account, types: Types
) -> None:
    claims = [account.claim(f"web-{i}", SPOT_OR_NOT) for i in range(2)]
    before = account.launch(claims, types)
    account.restart()
    no_spot = tuple(
        with_fields(t, offerings=tuple(with_fields(o, available=o.capacity_type != "spot") for o in t.offerings))
        for t in types
    )
    after = account.launch(claims, no_spot)
    assert [r.instance_id for r in after] == [r.instance_id for r in before]
    nothing = tuple(
        with_fields(t, offerings=tuple(with_fields(o, available=False) for o in t.offerings)) for t in types
    )
    assert [r.instance_id for r in account.launch(claims, nothing)] == [r.instance_id for r in before]
    assert len(account.running()) == 2


def test_a_claim_whose_class_was_corrected_is_launched_although_its_token_failed(
    account: Account, types: Types
) -> None:
    account.fleets.room = 0
    account.fleets.code = "InvalidParameterValue"
    claim = account.claim("web")
    (failed,) = account.launch([claim], types)
    assert failed.kind == "configuration"
    account.fleets.room = None
    conditions = [Condition(type="Launched", status="False", reason=failed.reason)]
    failed = with_fields(claim, status=NodeClaimStatus(conditions=conditions))
    assert isinstance(account.launch([failed], types)[0], LaunchedInstance)


def test_a_response_with_only_throttling_is_not_repeated_forever(account: Account, types: Types) -> None:
    account.fleets.room = 0
    account.fleets.code = "RequestLimitExceeded"
    claims = [account.claim("web-1"), account.claim("web-2")]
    assert {r.kind for r in account.launch(claims, types)} == {"throttled"}
    assert account.fleets.calls == 2
    account.fleets.room = None
    later = account.launch(claims, types, now=account.now + timedelta(minutes=1))
    assert all(isinstance(r, LaunchedInstance) for r in later)
    assert len(account.running()) == 2


def test_a_claim_whose_instance_was_terminated_behind_its_token_is_launched_again(
    account: Account, types: Types
) -> None:
    message = "The client token is for an instance that has been terminated."
    account.fleets.errors_to_return = [("IdempotentInstanceTerminated", message)]
    (launched,) = account.launch([account.claim("web-1")], types)
    assert isinstance(launched, LaunchedInstance)
    account.fleets.room, account.fleets.code = 0, "IdempotentInstanceTerminated"
    claims = [account.claim("web-2", group="b")]
    assert isinstance(account.launch(claims, types)[0], LaunchFailure)  # while EC2 repeats it for every token
    account.fleets.room = None
    later = account.launch(claims, types, now=account.now + timedelta(minutes=1))
    assert isinstance(later[0], LaunchedInstance)
    assert len(account.running()) == 2


def test_a_request_that_botocore_refuses_is_reported_as_a_bug_and_not_retried(account: Account, types: Types) -> None:
    node_class = account.ready(tags={"team": 7})  # what validation let through
    (failed,) = account.launch([account.claim("web")], types, node_class=node_class)
    assert (failed.kind, failed.reason) == ("configuration", "InvalidRequest")
    assert "which is a bug of Tenon's; please report it" in failed.message
    assert "Invalid type for parameter" in failed.message


def test_a_claim_that_requests_efa_gets_its_adapters(account: Account) -> None:
    efa = {"vpc.amazonaws.com__efa": 2}
    claim = account.claim("ml")
    efa_claim = with_fields(
        claim,
        spec=with_fields(claim.spec, resources=ResourceRequests(requests={"vpc.amazonaws.com/efa": 1})),
    )
    account.launch([efa_claim], [account.instance_type("c7i.48xlarge", on_demand=8.5, **efa)])
    data = account.template_data()
    assert [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in data["NetworkInterfaces"]] == [
        (0, 0, "efa"),
        (1, 1, "efa"),
    ]
    assert "SecurityGroupIds" not in data


@pytest.mark.parametrize(
    ("code", "calls", "also"),
    [
        ("MaxSpotInstanceCountExceeded", 1, "standard>=2"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", 2, "m6g.large"),
    ],
)
def test_an_error_about_spot_is_followed_by_on_demand_at_once(
    account: Account, types: Types, code: str, calls: int, also: str
) -> None:
    account.fleets.errors_to_return = [(code, "No spot instances")] * calls
    (launched,) = account.launch([account.claim("web", SPOT_OR_NOT)], types)
    assert isinstance(launched, LaunchedInstance)
    assert launched.capacity_type == "on-demand"
    assert {(capacity_type, name) for capacity_type, name, _ in launched.unavailable} == {
        ("spot", "m5.large"),
        ("spot", also),
    }

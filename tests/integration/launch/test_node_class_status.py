"""The status of a node class: the selected resources, and the conditions when there are none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shared.api.meta import condition, is_true
from shared.api.nodeclass import (
    AMISelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClassStatus,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shared.base import aws, runtime
from shared.base.struct import with_fields

Account = Any
"""The fixture's class: tests can't import from conftest."""
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def status_reason_message(status: EC2NodeClassStatus, type_: str) -> tuple[str, str, str]:
    reported = condition(status.conditions, type_)
    assert reported is not None
    return reported.status, reported.reason, reported.message


def test_a_class_without_ami_terms_gets_al2023_of_both_architectures(account: Account) -> None:
    status = account.status(account.node_class())
    assert is_true(status.conditions, "Ready")
    assert {s.zone for s in status.subnets} == set(account.subnets)
    assert [g.id for g in status.security_groups] == [account.group]
    assert status.instance_profile == "nodes"
    arches = {r.values[0]: ami.id for ami in status.amis for r in ami.requirements if r.key == "kubernetes.io/arch"}
    assert arches == {"amd64": account.images["x86_64"], "arm64": account.images["arm64"]}


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("AWSNodeTemplate", "1.32", "amazon-linux-2"),
        ("AWSNodeTemplate", "1.34", "amazon-linux-2023"),
        ("EC2NodeClass", "1.32", "amazon-linux-2"),
        ("EC2NodeClass", "1.34", "amazon-linux-2023"),
    ],
)
def test_the_default_family_follows_the_clusters_version(
    account: Account, kind: str, version: str, expected: str
) -> None:
    parameters: list[str] = []
    aws.ssm().meta.events.register(
        "before-parameter-build.ssm.GetParameters", lambda params, **_: parameters.extend(params["Names"])
    )
    account.status(account.node_class(kind=kind), version=version)
    assert {name.split("/")[6] for name in parameters} >= {expected}


@pytest.mark.parametrize(
    ("kind", "spec", "type_", "message"),
    [
        (
            "EC2NodeClass",
            {"subnet_selector_terms": [SubnetSelectorTerm(tags={"karpenter.sh/discovery": "nope"})]},
            "SubnetsReady",
            'no subnet matches spec.subnetSelectorTerms[0].tags {"karpenter.sh/discovery": "nope"}',
        ),
        (
            "AWSNodeTemplate",
            {"subnet_selector_terms": [SubnetSelectorTerm(tags={"karpenter.sh/discovery": "nope"})]},
            "SubnetsReady",
            'no subnet matches spec.subnetSelector {"karpenter.sh/discovery": "nope"}',
        ),
        (
            "EC2NodeClass",
            {"security_group_selector_terms": [SecurityGroupSelectorTerm(id="sg-1")]},
            "SecurityGroupsReady",
            'no security group matches spec.securityGroupSelectorTerms[0].id "sg-1"',
        ),
        (
            "EC2NodeClass",
            {"ami_selector_terms": [AMISelectorTerm(name="none-*", owner="self")]},
            "AMIsReady",
            'no image matches spec.amiSelectorTerms[0].name "none-*" of owner "self"',
        ),
        (
            "EC2NodeClass",
            {"ami_selector_terms": [AMISelectorTerm(ssm_parameter="/none")], "ami_family": "AL2023"},
            "AMIsReady",
            'no image matches spec.amiSelectorTerms[0].ssmParameter "/none"',
        ),
        (
            "EC2NodeClass",
            {"ami_selector_terms": [AMISelectorTerm(alias="al2@latest")]},
            "AMIsReady",
            'spec.amiSelectorTerms[0].alias "al2@latest" names no image: AWS publishes no AL2 latest',
        ),
        ("EC2NodeClass", {"role": "nobody"}, "InstanceProfileReady", 'spec.role "nobody" doesn\'t exist'),
        (
            "EC2NodeClass",
            {"instance_profile": "nobodys"},
            "InstanceProfileReady",
            'spec.instanceProfile "nobodys" doesn\'t exist in this account',
        ),
        (
            "EC2NodeClass",
            {"cpu_options": {"cores": 2}},
            "ValidationSucceeded",
            "spec.cpuOptions.cores is unknown; known are coreCount, threadsPerCore",
        ),
        (
            "EC2NodeClass",
            {"network_interfaces": [{"networkCardIndex": 1, "deviceIndex": 1}]},
            "ValidationSucceeded",
            "spec.networkInterfaces has none with networkCardIndex 0 and deviceIndex 0",
        ),
        (
            "EC2NodeClass",
            {"connection_tracking": {"udpTimeout": "soon"}},
            "ValidationSucceeded",
            "spec.connectionTracking.udpTimeout: ",
        ),
        ("EC2NodeClass", {"tags": {"aws:mine": "x"}}, "ValidationSucceeded", 'spec.tags: "aws:mine" begins with aws:'),
        (
            "EC2NodeClass",
            {"tags": {"karpenter.sh/nodepool": "x"}},
            "ValidationSucceeded",
            'spec.tags: "karpenter.sh/nodepool" is set by Tenon',
        ),
        (
            "EC2NodeClass",
            {"user_data": "MIME-Version: 1.0\nContent-Type: text/plain\n\nhello"},
            "ValidationSucceeded",
            "spec.userData is not a valid MIME multi-part archive",
        ),
        (
            "EC2NodeClass",
            {"kubelet": {"systemReserved": {"memory": "lots"}}},
            "ValidationSucceeded",
            'spec.kubelet.systemReserved.memory: "lots" is no valid expression: "lots" is unknown; known are vcpus, ',
        ),
        (
            "EC2NodeClass",
            {"user_data": "[settings", "ami_family": "Bottlerocket"},
            "ValidationSucceeded",
            "spec.userData is not valid TOML",
        ),
    ],
)  # fmt: skip
def test_a_mistake_becomes_a_condition_that_names_the_field_and_value(
    account: Account, kind: str, spec: dict[str, Any], type_: str, message: str
) -> None:
    node_class = account.node_class(kind=kind, **spec)
    status = account.status(node_class)
    truth, reason, text = status_reason_message(status, type_)
    assert (truth, reason.isalnum()) == ("False", True)
    assert text.startswith(message)
    ready, _, why = status_reason_message(status, "Ready")
    assert ready == "False"
    assert message in why


def test_a_corrected_class_is_ready_at_once_and_keeps_its_other_transition_times(account: Account) -> None:
    bad = account.node_class(subnet_selector_terms=[SubnetSelectorTerm(tags={"team": "x"})])
    status = account.status(bad)
    aws.ec2().create_tags(Resources=[account.subnets["us-east-1a"]], Tags=[{"Key": "team", "Value": "x"}])
    after = account.status(with_fields(bad, status=status))
    assert is_true(after.conditions, "Ready")
    assert [s.zone for s in after.subnets] == ["us-east-1a"]
    assert condition(after.conditions, "AMIsReady") == condition(status.conditions, "AMIsReady")


def test_lookups_are_cached_for_five_minutes_once_they_are_confirmed(account: Account) -> None:
    known = with_fields(account.node_class(), status=account.status(account.node_class(), now=NOW))
    calls: list[str] = []
    aws.ec2().meta.events.register("before-call", lambda model, **_: calls.append(model.name))
    account.status(known, now=NOW)
    assert calls, "a new class is looked up again"
    calls.clear()
    account.status(known, now=NOW + timedelta(minutes=4))
    assert calls == []
    account.status(known, now=NOW + timedelta(minutes=5))
    assert calls


@pytest.mark.parametrize(
    ("call", "type_", "permission"),
    [
        ("DescribeSubnets", "SubnetsReady", "ec2:DescribeSubnets"),
        ("DescribeSecurityGroups", "SecurityGroupsReady", "ec2:DescribeSecurityGroups"),
        ("DescribeImages", "AMIsReady", "ec2:DescribeImages"),
    ],
)
def test_a_denied_call_says_which_permission_is_missing(
    account: Account, call: str, type_: str, permission: str
) -> None:
    refuse(call, "UnauthorizedOperation")
    status, reason, message = status_reason_message(account.status(account.node_class()), type_)
    assert (status, reason) == ("False", "Unauthorized")
    assert permission in message


def test_a_throttled_call_changes_no_condition(account: Account) -> None:
    refuse("DescribeSubnets", "RequestLimitExceeded")
    with pytest.raises(ClientError):
        account.status(account.node_class())


def refuse(call: str, code: str) -> None:
    def answer(**_: object) -> Any:
        from types import SimpleNamespace  # noqa: PLC0415 (used by this stand-in alone)

        error = {"Code": code, "Message": "no"}
        return SimpleNamespace(status_code=403), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}

    aws.ec2().meta.events.register(f"before-call.ec2.{call}", answer)


def test_a_role_gets_an_instance_profile_once(account: Account) -> None:
    aws.iam().create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps({}), Path="/")
    first = account.status(account.node_class(role="nodes")).instance_profile
    runtime.current().cache.pop("nodeclass:status")
    assert account.status(account.node_class(role="nodes")).instance_profile == first
    profile = aws.iam().get_instance_profile(InstanceProfileName=first)["InstanceProfile"]
    assert [r["RoleName"] for r in profile["Roles"]] == ["nodes"]


@pytest.fixture
def iam_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """IAM as in private subnets without a NAT gateway: nothing listens at its address."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", "http://127.0.0.1:1")


@pytest.mark.usefixtures("iam_unreachable")
def test_without_a_way_to_iam_only_a_class_with_a_role_is_not_ready(account: Account) -> None:
    assert is_true(account.status(account.node_class()).conditions, "Ready")
    with_profile = account.status(account.node_class(instance_profile="KarpenterInstanceProfile"))
    assert is_true(with_profile.conditions, "Ready")
    assert with_profile.instance_profile == "KarpenterInstanceProfile"
    status, reason, message = status_reason_message(
        account.status(account.node_class(role="nodes")), "InstanceProfileReady"
    )
    assert (status, reason) == ("False", "IAMUnreachable")
    assert message.startswith("spec.role \"nodes\" can't be looked up, because IAM can't be reached")
    assert "spec.instanceProfile" in message


@pytest.mark.usefixtures("iam_unreachable")
def test_iam_is_not_called_again_for_five_minutes_after_a_timeout(account: Account) -> None:
    calls: list[str] = []
    aws.iam().meta.events.register("before-send.iam", lambda request, **_: calls.append(request.url))
    for name in ("a", "b", "c"):
        account.status(account.node_class(role=name))
    assert len(calls) == 2  # a try and its retry, for all three classes


def test_a_class_that_was_resolved_stays_ready_while_iam_is_out_of_reach(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.iam().create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps({}), Path="/")
    node_class = account.node_class(role="nodes")
    resolved = with_fields(node_class, status=account.status(node_class))
    monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", "http://127.0.0.1:1")
    runtime.current().cache.pop("nodeclass:status")
    runtime.current().cache.pop("aws:iam")
    status = account.status(resolved)
    assert is_true(status.conditions, "Ready")
    assert status.instance_profile == resolved.status.instance_profile
    changed = with_fields(
        resolved, metadata=with_fields(resolved.metadata, generation=resolved.metadata.generation + 1)
    )
    runtime.current().cache.pop("nodeclass:status", None)
    assert not is_true(account.status(changed).conditions, "Ready")


def test_images_by_id_name_and_parameter_are_found(account: Account) -> None:
    image = account.images["x86_64"]
    described = aws.ec2().describe_images(ImageIds=[image])["Images"][0]
    aws.ssm().put_parameter(Name="/mine", Value=image, Type="String")
    for term in (
        AMISelectorTerm(id=image),
        AMISelectorTerm(name=described["Name"], owner="self"),
        AMISelectorTerm(ssm_parameter="/mine"),
    ):
        node_class = account.node_class(ami_selector_terms=[term], ami_family="Custom")
        assert [a.id for a in account.status(node_class).amis] == [image]


def test_the_template_carries_cpu_options_placement_interfaces_and_connection_tracking(account: Account) -> None:
    node_class = account.ready(
        cpu_options={"coreCount": 1, "threadsPerCore": 1},
        placement_group_selector={"name": "near"},
        network_interfaces=[{"interfaceType": "interface"}, {"deviceIndex": 1, "interfaceType": "efa-only"}],
        connection_tracking={"tcpEstablishedTimeout": "1h", "udpTimeout": 45},
    )
    account.launch([account.claim("a")], [account.instance_type("m5.large", spot=0.03)], node_class=node_class)
    data = account.template_data()
    assert data["CpuOptions"] == {"CoreCount": 1, "ThreadsPerCore": 1}
    assert data["Placement"] == {"GroupName": "near"}
    assert [(n["NetworkCardIndex"], n["DeviceIndex"], n["InterfaceType"]) for n in data["NetworkInterfaces"]] == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
    ]
    for interface in data["NetworkInterfaces"]:
        assert interface["Groups"] == [account.group]
        assert interface["ConnectionTrackingSpecification"] == {"TcpEstablishedTimeout": 3600, "UdpTimeout": 45}
    assert "SecurityGroupIds" not in data


def test_the_template_carries_volume_key_monitoring_tags_and_profile(account: Account) -> None:
    aws.iam().create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps({}), Path="/")
    aws.iam().create_instance_profile(InstanceProfileName="KarpenterInstanceProfile")
    aws.iam().add_role_to_instance_profile(InstanceProfileName="KarpenterInstanceProfile", RoleName="nodes")
    node_class = account.ready(
        instance_profile="KarpenterInstanceProfile",
        detailed_monitoring=True,
        tags={"Name": "general", "auto-delete": "no"},
        block_device_mappings=[
            BlockDeviceMapping(
                device_name="/dev/xvda",
                ebs=BlockDevice(
                    volume_size="30Gi",
                    volume_type="gp3",
                    iops=3000,
                    throughput=125,
                    encrypted=True,
                    kms_key_id="arn:aws:kms:us-east-1:111122223333:key/0",
                    delete_on_termination=True,
                ),
            )
        ],
    )
    types = [account.instance_type("m5.large", spot=0.03)]
    account.launch([account.claim("a"), account.claim("b")], types, node_class=node_class)
    data = account.template_data()
    assert data["BlockDeviceMappings"] == [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "DeleteOnTermination": True,
                "Encrypted": True,
                "Iops": 3000,
                "KmsKeyId": "arn:aws:kms:us-east-1:111122223333:key/0",
                "Throughput": 125,
                "VolumeSize": 30,
                "VolumeType": "gp3",
            },
        }
    ]
    assert data["Monitoring"] == {"Enabled": True}
    assert data["IamInstanceProfile"] == {"Name": "KarpenterInstanceProfile"}
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["SecurityGroupIds"] == [account.group]
    by_resource = {s["ResourceType"]: {t["Key"]: t["Value"] for t in s["Tags"]} for s in data["TagSpecifications"]}
    for resource in ("instance", "volume", "network-interface", "spot-instances-request"):
        tags = by_resource[resource]
        assert tags["auto-delete"] == "no"
        assert tags["kubernetes.io/cluster/demo"] == "owned"
    assert {t["Value"] for i in account.running() for t in i["Tags"] if t["Key"] == "Name"} == {"general"}

"""Tenon in other CDK apps: with options that are checked, next to other resources."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack, Stage
from aws_cdk import aws_sns as sns

from infra import function_sizes
from infra.construct import OptionError, StackOptions, Tenon, TenonStack
from infra.options import stack_options
from infra.options.option_checks import checked
from tests.infra.nag_findings import checked_app, findings

if TYPE_CHECKING:
    from pathlib import Path


def test_logical_ids_of_deployed_stacks_stay(template: dict[str, Any]) -> None:
    """CloudFormation replaces a resource whose logical id changes."""
    kept = {
        "HintsBusB906405D": "AWS::Events::EventBus",
        "StateTable962DE04C": "AWS::DynamoDB::Table",
        "StateCatalog95A9C14C": "AWS::S3::Bucket",
        "NodesProfile26786074": "AWS::IAM::InstanceProfile",
        "NodesRoleA22E0B2B": "AWS::IAM::Role",
        "ClusterAccessNodeEntryAF8F79D8": "AWS::EKS::AccessEntry",
        "QueuesProvisioningAD5C7D8D": "AWS::SQS::Queue",
        "FunctionsProvisioner62EC19E2": "AWS::Lambda::Function",
        "AlarmsUnwellF10BB23E": "AWS::CloudWatch::Alarm",
    }
    assert kept.items() <= {id_: r["Type"] for id_, r in template["Resources"].items()}.items()


def test_next_to_other_resources_every_finding_of_cdk_nag_is_acknowledged(tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    tenon = Tenon(Stack(app, "platform"), "Tenon", options=StackOptions(cluster="demo", bundle="source"))
    assert not findings(app)
    body = json.loads((tmp_path / "platform.template.json").read_text())
    (provisioner,) = (
        r["Properties"]
        for r in body["Resources"].values()
        if r["Properties"].get("FunctionName") == "tenon-demo-provisioner"
    )
    assert {"Key": "eks:eks-cluster-name", "Value": "demo"} in provisioner["Tags"]
    assert set(tenon.functions) == set(function_sizes.FUNCTIONS)
    assert {"NodeRoleArn", "ProvisionerRoleArn", "CatalogBucket"} <= set(tenon.outputs)


def test_in_a_stage_the_stack_has_the_same_name(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    options = StackOptions(cluster="demo", bundle="source", apply=False)
    stack = TenonStack(Stage(app, "Production"), options=options, env=Environment(region="eu-central-1"))
    assert stack.stack_name == "tenon-demo"


def test_arns_of_the_apps_own_resources_are_accepted() -> None:
    stack = Stack(App(analytics_reporting=False), "platform")
    topic = sns.Topic(stack, "Topic").topic_arn
    keys = (topic,)  # any token
    options = checked(StackOptions(cluster="demo", alarm_topic=topic, kms_keys=keys), region=None)
    assert (options.alarm_topic, options.kms_keys) == (topic, keys)
    with pytest.raises(OptionError, match="cluster: must be a name that is known before the deployment"):
        checked(StackOptions(cluster=topic), region=None)


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"relay": "pod", "relayImage": "r/x:1", "relayArchitecture": "arm64", "relayTolerations": "*"},
        {"relay": "pod", "oidcProvider": "https://oidc.eks.us-east-1.amazonaws.com/id/0A"},
        {"relay": "webhook", "webhookDigest": "0" * 64, "clusterSide": "printed"},
        {"kinds": "kept", "capacityBuffers": "kept", "bundle": "source", "functionArchitecture": "amd64"},
        {"relayMemory": "256", "sweepMemory": "1769", "reservedConcurrency": "true", "observability": "full"},
        {"nodeRole": "a", "nodeRoles": "b,c", "subnets": "s-1,s-2", "securityGroups": "g-1", "tracing": "active"},
        {"clusterSize": "15000"},
        {"standby": "on", "nodeGroups": "on", "plannedPods": "off"},
        {"commitments": "on", "commitmentShare": "0.25"},
        {"bufferQueues": "q", "bufferAlarms": "a", "bufferEvents": "s/T", "bufferEventBus": "b"},
        {
            "alarmTopic": "arn:aws:sns:us-east-1:123456789012:t",
            "kmsKeys": "arn:aws:kms:us-east-1:123456789012:key/0a",
        },
    ],
)
def test_options_of_every_context_are_valid_as_fields_too(context: dict[str, object]) -> None:
    options = stack_options.parse(context, cluster="demo")
    assert checked(options, region="us-east-1") == options


def test_values_are_brought_into_their_canonical_form() -> None:
    given: Any = {"subnets": "s-1,s-2", "security_groups": ["g-1"], "relay": "pod"}
    issuer = "https://oidc.eks.us-east-1.amazonaws.com/id/0A"
    options = checked(StackOptions(cluster="demo", oidc_provider=issuer, **given), region=None)
    assert (options.subnets, options.security_groups) == (("s-1", "s-2"), ("g-1",))
    assert options.oidc_provider == issuer.removeprefix("https://")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cluster": "de mo"}, "cluster=de mo: an EKS cluster's name"),
        ({"cluster": "a,b"}, "cluster=a,b: an EKS cluster's name"),
        ({"cluster": ""}, "cluster=: an EKS cluster's name"),
        ({"relay": "cloud"}, "relay=cloud: must be function or pod or webhook"),
        ({"relay_memory": 64}, "relay_memory=64: must be MiB from 128"),
        ({"relay_image": "x"}, "relay_image: is for the relay as a pod; give relay=pod"),
        ({"relay_tolerations": ({"operator": "Exists"},)}, "relay_tolerations: is for the relay as a pod"),
        ({"relay": "pod", "relay_architectures": ("riscv64",)}, "relay_architectures=riscv64: must be"),
        ({"relay": "webhook", "apply": False}, "only with relay=webhook and apply=False"),
        ({"subnets": ("s-1",)}, "subnets and security_groups: give both"),
        ({"alarm_topic": "t"}, "alarm_topic=t: must be the ARN"),
        ({"fleet": "prod"}, "fleet=prod: clusters of a fleet are deployed together"),
        ({"shadow": True}, "shadow=True: shadow mode is a stack"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_refused_by_its_name(fields: dict[str, Any], message: str) -> None:
    app = App(analytics_reporting=False)
    with pytest.raises(OptionError, match=re.escape(message)):
        TenonStack(app, options=StackOptions(**{"cluster": "demo", **fields}))

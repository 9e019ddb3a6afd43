"""The synthesised template, deployed into moto as CloudFormation does."""

import json
import warnings
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

ACCOUNT = "123456789012"
REGION = "us-east-1"


@pytest.fixture
def _fake_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")


@pytest.mark.usefixtures("_fake_credentials")
def test_the_stack_deploys_and_delivers_a_hint_to_its_queue(cloud_assembly: Path) -> None:
    with mock_aws(config={"lambda": {"use_docker": False}, "iam": {"load_aws_managed_policies": True}}):
        boto3.client("ssm", REGION).put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
        s3 = boto3.client("s3", REGION)
        staging = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
        s3.create_bucket(Bucket=staging)
        assets = json.loads((cloud_assembly / "tenon-demo.assets.json").read_text())
        for file in assets["files"].values():
            for destination in file["destinations"].values():
                s3.put_object(Bucket=staging, Key=destination["objectKey"], Body=b"")
        s3.put_object(Bucket=staging, Key="template", Body=(cloud_assembly / "tenon-demo.template.json").read_bytes())
        cloudformation = boto3.client("cloudformation", REGION)
        with warnings.catch_warnings():
            # moto passes over policies of queues and buckets, and over invoke configurations
            warnings.filterwarnings("ignore", message="Tried to parse AWS::", category=UserWarning)
            cloudformation.create_stack(
                StackName="tenon-demo",
                TemplateURL=f"https://{staging}.s3.amazonaws.com/template",
                Capabilities=["CAPABILITY_IAM"],
            )
        (stack,) = cloudformation.describe_stacks(StackName="tenon-demo")["Stacks"]
        assert stack["StackStatus"] == "CREATE_COMPLETE"

        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        functions = boto3.client("lambda", REGION)
        for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
            # moto would hand the message to a function that isn't there, and count it as done
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        sent = boto3.client("events", REGION).put_events(
            Entries=[
                {
                    "Source": "tenon.relay",
                    "DetailType": "Nodes Emptied",
                    "Detail": json.dumps({"cluster": "demo", "keys": ["node-1"]}),
                    "EventBusName": outputs["EventBusName"],
                }
            ]
        )
        assert sent["FailedEntryCount"] == 0
        (message,) = boto3.client("sqs", REGION).receive_message(QueueUrl=outputs["DisruptionQueueUrl"])["Messages"]
        assert json.loads(message["Body"])["detail"]["keys"] == ["node-1"]

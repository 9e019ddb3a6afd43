"""A cloud with a stack of the test, whose functions run the test's handlers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local.aws.cloud import Cloud
    from local.clock import Clock

Json = Any
"""Whatever a function is given or answers."""

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def resource(kind: str, **properties: object) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def arn(logical_id: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [logical_id, "Arn"]}


ROLE = resource(
    "IAM::Role",
    AssumeRolePolicyDocument={
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
    },
)

RIGHTS = resource(
    "IAM::Policy",
    PolicyName="queues",
    Roles=[{"Ref": "Role"}],
    PolicyDocument={
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": ["sqs:SendMessage", "sqs:ListQueues"], "Resource": "*"}],
    },
)


def function(*, timeout: int = 10, **more: object) -> dict[str, Any]:
    return resource(
        "Lambda::Function",
        Handler="tenon_probe.handle",
        Runtime="python3.13",
        Role=arn("Role"),
        Code={"S3Bucket": "cdk-hnb659fds-assets-123456789012-us-east-1", "S3Key": "code.zip"},
        Timeout=timeout,
        Environment={"Variables": {"TENON_CLUSTER_NAME": "demo"}},
        **more,
    )


@dataclass
class Probe:
    """The handlers of the stack's functions, and the events that they received."""

    events: list[Json] = field(default_factory=list)
    answer: Callable[[Json], Json] = lambda _event: None

    def handle(self, event: Json, _context: object) -> Json:
        self.events.append(event)
        return self.answer(event)

    @property
    def bodies(self) -> list[str]:
        return [record["body"] for event in self.events for record in event.get("Records", [])]


@dataclass
class Environment:
    """A cloud with a stack of a test's own, and its clock."""

    cloud: Cloud
    clock: Clock
    probe: Probe
    folder: Path

    def deploy(self, **resources: object) -> None:
        (self.folder / "template.json").write_text(
            json.dumps({"Resources": {"Role": ROLE, "Rights": RIGHTS, **resources}})
        )
        artifact = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "template.json"}}
        (self.folder / "manifest.json").write_text(json.dumps({"artifacts": {"probe": artifact}}))
        self.cloud.deploy(self.folder)

    def settle(self) -> None:
        """Step everything until nothing is due now."""
        while sum(actor.step(self.clock.now()) for actor in self.cloud.actors()):
            pass

    def run_for(self, duration: timedelta) -> None:
        """Skip from one due time to the next for that long."""
        end = self.clock.now() + duration
        self.settle()
        while self.clock.now() < end:
            due = min((at for actor in self.cloud.actors() if (at := actor.due()) is not None), default=end)
            self.clock.skip_to(min(due, end))
            self.settle()

    def send(self, logical_id: str, body: str, **more: Json) -> None:
        boto3.client("sqs").send_message(
            QueueUrl=self.cloud.deployed.physical_ids[logical_id], MessageBody=body, **more
        )

    def queue(self, logical_id: str) -> list[str]:
        """The bodies of a queue's messages."""
        name = self.cloud.deployed.physical_ids[logical_id].rsplit("/", 1)[-1]
        return [message.body for message in self.cloud.queues.messages(name)]

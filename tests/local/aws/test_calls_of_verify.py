"""What the local AWS answers to `tenon verify` and moto doesn't: patterns, logs, protection, experiments of FIS."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from local.aws import backends, event_patterns, instance_attributes, log_streams
from local.aws.fault_injection import INTERRUPTION, FaultInjection
from local.aws.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"
EVENT: dict[str, Any] = {
    "id": "1",
    "account": "123456789012",
    "source": "aws.ec2",
    "time": "2026-01-01T00:00:00Z",
    "region": REGION,
    "resources": [],
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "detail": {"instance-id": "i-1"},
}


@pytest.mark.parametrize(("detail_type", "matches"), [(EVENT["detail-type"], True), ("EC2 Spot Instance", False)])
def test_a_pattern_is_tested_as_deliveries_match(detail_type: str, matches: bool) -> None:  # noqa: FBT001 (a parameter)
    pattern = json.dumps({"source": ["aws.ec2"], "detail-type": [detail_type]})
    status, _, body = event_patterns.test(json.dumps({"EventPattern": pattern, "Event": json.dumps(EVENT)}).encode())
    assert (status, json.loads(body)) == (200, {"Result": matches})


def test_an_event_without_a_mandatory_field_is_refused() -> None:
    event = {name: value for name, value in EVENT.items() if name != "account"}
    status, _, body = event_patterns.test(json.dumps({"EventPattern": "{}", "Event": json.dumps(event)}).encode())
    assert status == 400
    assert "account" in json.loads(body)["message"]


def test_logs_are_filtered_by_group_time_and_any_of_the_terms() -> None:
    def invocation(function: str, second: int, output: str) -> Invocation:
        at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
        return Invocation(
            function=function,
            trigger="t",
            at=at,
            latency=0.0,
            request_id=f"{second}",
            ok=True,
            output=output,
            function_name=f"tenon-c-{function}",
        )

    invocations = [
        invocation("a", 1, "AccessDenied, too early"),
        invocation("a", 5, "fine\nUser is not authorized to\nAccessDenied"),
        invocation("b", 6, "AccessDenied"),
    ]
    request = {
        "logGroupName": "/aws/lambda/tenon-c-a",
        "startTime": int(datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC).timestamp() * 1000),
        "filterPattern": '?AccessDenied ?"not authorized"',
    }
    _, _, body = log_streams.filter_events(json.dumps(request).encode(), invocations)
    assert [event["message"] for event in json.loads(body)["events"]] == ["User is not authorized to", "AccessDenied"]


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with mock_aws():
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session(region_name=REGION))
        yield backends.client("ec2")


def modify(instance_id: str, attribute: str) -> int:
    status, _, _ = instance_attributes.modify(REGION, f"Action=Modify&InstanceId={instance_id}&{attribute}".encode())
    return status


def test_a_protected_instance_is_not_terminated_until_it_may(ec2: Any) -> None:
    id_ = ec2.run_instances(ImageId="ami-0123456789abcdef0", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    assert modify(id_, "InstanceInitiatedShutdownBehavior.Value=terminate") == 200
    assert modify(id_, "DisableApiTermination.Value=true") == 200
    with pytest.raises(ec2.exceptions.ClientError, match="OperationNotPermitted"):
        ec2.terminate_instances(InstanceIds=[id_])
    assert modify(id_, "DisableApiTermination.Value=false") == 200
    ec2.terminate_instances(InstanceIds=[id_])


def test_spot_instances_and_unknown_ones_are_not_protected(ec2: Any) -> None:
    id_ = ec2.run_instances(ImageId="ami-0123456789abcdef0", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    (instance,) = (i for r in backends.ec2(REGION).all_reservations() for i in r.instances)
    instance.lifecycle = "spot"
    assert modify(id_, "DisableApiTermination.Value=true") == 400
    assert modify("i-0", "DisableApiTermination.Value=true") == 400
    with pytest.raises(LookupError, match="not supported here"):
        modify(id_, "SourceDestCheck.Value=false")


def test_an_experiment_interrupts_what_its_template_names() -> None:
    interrupted: list[str] = []
    fis = FaultInjection(interrupted.extend)

    def call(operation: str, path: str = "/", /, **request: Any) -> tuple[int, Any]:
        status, _, body = fis.serve(operation, path, json.dumps(request).encode())
        return status, json.loads(body)

    template: dict[str, Any] = {
        "targets": {"node": {"resourceArns": ["arn:aws:ec2:us-east-1:123456789012:instance/i-1"]}},
        "actions": {"interrupt": {"actionId": INTERRUPTION, "targets": {"SpotInstances": "node"}}},
        "tags": {"run": "1"},
    }
    _, created = call("CreateExperimentTemplate", **template)
    id_ = created["experimentTemplate"]["id"]
    assert call("ListExperimentTemplates")[1] == {"experimentTemplates": [{"id": id_, "tags": {"run": "1"}}]}
    assert call("StartExperiment", experimentTemplateId=id_)[0] == 200
    assert interrupted == ["i-1"]
    assert call("DeleteExperimentTemplate", f"/experimentTemplates/{id_}")[0] == 200
    assert call("StartExperiment", experimentTemplateId=id_)[0] == 404
    assert call("DeleteExperimentTemplate", f"/experimentTemplates/{id_}")[0] == 404
    assert call("StopExperiment")[0] == 400
    stop = {"actionId": "aws:ec2:stop-instances", "targets": {"Instances": "node"}}
    assert call("CreateExperimentTemplate", **{**template, "actions": {"stop": stop}})[0] == 400

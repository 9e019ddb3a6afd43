"""Terminations that EC2 refuses, and instances that it has terminated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shared.base import aws
from shared.launch.instances import get, terminate


@pytest.mark.usefixtures("account")
def test_a_missing_right_ends_the_termination_of_many_instances_after_few_calls() -> None:
    calls = []

    def deny(**_: object) -> tuple[SimpleNamespace, dict[str, Any]]:
        calls.append("TerminateInstances")
        error = {"Code": "UnauthorizedOperation", "Message": "You are not authorized to perform this operation."}
        return SimpleNamespace(status_code=403), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}

    aws.ec2().meta.events.register("before-call.ec2.TerminateInstances", deny)  # type: ignore[arg-type] # an answer

    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        terminate(aws.ec2(), [f"i-{number:017x}" for number in range(400)])
    assert len(calls) < 60


@pytest.mark.usefixtures("account")
def test_a_terminated_instance_is_known_as_long_as_ec2_shows_it() -> None:
    (launched,) = aws.ec2().run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"]
    terminate(aws.ec2(), [launched["InstanceId"]])
    (instance,) = get(aws.ec2(), [launched["InstanceId"], "i-0123456789abcdef0"])
    assert (instance.id, instance.state) == (launched["InstanceId"], "terminated")

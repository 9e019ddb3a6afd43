"""The step of CreateFleet's client token: the same request with the same token launches nothing more.

Tenon's third invariant rests on it: a launch that died after the call is repeated. An instance of the smallest type is
launched by a template of the run's own. It isn't a node, has no role, and shuts itself down after an hour.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cli.verify import objects
from cli.verify.result import Proof, StepFailedError
from shared.api import labels
from shared.base.plurals import plural
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.verify.verification import Verification

INSTANCE_TYPE = "t3.nano"
_IMAGE_PARAMETER = "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
_VISIBLE_LIMIT = timedelta(minutes=1)


def verify(run: Verification) -> Proof:
    """Call CreateFleet twice with one token: both answers name the same fleet and instance, and one instance runs."""
    _create_template(run)
    request = _request(run)
    launched: set[str] = set()
    try:
        begun = run.now()
        first = run.aws("ec2").create_fleet(**request)
        took = run.seconds_since(begun)
        launched |= (first_instances := _instances(first))
        if not first_instances:
            raise StepFailedError(f"CreateFleet launched nothing: {_errors(first)}.")
        second = run.aws("ec2").create_fleet(**request)
        launched |= _instances(second)
        if (second["FleetId"], _instances(second)) != (first["FleetId"], first_instances):
            raise StepFailedError(
                "CreateFleet launched another instance for the same client token, so a launch that Tenon repeats would "
                "be bought twice."
            )
        running = run.wait(lambda: _by_tag(run), limit=_VISIBLE_LIMIT) or []
        if len(running) > 1:
            raise StepFailedError(
                f"One client token made {plural(len(running), 'instance')}, although both answers named one."
            )
    finally:
        if launched:
            run.aws("ec2").terminate_instances(InstanceIds=sorted(launched))
        run.aws("ec2").delete_launch_template(LaunchTemplateName=run.name)
    return Proof(
        sentence="Two calls of CreateFleet with one client token named the same fleet and the same instance.",
        measured={"CreateFleet": took},
    )


def tags(run: Verification, kind: str) -> dict[str, Any]:
    """The run's tags for a kind of resource, as EC2 takes them."""
    values = {objects.TAG: run.id, labels.CLUSTER_NAME_TAG: run.cluster, "Name": run.name}
    return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in values.items()]}


def _create_template(run: Verification) -> None:
    status = (run.get(resources.NODE_CLASSES, run.name) or {}).get("status", {})
    parameter = _IMAGE_PARAMETER.format(version=run.version)
    image = run.aws("ssm").get_parameter(Name=parameter)["Parameter"]["Value"]
    run.aws("ec2").create_launch_template(
        LaunchTemplateName=run.name,
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": INSTANCE_TYPE,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required"},
            "SecurityGroupIds": [group["id"] for group in status.get("securityGroups", ())],
            "UserData": base64.b64encode(objects.shutdown_script().encode()).decode(),
            "TagSpecifications": [tags(run, "instance"), tags(run, "volume")],
        },
        TagSpecifications=[tags(run, "launch-template")],
    )


def _request(run: Verification) -> dict[str, Any]:
    status = (run.get(resources.NODE_CLASSES, run.name) or {}).get("status", {})
    template = {"LaunchTemplateName": run.name, "Version": "$Latest"}
    overrides = [{"SubnetId": subnet["id"], "InstanceType": INSTANCE_TYPE} for subnet in status.get("subnets", ())]
    return {
        "ClientToken": run.name,
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": overrides}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
        "TagSpecifications": [tags(run, "instance")],
    }


def _by_tag(run: Verification) -> list[Mapping[str, Any]]:
    tagged = run.instances((f"tag:{objects.TAG}", run.id), ("instance-type", INSTANCE_TYPE))
    return [i for i in tagged if i["State"]["Name"] in {"pending", "running"}]


def _instances(answer: Mapping[str, Any]) -> set[str]:
    return {i for launched in answer.get("Instances", ()) for i in launched["InstanceIds"]}


def _errors(answer: Mapping[str, Any]) -> str:
    errors: Sequence[Mapping[str, Any]] = answer.get("Errors", ())
    return "; ".join(sorted({f"{e.get('ErrorCode')}: {e.get('ErrorMessage')}" for e in errors})) or "no error was named"

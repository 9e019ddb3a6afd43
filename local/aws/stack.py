"""Deploys the cloud assembly by CloudFormation into moto, and resolves the stack's resources.

Does what the CDK's CLI does: uploads assets to the staging bucket and creates the stack from the template there. The
code in the assets is not run, the checkout's is, so each asset is a small placeholder.
"""

from __future__ import annotations

import contextlib
import graphlib
import io
import json
import logging
import warnings
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from local.aws import backends
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_STAGING = f"cdk-hnb659fds-assets-{backends.ACCOUNT}-{{region}}"

_RELAY_ROLE = "RelayRoleArn"
"""The stack's output with the relay's role."""

_REGION_WITHOUT_CONSTRAINT = "us-east-1"
"""The Region where S3 refuses a location constraint; all others require it."""


class DeployError(RuntimeError):
    """The stack didn't reach CREATE_COMPLETE; the text has CloudFormation's reason."""


class DeployedFunction(Struct, kw_only=True):
    """A deployed Lambda function.

    ``timeout`` in seconds; ``reserved_concurrency`` is None without a limit; ``allows_recursion`` tells whether
    RecursiveLoop is Allow; ``retries`` are those of an asynchronous invocation, after which a record of it goes to the
    queue ``failure_destination`` (an ARN).
    """

    name: str
    logical_id: str
    handler: str
    environ: Mapping[str, str]
    timeout: int
    memory_mib: int
    reserved_concurrency: int | None
    dead_letter_arn: str
    role_arn: str = ""
    allows_recursion: bool = False
    retries: int = 2
    arn: str = ""
    failure_destination: str = ""
    stack: str = ""
    """The name of its stack if there are several; "" for the only one."""

    @property
    def caller(self) -> str:
        """As whom it calls AWS and Kubernetes."""
        return caller(self.short_name, self.stack)

    @property
    def short_name(self) -> str:
        """Its folder under functions/."""
        return self.handler.split(".")[1] if self.handler.startswith("functions.") else self.name


class EventSourceMapping(Struct, kw_only=True):
    """A queue whose messages invoke a function. ``window`` is the batch window in seconds."""

    queue_arn: str
    function_name: str
    batch_size: int
    window: int
    maximum_concurrency: int | None
    partial_failures: bool

    @property
    def queue_name(self) -> str:
        """The queue's name."""
        return self.queue_arn.rsplit(":", 1)[-1]


class DeployedStack(Struct, kw_only=True):
    """A stack: its functions by ARN, event source mappings, physical ids by logical id, and outputs."""

    stack: str
    template: Mapping[str, Any]
    functions: Mapping[str, DeployedFunction]
    event_source_mappings: tuple[EventSourceMapping, ...]
    physical_ids: Mapping[str, str]
    outputs: Mapping[str, str] = {}
    is_only: bool = True
    function_urls: Mapping[str, str] = {}
    """The functions' names by the hosts of their URLs."""

    @property
    def relay_caller(self) -> str:
        """As whom the relay's pod calls AWS."""
        return caller("relay", "" if self.is_only else self.stack)

    def logical_ids(self, kind: str) -> tuple[str, ...]:
        """The logical ids of the resources of a type, such as ``AWS::SQS::Queue``."""
        return tuple(name for name, resource in self.template["Resources"].items() if resource["Type"] == kind)

    def role_names(self) -> dict[str, str]:
        """The names of the roles that the stack creates for its functions and the relay, by caller."""
        created = {self.physical_ids[id_] for id_ in self.logical_ids("AWS::IAM::Role")}
        role_arns = {function.caller: function.role_arn for function in self.functions.values()}
        if _RELAY_ROLE in self.outputs:
            role_arns[self.relay_caller] = self.outputs[_RELAY_ROLE]
        return {name: role for name, arn in role_arns.items() if (role := arn.rsplit("/", 1)[-1]) in created}

    def kubernetes_groups(self) -> dict[str, tuple[str, ...]]:
        """The Kubernetes groups of each role that has an access entry, by the role's name."""
        return {
            self.physical_ids[principal["Fn::GetAtt"][0]]: tuple(resource["Properties"].get("KubernetesGroups", ()))
            for resource in self.template["Resources"].values()
            if resource["Type"] == "AWS::EKS::AccessEntry"
            if "Fn::GetAtt" in (principal := resource["Properties"]["PrincipalArn"])
        }

    def function(self, short_name: str) -> DeployedFunction:
        """The function that runs ``functions/<short_name>``; KeyError if there is none."""
        for function in self.functions.values():
            if function.short_name == short_name:
                return function
        raise KeyError(short_name)


def caller(name: str, stack: str) -> str:
    """As whom a function or relay calls AWS and Kubernetes; the stack's name tells those of several stacks apart."""
    return f"{name}-{stack}" if stack else name


def deploy(assembly: Path, *, region: str) -> tuple[DeployedStack, ...]:
    """Deploy the assembly's stacks, each after those that it depends on, and resolve their resources.

    Raises:
        DeployError: CloudFormation didn't complete one of them.
    """
    artifacts = _stacks_of(json.loads((assembly / "manifest.json").read_text()))
    bucket = _STAGING.format(region=region)
    if region == _REGION_WITHOUT_CONSTRAINT:
        backends.client("s3").create_bucket(Bucket=bucket)
    else:
        configuration: Any = {"LocationConstraint": region}
        backends.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=configuration)
    is_only = len(artifacts) == 1
    return tuple(
        _deploy_stack(assembly, stack, artifact, region=region, is_only=is_only)
        for stack, artifact in artifacts.items()
    )


def _create(stack: str, url: str, parameters: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Create the stack; its resources' ids by their logical ids, and its outputs.

    Raises:
        DeployError: it can't be created.
    """
    cloudformation = backends.client("cloudformation")
    try:
        with _without_moto_warnings():
            cloudformation.create_stack(
                StackName=stack,
                TemplateURL=url,
                Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
                Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
            )
    except ClientError as error:
        raise DeployError(f"{stack}: {error}") from error
    with _without_moto_warnings():
        described = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    if described["StackStatus"] != "CREATE_COMPLETE":
        raise DeployError(f"{stack}: {described['StackStatus']} {described.get('StackStatusReason', '')}")
    with _without_moto_warnings():
        physical_ids = {
            item["LogicalResourceId"]: item.get("PhysicalResourceId", "")
            for page in cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
            for item in page["StackResourceSummaries"]
        }
    return physical_ids, {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}


def _deploy_stack(
    assembly: Path, stack: str, artifact: Mapping[str, Any], *, region: str, is_only: bool
) -> DeployedStack:
    from local.aws import function_url_resource

    properties = artifact["properties"]
    template_text = (assembly / properties["templateFile"]).read_text()
    template = json.loads(template_text)
    bucket = _STAGING.format(region=region)
    s3 = backends.client("s3")
    code = _archive()
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Function" and "S3Key" in resource["Properties"]["Code"]:
            s3.put_object(Bucket=bucket, Key=resource["Properties"]["Code"]["S3Key"], Body=code)
    s3.put_object(Bucket=bucket, Key="template.json", Body=template_text.encode())
    function_url_resource.support()
    parameters = {name: str(value) for name, value in properties.get("parameters", {}).items()}
    url = f"https://{bucket}.s3.{region}.amazonaws.com/template.json"
    physical_ids, outputs = _create(stack, url, parameters)
    _set_queue_policies(template, physical_ids, region)
    functions = _functions(template, physical_ids, region=region, stack="" if is_only else stack)
    return DeployedStack(
        stack=stack,
        template=template,
        functions=functions,
        event_source_mappings=_event_source_mappings(region),
        physical_ids=physical_ids,
        outputs=outputs,
        is_only=is_only,
        function_urls=_function_urls(functions),
    )


@contextlib.contextmanager
def _without_moto_warnings() -> Iterator[None]:
    """While entered, moto doesn't warn of resource types that it skips; tests/infra checks those in the template."""
    log = logging.getLogger("moto")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _stacks_of(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The stacks' artifacts by name, in an order in which they can be deployed."""
    artifacts = {n: a for n, a in manifest["artifacts"].items() if a["type"] == "aws:cloudformation:stack"}
    order = graphlib.TopologicalSorter(
        {name: artifacts.keys() & set(artifact.get("dependencies", ())) for name, artifact in artifacts.items()}
    )
    return {str(artifacts[name]["properties"].get("stackName", name)): artifacts[name] for name in order.static_order()}


def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("README", "The local world runs the checkout's code.\n")
    return buffer.getvalue()


def _functions(
    template: Mapping[str, Any], physical_ids: Mapping[str, str], *, region: str, stack: str
) -> dict[str, DeployedFunction]:
    client = backends.client("lambda")
    logical = {name: id_ for id_, name in physical_ids.items()}
    functions = {}
    for page in client.get_paginator("list_functions").paginate():
        for item in page["Functions"]:
            logical_id = logical.get(item["FunctionName"], "")
            if not logical_id:
                continue  # the CDK's, or another stack's
            properties = template["Resources"][logical_id]["Properties"]
            reserved = properties.get("ReservedConcurrentExecutions")
            functions[item["FunctionArn"]] = DeployedFunction(
                name=item["FunctionName"],
                logical_id=logical_id,
                handler=item["Handler"],
                environ=dict(item.get("Environment", {}).get("Variables", {})),
                timeout=item["Timeout"],
                memory_mib=item["MemorySize"],
                reserved_concurrency=None if reserved is None else int(reserved),
                dead_letter_arn=str(item.get("DeadLetterConfig", {}).get("TargetArn", "")),
                role_arn=item["Role"],
                allows_recursion=properties.get("RecursiveLoop") == "Allow",
                retries=int(_on_failure(template, logical_id).get("MaximumRetryAttempts", 2)),
                arn=item["FunctionArn"],
                failure_destination=_failure_destination(template, physical_ids, region, logical_id),
                stack=stack,
            )
    return functions


def _function_urls(functions: Mapping[str, DeployedFunction]) -> dict[str, str]:
    client = backends.client("lambda")
    urls = {}
    for function in functions.values():
        with contextlib.suppress(client.exceptions.ResourceNotFoundException):
            url = client.get_function_url_config(FunctionName=function.name)["FunctionUrl"]
            urls[urlsplit(url).netloc] = function.name
    return urls


def _on_failure(template: Mapping[str, Any], function: str) -> Mapping[str, Any]:
    """What Lambda does with a failed asynchronous invocation of the function; empty without a configuration."""
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Lambda::EventInvokeConfig":
            properties: Mapping[str, Any] = resource["Properties"]
            if properties["FunctionName"] == {"Ref": function}:
                return properties
    return {}


def _failure_destination(
    template: Mapping[str, Any], physical_ids: Mapping[str, str], region: str, function: str
) -> str:
    destination = _on_failure(template, function).get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
    return str(_resolved(destination, physical_ids, region)) if destination is not None else ""


def _resolved(value: Any, physical_ids: Mapping[str, str], region: str) -> Any:
    """The value with references to pseudo parameters, and to queues of the template."""
    pseudo = {"AWS::AccountId": backends.ACCOUNT, "AWS::Partition": "aws", "AWS::Region": region}
    match value:
        case {"Ref": str(name)}:
            return pseudo.get(name) or physical_ids[name]
        case {"Fn::GetAtt": [str(name), "Arn"]}:
            return f"arn:aws:sqs:{region}:{backends.ACCOUNT}:{physical_ids[name].rsplit('/', 1)[-1]}"
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(_resolved(part, physical_ids, region) for part in parts)
        case dict():
            return {key: _resolved(element, physical_ids, region) for key, element in value.items()}
        case list():
            return [_resolved(element, physical_ids, region) for element in value]
    return value


def _set_queue_policies(template: Mapping[str, Any], physical_ids: Mapping[str, str], region: str) -> None:
    """Give the queues the policies of the template, which moto passes over."""
    sqs = backends.client("sqs")
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::SQS::QueuePolicy":
            policy = json.dumps(_resolved(resource["Properties"]["PolicyDocument"], physical_ids, region))
            for queue in resource["Properties"]["Queues"]:
                sqs.set_queue_attributes(QueueUrl=physical_ids[queue["Ref"]], Attributes={"Policy": policy})


def _event_source_mappings(region: str) -> tuple[EventSourceMapping, ...]:
    mappings = backends.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    # moto would invoke the function as soon as a message is sent; here the event loop polls.
    for queue in backends.sqs(region).queues.values():
        queue.lambda_event_source_mappings.clear()
    return tuple(
        EventSourceMapping(
            queue_arn=mapping["EventSourceArn"],
            function_name=mapping["FunctionArn"].split(":function:")[1].split(":")[0],
            batch_size=mapping["BatchSize"],
            window=int(mapping.get("MaximumBatchingWindowInSeconds") or 0),
            maximum_concurrency=(mapping.get("ScalingConfig") or {}).get("MaximumConcurrency"),
            partial_failures="ReportBatchItemFailures" in (mapping.get("FunctionResponseTypes") or []),
        )
        for mapping in mappings
    )

"""A small AWS account for launches: moto, and by botocore hooks the parts of CreateFleet that moto lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import RLock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.botocore_stubber import BotocoreStubber
from moto.ec2.models import ec2_backends
from moto.ssm.models import ssm_backends

from shared.api import labels, spot
from shared.api.kubernetes import NodeSelectorRequirement, Taint
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.api.nodeclass import (
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shared.base import aws, runtime
from shared.base.struct import with_fields
from shared.cloud_provider import LaunchedInstance, LaunchFailure, LaunchRequest
from shared.cluster.connect import ClusterInfo
from shared.instance_types.instance_type import InstanceType, Offering
from shared.launch.fleet.launch import launch
from shared.launch.launch_template import tag_list
from shared.launch.node_class.status import NodeClassResolver, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shared.api.nodeclass import EC2NodeClassStatus
    from shared.api.spot import SpotOptions
    from shared.launch.fleet.rate_limit import RateLimiter

REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLUSTER = ClusterInfo(
    name="demo",
    endpoint="https://demo.example",
    certificate_authority="Q0E=",
    version="1.34",
    service_cidr="10.100.0.0/16",
    region=REGION,
)
DISCOVERY = {"karpenter.sh/discovery": "demo"}


@dataclass
class Fleets:
    """CreateFleet as a test configures it: it remembers tokens, lacks capacity, returns errors or fails.

    ``room`` is how many instances there are in all, ``limits`` how many a pool has. Of a request, only the first pool
    with capacity is used.
    """

    without_capacity: set[tuple[str, str, str]] = field(default_factory=set)
    errors_to_return: list[tuple[str, str]] = field(default_factory=list)
    room: int | None = None
    limits: dict[tuple[str, str, str], int] = field(default_factory=dict)
    code: str = "UnfulfillableCapacity"
    calls: int = 0
    answers: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def install(self) -> None:
        events = aws.ec2_without_retries().meta.events
        events.register("before-parameter-build.ec2.CreateFleet", self._build)
        events.register("before-call.ec2.CreateFleet", self._before)
        events.register("after-call.ec2.CreateFleet", self._after)

    def _build(self, params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        self.calls += 1
        self.requests.append(json.loads(json.dumps(params)))
        context["token"], context["print"] = params["ClientToken"], json.dumps(params, sort_keys=True)
        spot = params["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        errors: list[dict[str, Any]] = []
        for config in params["LaunchTemplateConfigs"]:
            kept = []
            for override in config["Overrides"]:
                pool = (spot, override["InstanceType"], override["AvailabilityZone"])
                if pool in self.without_capacity or self.limits.get(pool) == 0:
                    errors.append(_no_capacity(spot, config, override))
                else:
                    kept.append(override)
            config["Overrides"] = kept
        params["LaunchTemplateConfigs"] = [c for c in params["LaunchTemplateConfigs"] if c["Overrides"]]
        self._limit_first(params, spot, errors, is_new=context["token"] not in self.answers)
        capacity, room = params["TargetCapacitySpecification"]["TotalTargetCapacity"], self.room
        if room is not None:
            if room < capacity:
                params["TargetCapacitySpecification"]["TotalTargetCapacity"] = room
                code = {"ErrorCode": self.code, "ErrorMessage": "There is no more."}
                errors.append({"Lifecycle": spot, **code})
            if context["token"] not in self.answers:
                self.room = max(0, room - capacity)
        context["errors"] = errors
        context["none"] = not params["LaunchTemplateConfigs"] or room == 0
        if context["none"]:
            params["LaunchTemplateConfigs"] = [{}]

    def _limit_first(self, params: dict[str, Any], spot: str, errors: list[dict[str, Any]], *, is_new: bool) -> None:
        """Moto launches from the first override: no more than its pool has."""
        if not params["LaunchTemplateConfigs"]:
            return
        config, target = params["LaunchTemplateConfigs"][0], params["TargetCapacitySpecification"]
        override = config["Overrides"][0]
        pool = (spot, override["InstanceType"], override["AvailabilityZone"])
        if pool not in self.limits:
            return
        launched = min(self.limits[pool], target["TotalTargetCapacity"])
        if launched < target["TotalTargetCapacity"]:
            errors.append(_no_capacity(spot, config, override))
        target["TotalTargetCapacity"] = launched
        if is_new:
            self.limits[pool] -= launched

    def _before(self, context: dict[str, Any], **_: object) -> Any:
        ok, bad = SimpleNamespace(status_code=200), SimpleNamespace(status_code=400)
        if self.errors_to_return:
            code, message = self.errors_to_return.pop(0)
            return bad, {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        if context["token"] in self.answers:
            printed, answer = self.answers[context["token"]]
            if printed != context["print"]:
                error = {"Code": "IdempotentParameterMismatch", "Message": "The token was used before, otherwise."}
                return bad, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}
            context["errors"] = answer["Errors"]
            return ok, dict(answer)
        if context["none"]:
            return ok, {"Instances": [], "Errors": context["errors"], "ResponseMetadata": {"HTTPStatusCode": 200}}
        return None

    def _after(self, parsed: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        if "Error" in parsed:
            return
        parsed["Errors"] = context["errors"]
        self.answers.setdefault(context["token"], (context["print"], dict(parsed)))


def _no_capacity(spot: str, config: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    entry = {"Overrides": override, "LaunchTemplateSpecification": config["LaunchTemplateSpecification"]}
    return {
        "LaunchTemplateAndOverrides": entry,
        "Lifecycle": spot,
        "ErrorCode": "InsufficientInstanceCapacity",
        "ErrorMessage": "There is no capacity.",
    }


class Account:
    """A VPC with three subnets and a security group, images by parameter, and launches in it."""

    def __init__(self) -> None:
        self.now = NOW
        self.recorded: dict[str, str] = {}
        """The ids of the instances that NodeClaims have, by NodeClaim."""
        self.fleets = Fleets()
        self.fleets.install()
        ec2 = aws.ec2()
        self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = {zone: self.add_subnet(zone, f"10.0.{i}.0/24") for i, zone in enumerate(ZONES)}
        self.group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=self.vpc)["GroupId"]
        ec2.create_tags(Resources=[self.group], Tags=tag_list(DISCOVERY))
        self.images = {}
        for arch in ("x86_64", "arm64"):
            self.images[arch] = ec2.register_image(Name=f"al2023-{arch}")["ImageId"]
            ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[self.images[arch]].architecture = arch  # which moto drops
            root = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023"
            put_parameter(f"{root}/{arch}/standard/recommended/image_id", self.images[arch])

    def add_subnet(self, zone: str, cidr: str) -> str:
        subnet = aws.ec2().create_subnet(VpcId=self.vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        aws.ec2().create_tags(Resources=[subnet], Tags=tag_list(DISCOVERY))
        return subnet

    def status(
        self, node_class: EC2NodeClass, *, version: str = "1.34", profile: str = "nodes", now: datetime = NOW
    ) -> EC2NodeClassStatus:
        return resolve(self.resolver(version=version, profile=profile), node_class, now=now)

    @staticmethod
    def resolver(*, version: str = "1.34", profile: str = "nodes") -> NodeClassResolver:
        cluster = with_fields(CLUSTER, version=version)
        return NodeClassResolver(
            clients=aws, runtime=runtime.current(), cluster=cluster, default_instance_profile=profile
        )

    def node_class(self, *, kind: str = "EC2NodeClass", **spec: Any) -> EC2NodeClass:
        given: dict[str, Any] = {
            "subnet_selector_terms": [SubnetSelectorTerm(tags=DISCOVERY)],
            "security_group_selector_terms": [SecurityGroupSelectorTerm(tags=DISCOVERY)],
        } | spec
        metadata = ObjectMeta(name="default", generation=1)
        return EC2NodeClass(metadata=metadata, spec=EC2NodeClassSpec(**given), kind=kind)

    def ready(self, **spec: Any) -> EC2NodeClass:
        node_class = self.node_class(**spec)
        return with_fields(node_class, status=self.status(node_class))

    def launch(
        self,
        claims: Sequence[NodeClaim],
        types: Sequence[InstanceType],
        *,
        node_class: EC2NodeClass | None = None,
        rate_limiter: RateLimiter | None = None,
        now: datetime = NOW,
        interruption_rates: Mapping[tuple[str, str], float] | None = None,
        spot_options: SpotOptions = spot.DEFAULT,
    ) -> tuple[LaunchedInstance | LaunchFailure, ...]:
        chosen = node_class or self.ready()
        requests = [
            LaunchRequest(
                claim=c,
                node_class=chosen,
                instance_types=tuple(types),
                interruption_cost=0.4,
                spot_options=spot_options,
            )
            for c in claims
        ]
        return launch(
            requests,
            clients=aws,
            runtime=runtime.current(),
            cluster=CLUSTER,
            now=now,
            recorded=lambda: self.recorded,
            rate_limiter=rate_limiter,
            interruption_rates=interruption_rates,
        )

    def offered(self, request: int = -1) -> set[tuple[str, str]]:
        """The instance types and zones of a CreateFleet request."""
        configs = self.fleets.requests[request]["LaunchTemplateConfigs"]
        return {(o["InstanceType"], o["AvailabilityZone"]) for c in configs for o in c["Overrides"]}

    def restart(self) -> None:
        """The function's process dies; EC2 stays."""
        runtime.current().cache.clear()
        self.fleets.install()

    @staticmethod
    def claim(name: str, *requirements: tuple[str, str, list[str]], group: str = "group", **label: str) -> NodeClaim:
        return NodeClaim(
            metadata=ObjectMeta(
                name=name,
                uid=f"uid-{name}",
                labels={labels.NODEPOOL: "default", **label},
                annotations={labels.LAUNCH_GROUP: group},
            ),
            spec=NodeClaimSpec(
                requirements=[NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in requirements],
                taints=[Taint(key="example.com/special", effect="NoSchedule")],
            ),
        )

    @staticmethod
    def instance_type(
        name: str, *, spot: float | None = None, on_demand: float | None = None, arch: str = "amd64", **capacity: int
    ) -> InstanceType:
        prices = {labels.SPOT: spot, labels.ON_DEMAND: on_demand}
        return InstanceType(
            name=name,
            labels={labels.INSTANCE_TYPE: name, labels.ARCH: arch, labels.OS: "linux"},
            capacity={"cpu": 2000, "memory": 2**33, "pods": 29}
            | {k.replace("__", "/"): v for k, v in capacity.items()},
            overhead={"cpu": 70},
            offerings=tuple(
                Offering(zone=zone, capacity_type=c, price=p)
                for zone in ZONES
                for c, p in prices.items()
                if p is not None
            ),
        )

    def running(self) -> list[dict[str, Any]]:
        """The instances that are there, as EC2 describes them."""
        pages = aws.ec2().get_paginator("describe_instances").paginate()
        instances = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return [dict(i) for i in instances if i["State"]["Name"] in {"pending", "running"}]

    def tags(self, instance_id: str) -> dict[str, str]:
        return next({t["Key"]: t["Value"] for t in i["Tags"]} for i in self.running() if i["InstanceId"] == instance_id)

    def template_data(self) -> dict[str, Any]:
        """The data of the only launch template that was made."""
        (template,) = aws.ec2().describe_launch_templates()["LaunchTemplates"]
        versions = aws.ec2().describe_launch_template_versions(LaunchTemplateName=template["LaunchTemplateName"])
        return dict(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"])


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    lock, serve = RLock(), BotocoreStubber.__call__

    def serve_alone(self: BotocoreStubber, *arguments: Any, **named: Any) -> Any:
        """Moto keeps its data in plain dictionaries, and groups are launched in threads."""
        with lock:
            return serve(self, *arguments, **named)

    monkeypatch.setattr(BotocoreStubber, "__call__", serve_alone)
    with mock_aws(), runtime.using(runtime.Runtime(environ={}, now=lambda: NOW)):
        yield Account()


@pytest.fixture
def table(account: Account) -> str:  # noqa: ARG001 (its AWS)
    """The name of the table that functions share."""
    name = "demo"
    aws.dynamodb_with_errors().create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def put_parameter(name: str, value: str) -> None:
    """A public parameter, which only AWS itself could put."""
    backend = ssm_backends[DEFAULT_ACCOUNT_ID][REGION]
    backend.put_parameter(f"/tenon{name}", "", value, "String", "", True, "", [], "text", "Standard", None)  # noqa: FBT003 (moto's own)
    backend._parameters[name] = backend._parameters.pop(f"/tenon{name}")
    for parameter in backend._parameters[name]:
        parameter.name = name


@pytest.fixture
def types(account: Account) -> tuple[InstanceType, ...]:
    """An instance type of each architecture, as spot and on demand."""
    return (
        account.instance_type("m5.large", spot=0.03, on_demand=0.096),
        account.instance_type("m6g.large", spot=0.035, on_demand=0.077, arch="arm64"),
    )

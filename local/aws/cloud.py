"""The local AWS: moto with its patches and IAM enforcement, an account, and Tenon's stack deployed into it.

moto's state is global in a process, so there can be one :class:`Cloud` at a time. It runs on the given clock.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import warnings
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import boto3
from botocore.loaders import create_loader
from moto import mock_aws
from moto.iam import models as iam_models
from moto.moto_api._internal import mock_random

from local.aws import (
    account,
    amis,
    backends,
    botocore_shortcuts,
    event_patterns,
    instance_attributes,
    log_streams,
    moto_patches,
    pricing_api,
    stack,
)
from local.aws.account_settings import AccountSettings
from local.aws.auto_scaling import answers, managed_node_groups
from local.aws.auto_scaling.groups import AutoScalingGroups
from local.aws.auto_scaling.managed_hooks import ManagedHooks
from local.aws.auto_scaling.managed_node_groups import NODE_GROUP_TAG
from local.aws.calls import Calls
from local.aws.capacity_pools import CapacityPools
from local.aws.capacity_reservations import CapacityReservations
from local.aws.ec2_instances import INTERRUPTION, RECOMMENDATION, Ec2Instances
from local.aws.endpoint import Endpoint
from local.aws.event_buses import EventBuses
from local.aws.eventual_consistency import EventualConsistency, launch_time
from local.aws.fault_injection import FaultInjection
from local.aws.fleet import Fleets
from local.aws.function_urls import FunctionUrls
from local.aws.iam_enforcement import IamEnforcement, function_credentials
from local.aws.instance_status import InstanceStatuses
from local.aws.interceptor import Interceptor
from local.aws.lambda_functions import LambdaFunctions
from local.aws.prices import Prices
from local.aws.purchases import Purchases
from local.aws.sqs_queues import SqsQueues
from local.aws.zonal_shifts import ZonalShifts
from local.faults import Faults

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from local.actor import Actor
    from local.aws.latencies import Latencies
    from local.aws.sqs_queues import Message
    from local.clock import Clock

_MOTO = {"lambda": {"use_docker": False}, "iam": {"load_aws_managed_policies": True}}
_ENVIRON = {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}  # 500 images that no EKS node uses
_MANAGED_POLICY_PREFIXES = ("AmazonEKS", "AmazonEC2ContainerRegistry", "AmazonSSM", "AWSLambda")
"""Name prefixes of the AWS managed policies that Tenon's stack can use."""


@functools.cache
def _managed_policies() -> str:
    """Only those policies, as JSON: moto parses all of AWS's for each of a dozen partitions, which takes seconds."""
    policies = json.loads(iam_models.aws_managed_policies_data)
    return json.dumps({name: policy for name, policy in policies.items() if name.startswith(_MANAGED_POLICY_PREFIXES)})


_service_models = create_loader()


class Cloud:
    """A context manager; inside, boto3's default session reaches only this cloud."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        region: str = "us-east-1",
        seed: int = 0,
        faults: Faults | None = None,
        concurrency: int = 1,
        shared_cache: Mapping[str, Any] = MappingProxyType({}),
        latencies: Latencies | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.region = region
        self.faults = faults or Faults(seed=seed)
        self.calls = Calls()
        self.settings = AccountSettings()
        self.prices = Prices(seed=seed)
        self.purchases = Purchases(prices=self.prices, region=region, now=now)
        self.capacity = CapacityPools(seed=seed)
        self.reservations = CapacityReservations()
        self.consistency = EventualConsistency(now=now, seed=seed)
        self._now = now
        self._sleep = sleep
        self._seed = seed
        self._concurrency = concurrency
        self._shared_cache = shared_cache
        self.latencies = latencies
        self._clock = clock
        self._interceptor = Interceptor(calls=self.calls, faults=self.faults, now=now, sleep=sleep, latencies=latencies)
        self._stack = contextlib.ExitStack()
        self.enforcement = IamEnforcement(region=region, lock=self._interceptor.lock, hides_tags=self._hides_tags)
        self.instances = Ec2Instances(
            region=region,
            now=now,
            capacity=self.capacity,
            reservations=self.reservations,
            consistency=self.consistency,
        )
        self.statuses = InstanceStatuses(self.instances, now=now)
        self.zonal_shifts = ZonalShifts(region=region, now=now)
        self.fault_injection = FaultInjection(self.instances.interrupt)
        self.account: account.Account
        self.auto_scaling: AutoScalingGroups
        self.managed_hooks: ManagedHooks
        self.stacks: tuple[stack.DeployedStack, ...]
        self.deployed: stack.DeployedStack
        self.fleets: Fleets
        self.functions: LambdaFunctions
        self.function_urls: FunctionUrls
        self.event_buses: EventBuses
        self.queues: SqsQueues

    @property
    def lock(self) -> threading.RLock:
        """Held while moto serves a request; hold it to read moto's backends."""
        return self._interceptor.lock

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(backends.replaced(iam_models, "aws_managed_policies_data", _managed_policies()))
            stack.enter_context(_environ({**_ENVIRON, "AWS_DEFAULT_REGION": self.region}))
            stack.enter_context(mock_aws(config=_MOTO))
            stack.enter_context(warnings.catch_warnings())
            # On Lambda a warning is no error; a test runner's filters may make it one.
            warnings.filterwarnings("ignore", message="No application metrics to publish")
            for owner, name, value in botocore_shortcuts.replacements():
                stack.enter_context(backends.replaced(owner, name, value))
            boto3.setup_default_session(region_name=self.region)
            assert boto3.DEFAULT_SESSION is not None
            # Service models are read once per process, not once per world.
            boto3.DEFAULT_SESSION._session.register_component("data_loader", _service_models)  # noqa: SLF001 - boto3's own way in
            self._interceptor.guard(boto3.DEFAULT_SESSION)
            self.enforcement.guard(boto3.DEFAULT_SESSION)
            stack.enter_context(function_credentials())
            self._serve_what_moto_lacks()
            mock_random.seed(self._seed)
            self.fleets = Fleets(
                backend=backends.ec2(self.region),
                prices=self.prices,
                capacity=self.capacity,
                reservations=self.reservations,
                launched=self.instances.launched,
            )
            self.auto_scaling = AutoScalingGroups(
                region=self.region, now=self._now, fleet=self.fleets.launch, consistency=self.consistency
            )
            self.managed_hooks = ManagedHooks(self.auto_scaling.hooks, now=self._now)
            self.instances.observe(RECOMMENDATION, self.auto_scaling.rebalance_recommended)
            self.instances.observe(INTERRUPTION, self._interrupted)
            self._patch_moto(stack)
            self._stack = stack.pop_all()
        return self

    def _serve_what_moto_lacks(self) -> None:
        self._interceptor.serve(
            "pricing",
            lambda operation, body: pricing_api.serve(operation, body, prices=self.prices, region=self.region),
        )
        self._interceptor.serve("savingsplans", self.purchases.serve)
        self._interceptor.serve_operation(
            "ec2", "DescribeReservedInstances", self.purchases.describe_reserved_instances
        )
        self._interceptor.serve_rest("arc-zonal-shift", self.zonal_shifts.serve)
        self._interceptor.serve_rest("fis", self.fault_injection.serve)
        self._interceptor.serve_operation(
            "ec2", "ModifyInstanceAttribute", partial(instance_attributes.modify, self.region)
        )
        for service in ("eventbridge", "events"):  # in this process, and by the signature over HTTP
            self._interceptor.serve_operation(service, "TestEventPattern", event_patterns.test)
        self._interceptor.serve_operation("ec2", "DescribeInstanceStatus", self.statuses.describe)
        self._interceptor.serve_operation("lambda", "GetAccountSettings", self.settings.get_account_settings)
        self._interceptor.serve_operation("service-quotas", "ListServiceQuotas", self.settings.list_service_quotas)
        self._interceptor.serve_operation("ec2", "GetEbsDefaultKmsKeyId", self.settings.get_ebs_default_kms_key_id)
        for service in ("cloudwatch-logs", "logs"):  # the same
            self._interceptor.serve_operation(
                service, "DescribeLogStreams", lambda body: log_streams.describe(body, self.functions.invocations)
            )
            self._interceptor.serve_operation(
                service, "FilterLogEvents", lambda body: log_streams.filter_events(body, self.functions.invocations)
            )

    def _patch_moto(self, stack: contextlib.ExitStack) -> None:
        moto_patches.install(
            stack,
            now=self._now,
            fleets=self.fleets,
            instances=self.instances,
            consistency=self.consistency,
            reservations=self.reservations,
            prices=self.prices,
            auto_scaling=[
                *answers.replacements(self.auto_scaling),
                *managed_node_groups.replacements(self.region, self.auto_scaling),
            ],
            event_buses=lambda: self.event_buses,  # they exist once the stack is deployed
            functions=lambda: self.functions,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "functions"):
            self.functions.close()
        self._stack.close()

    def prepare(self, *, cluster: str, version: str, endpoint: str, certificate_authority: str) -> account.Account:
        """Create what an account has before Tenon is deployed."""
        self.account = account.prepare(
            cluster=cluster,
            region=self.region,
            version=version,
            endpoint=endpoint,
            certificate_authority=certificate_authority,
        )
        self.zonal_shifts.resources.add(backends.eks(self.region).clusters[cluster].arn)
        return self.account

    def deploy(self, assembly: Path) -> stack.DeployedStack:
        """Deploy the cloud assembly, connect its functions, queues and rules, and enforce their roles.

        Returns the stack; of several the last, which depends on the others.

        Raises:
            DeployError: CloudFormation didn't complete it.
        """
        self.stacks = stack.deploy(assembly, region=self.region)
        self.deployed = self.stacks[-1]
        for deployed in self.stacks:
            self.enforcement.enforce(deployed.role_names())
        self.functions = LambdaFunctions(
            {arn: function for deployed in self.stacks for arn, function in deployed.functions.items()},
            region=self.region,
            now=self._now,
            sleep=self._sleep,
            faults=self.faults,
            concurrency=self._concurrency,
            shared_cache=self._shared_cache,
            clock=self._clock,
        )
        self.function_urls = FunctionUrls(self.functions, self.deployed.function_urls, now=self._now)
        self.event_buses = EventBuses(region=self.region, now=self._now, functions=self.functions)
        self.queues = SqsQueues(
            self.deployed.event_source_mappings,
            region=self.region,
            now=self._now,
            functions=self.functions,
            lock=self.lock,
        )
        return self.deployed

    def endpoint(self) -> Endpoint:
        """This AWS over HTTP, for other processes; enter it to serve it."""
        return Endpoint(self._interceptor)

    def upgrade(self, cluster: str, version: str) -> None:
        """Publish the images of a Kubernetes version, and let the EKS cluster have it."""
        with self.lock:
            amis.publish(self.region, version)
            backends.eks(self.region).clusters[cluster].version = version

    def roll_back(self, cluster: str, version: str) -> None:
        """Let the EKS cluster have an older version, whose images are there already."""
        with self.lock:
            backends.eks(self.region).clusters[cluster].version = version

    def version(self, cluster: str) -> str:
        """The EKS cluster's version."""
        with self.lock:
            version: str = backends.eks(self.region).clusters[cluster].version
        return version

    def _hides_tags(self, resource_id: str) -> bool:
        def launched_at(instance_id: str) -> datetime | None:
            instance = backends.ec2(self.region).get_instance_by_id(instance_id)
            return launch_time(instance) if instance is not None else None

        return self.consistency.hides_tags(resource_id, launched_at)

    def _interrupted(self, instance_ids: Sequence[str]) -> None:
        """Let EKS drain the nodes of managed node groups that are interrupted."""
        lookup = self.enforcement.context.resources
        for instance_id in instance_ids:
            _, tags = lookup.auto_scaling_group(lookup.group_of_instance(instance_id))
            if NODE_GROUP_TAG in tags:
                self.managed_hooks.interrupted(instance_id)

    def dead_letters(self) -> list[Message]:
        """All messages in dead-letter queues, by queue and time."""
        with self.lock:
            queues = backends.sqs(self.region).queues
            filled = {name for name, queue in queues.items() if queue._messages}  # noqa: SLF001 - the API would hide them
            if not filled:
                return []
            names = {queue.dead_letter_queue.name for queue in queues.values() if queue.dead_letter_queue is not None}
            names |= {
                arn.rsplit(":", 1)[-1]
                for bus in backends.events(self.region).event_buses.values()
                for rule in bus.rules.values()
                for target in rule.targets
                if (arn := target.get("DeadLetterConfig", {}).get("Arn"))
            }
        return [message for name in sorted(names & filled) for message in self.queues.messages(name)]

    def actors(self) -> list[Actor]:
        """The actors to step, in order."""
        on_moto = (_LockedActor(actor, self.lock) for actor in (self.instances, self.auto_scaling, self.managed_hooks))
        return [*on_moto, self.event_buses, self.functions, self.queues]


class _LockedActor:
    """An actor that uses moto's backends directly; stepped while no request is served."""

    def __init__(self, actor: Actor, lock: threading.RLock) -> None:
        self._actor = actor
        self._lock = lock

    def step(self, now: datetime) -> bool:
        with self._lock:
            return self._actor.step(now)

    def due(self) -> datetime | None:
        return self._actor.due()


@contextlib.contextmanager
def _environ(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

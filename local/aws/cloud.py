"""AWS as one thing for a local world: moto started, guarded, corrected and filled, and Tenon's stack deployed into it.

moto is one a process, so there is one :class:`Cloud` at a time. Everything in it follows the clock that is given.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import warnings
from typing import TYPE_CHECKING, Any, Self

import boto3
from botocore.loaders import create_loader
from moto import mock_aws
from moto.core.responses import ActionResult
from moto.iam import models as iam_models
from moto.moto_api._internal import mock_random

from local.aws import account, backends, pricing_api, spot_price_history, stack
from local.aws.calls import Calls
from local.aws.capacity_pools import CapacityPools
from local.aws.capacity_reservations import Reservations
from local.aws.ec2_instances import Ec2Instances
from local.aws.event_buses import EventBuses
from local.aws.fleet import Fleets
from local.aws.iam_enforcement import IamEnforcement, own_credentials
from local.aws.interceptor import Interceptor
from local.aws.lambda_functions import LambdaFunctions
from local.aws.prices import Prices
from local.aws.sqs_queues import SqsQueues
from local.faults import Faults

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from local.actor import Actor
    from local.aws.sqs_queues import Message

_MOTO = {"lambda": {"use_docker": False}, "iam": {"load_aws_managed_policies": True}}
_ENVIRON = {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false"}  # five hundred images that no EKS node runs
_FLEET_PARAMETERS = (
    "ClientToken",
    "Type",
    "LaunchTemplateConfigs",
    "TargetCapacitySpecification",
    "SpotOptions",
    "OnDemandOptions",
    "TagSpecifications",
    "Context",
)


_POLICIES = ("AmazonEKS", "AmazonEC2ContainerRegistry", "AmazonSSM", "AWSLambda")
"""AWS's managed policies that a stack of ours may name, by how their names begin."""


@functools.cache
def _policies() -> str:
    """Only those policies: moto reads all of AWS's for each of a dozen partitions, which takes seconds."""
    everything = json.loads(iam_models.aws_managed_policies_data)
    return json.dumps({name: policy for name, policy in everything.items() if name.startswith(_POLICIES)})


_models = create_loader()


class Cloud:
    """A context manager; inside, boto3's default session reaches this cloud and nothing else."""

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        region: str = "us-east-1",
        seed: int = 0,
        faults: Faults | None = None,
        concurrency: int = 1,
    ) -> None:
        self.region = region
        self.faults = faults or Faults(seed=seed)
        self.calls = Calls()
        self.prices = Prices(seed=seed)
        self.capacity = CapacityPools(seed=seed)
        self.reservations = Reservations()
        self._now = now
        self._sleep = sleep
        self._seed = seed
        self._concurrency = concurrency
        self._gate = Interceptor(calls=self.calls, faults=self.faults, now=now, sleep=sleep)
        self._stack = contextlib.ExitStack()
        self.enforcement = IamEnforcement(region=region, lock=self._gate.lock)
        self.instances = Ec2Instances(region=region, now=now, capacity=self.capacity, reservations=self.reservations)
        self.account: account.Account
        self.deployed: stack.DeployedStack
        self.fleets: Fleets
        self.functions: LambdaFunctions
        self.event_buses: EventBuses
        self.queues: SqsQueues

    @property
    def lock(self) -> threading.RLock:
        """Held while moto serves a request; for those who read its backends."""
        return self._gate.lock

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(backends.replaced(iam_models, "aws_managed_policies_data", _policies()))
            stack.enter_context(_environ({**_ENVIRON, "AWS_DEFAULT_REGION": self.region}))
            stack.enter_context(mock_aws(config=_MOTO))
            stack.enter_context(warnings.catch_warnings())
            # Lambda makes no error of a warning, whatever a test runner's filters say.
            warnings.filterwarnings("ignore", message="No application metrics to publish")
            boto3.setup_default_session(region_name=self.region)
            assert boto3.DEFAULT_SESSION is not None
            # The models of services are read once a process, not once a world.
            boto3.DEFAULT_SESSION._session.register_component("data_loader", _models)  # noqa: SLF001 - boto3's own way in
            self._gate.guard(boto3.DEFAULT_SESSION)
            self.enforcement.guard(boto3.DEFAULT_SESSION)
            stack.enter_context(own_credentials())
            self._gate.serve(
                "pricing",
                lambda operation, body: pricing_api.answer(operation, body, prices=self.prices, region=self.region),
            )
            mock_random.seed(self._seed)
            self.fleets = Fleets(
                backend=backends.ec2(self.region),
                prices=self.prices,
                capacity=self.capacity,
                reservations=self.reservations,
                launched=self.instances.launched,
            )
            self._correct(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if hasattr(self, "functions"):
            self.functions.close()
        self._stack.close()

    def prepare(self, *, cluster: str, version: str, endpoint: str, certificate_authority: str) -> account.Account:
        """Make what an account has before Tenon comes."""
        self.account = account.prepare(
            cluster=cluster,
            region=self.region,
            version=version,
            endpoint=endpoint,
            certificate_authority=certificate_authority,
        )
        return self.account

    def deploy(self, assembly: Path) -> stack.DeployedStack:
        """Deploy the cloud assembly, connect its functions, queues and rules, and enforce their roles.

        Raises:
            DeployError: CloudFormation didn't complete it.
        """
        self.deployed = stack.deploy(assembly, region=self.region)
        self.enforcement.enforce(self.deployed.role_names())
        self.functions = LambdaFunctions(
            self.deployed.functions,
            region=self.region,
            now=self._now,
            sleep=self._sleep,
            faults=self.faults,
            concurrency=self._concurrency,
        )
        self.event_buses = EventBuses(region=self.region, now=self._now, functions=self.functions)
        self.queues = SqsQueues(
            self.deployed.event_source_mappings,
            region=self.region,
            now=self._now,
            functions=self.functions,
            lock=self.lock,
        )
        return self.deployed

    def dead_letters(self) -> list[Message]:
        """All messages in dead-letter queues, by queue and then by when they came."""
        with self.lock:
            queues = backends.sqs(self.region).queues
            dead = {queue.dead_letter_queue.name for queue in queues.values() if queue.dead_letter_queue is not None}
            dead |= {
                arn.rsplit(":", 1)[-1]
                for bus in backends.events(self.region).event_buses.values()
                for rule in bus.rules.values()
                for target in rule.targets
                if (arn := target.get("DeadLetterConfig", {}).get("Arn"))
            }
        return [message for name in sorted(dead) for message in self.queues.messages(name)]

    def actors(self) -> list[Actor]:
        """Who must be stepped for anything to happen here, in order."""
        return [_Locked(self.instances, self.lock), self.event_buses, self.functions, self.queues]

    def _correct(self, stack: contextlib.ExitStack) -> None:
        from moto.ec2.models.instances import Instance  # noqa: PLC0415 - slow to import, and only a cloud needs it
        from moto.ec2.responses import EC2Response  # noqa: PLC0415 - the same
        from moto.ec2.responses.fleets import Fleets as FleetResponses  # noqa: PLC0415 - the same
        from moto.ec2.responses.spot_instances import SpotInstances  # noqa: PLC0415 - the same
        from moto.events.models import Rule  # noqa: PLC0415 - the same
        from moto.sqs.models import SQSBackend  # noqa: PLC0415 - the same

        terminate = Instance.terminate
        cloud = self

        def create_fleet(response: Any) -> Any:  # noqa: ANN401 - moto's
            response.error_on_dryrun()
            params = {name: value for name in _FLEET_PARAMETERS if (value := response._get_param(name)) is not None}  # noqa: SLF001 - how moto's own read them
            return ActionResult(cloud.fleets.create(params))

        def describe_spot_price_history(response: Any) -> Any:  # noqa: ANN401 - moto's
            filters = dict(response._filters_from_querystring())  # noqa: SLF001 - how moto's own read them
            products = [
                *(response._get_param("ProductDescriptions", []) or []),  # noqa: SLF001 - the same
                *filters.pop("product-description", []),
            ]
            filters.pop("timestamp", None)
            offerings = response.ec2_backend.describe_spot_price_history(
                response._get_param("InstanceTypes", []),  # noqa: SLF001 - the same
                filters,
            )
            return ActionResult(
                spot_price_history.page(
                    offerings,
                    prices=cloud.prices,
                    now=cloud._now(),
                    products=products,
                    token=str(response._get_param("NextToken") or ""),  # noqa: SLF001 - the same
                )
            )

        def describe_spot_instance_requests(response: Any) -> Any:  # noqa: ANN401 - moto's
            filters = response._filters_from_querystring()  # noqa: SLF001 - how moto's own read them
            return ActionResult({"SpotInstanceRequests": cloud.instances.spot_requests(filters)})

        def describe_capacity_reservations(response: Any) -> Any:  # noqa: ANN401 - moto's
            filters = response._filters_from_querystring()  # noqa: SLF001 - how moto's own read them
            ids = response._get_param("CapacityReservationIds", [])  # noqa: SLF001 - the same
            return ActionResult({"CapacityReservations": cloud.reservations.described(filters, ids)})

        def send_to_targets(rule: Any, event: Mapping[str, Any], transform_input: bool = True) -> None:  # noqa: ANN401, FBT001, FBT002 - moto's own signature
            cloud.event_buses.deliver(rule, event, transform_input)

        def is_kept(backend: Any, queue_name: str, message: Any) -> bool:  # noqa: ANN401 - moto's own signature
            # moto's own counts the queue's messages several times over for each message that is received.
            kept = float(backend.queues[queue_name].message_retention_period)
            return bool(message.sent_timestamp / 1000 + kept > cloud._now().timestamp())

        def profiles_of(backend: Any, role_name: str) -> Any:  # noqa: ANN401 - moto's
            # moto's own answers for a role that isn't there as for one without profiles.
            backend.get_role(role_name)
            return of_role(backend, role_name)

        of_role = iam_models.IAMBackend.get_instance_profiles_for_role
        replacements = (
            (iam_models.IAMBackend, "get_instance_profiles_for_role", profiles_of),
            (SQSBackend, "is_message_valid_based_on_retention_period", is_kept),
            (FleetResponses, "create_fleet", create_fleet),
            (SpotInstances, "describe_spot_price_history", describe_spot_price_history),
            (SpotInstances, "describe_spot_instance_requests", describe_spot_instance_requests),
            (EC2Response, "describe_capacity_reservations", describe_capacity_reservations),
            (Rule, "send_to_targets", send_to_targets),
            (Instance, "terminate", lambda instance: cloud.instances.terminate(terminate, instance)),
        )
        for owner, name, value in replacements:
            stack.enter_context(backends.replaced(owner, name, value))
        stack.enter_context(backends.on_clock(self._now))


class _Locked:
    """An actor that works on moto's backends directly, stepped while no request is served."""

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

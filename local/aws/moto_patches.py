"""Replacements of moto's own answers, where they differ from AWS's.

moto lacks fleets with several overrides, spot prices by zone, spot requests, capacity reservations, states of instances
over time, EventBridge's delivery, and CloudWatch's events about alarms. The replacements are installed on moto's
classes while a cloud is entered.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.iam import models as iam_models

from local.aws import amis, backends, moto_lookups, recursive_loops, spot_price_history
from local.aws.eventual_consistency import launch_time

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from local.aws.capacity_reservations import CapacityReservations
    from local.aws.ec2_instances import Ec2Instances
    from local.aws.event_buses import EventBuses
    from local.aws.eventual_consistency import EventualConsistency
    from local.aws.fleet import Fleets
    from local.aws.lambda_functions import LambdaFunctions
    from local.aws.prices import Prices

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
_MAX_RESULTS = 1000
"""Reservations of a page of DescribeInstances without MaxResults."""


def install(
    stack: contextlib.ExitStack,
    *,
    now: Callable[[], datetime],
    fleets: Fleets,
    instances: Ec2Instances,
    consistency: EventualConsistency,
    reservations: CapacityReservations,
    prices: Prices,
    auto_scaling: Sequence[tuple[object, str, object]],
    event_buses: Callable[[], EventBuses],
    functions: Callable[[], LambdaFunctions],
) -> None:
    """Replace moto's answers until the stack is closed.

    ``auto_scaling`` are the replacements of Auto Scaling and EKS. ``event_buses`` is called for each event to deliver,
    ``functions`` for each invocation.
    """
    replacements = (
        *_ec2(fleets=fleets, instances=instances),
        *_ec2_descriptions(now=now, instances=instances, reservations=reservations, prices=prices),
        *_consistency(consistency),
        *_listings(consistency, now),
        *_iam(),
        *_messaging(event_buses, now),
        *_invocations(functions),
        *_alarms(now),
        *_filters(),
        *_templates(),
        *auto_scaling,
        *moto_lookups.replacements(),
    )
    for owner, name, value in replacements:
        stack.enter_context(backends.replaced(owner, name, value))
    stack.enter_context(backends.on_clock(now))


def _ec2_descriptions(
    *, now: Callable[[], datetime], instances: Ec2Instances, reservations: CapacityReservations, prices: Prices
) -> list[tuple[object, str, object]]:
    from moto.ec2.responses import EC2Response
    from moto.ec2.responses.spot_instances import SpotInstances

    def describe_spot_price_history(response: Any) -> Any:
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
        token = str(response._get_param("NextToken") or "")  # noqa: SLF001 - the same
        return spot_price_history.page(offerings, prices=prices, now=now(), products=products, token=token)

    def describe_spot_instance_requests(response: Any) -> Any:
        filters = response._filters_from_querystring()  # noqa: SLF001 - how moto's own read them
        return ActionResult({"SpotInstanceRequests": instances.spot_requests(filters)})

    def describe_capacity_reservations(response: Any) -> Any:
        filters = response._filters_from_querystring()  # noqa: SLF001 - how moto's own read them
        ids = response._get_param("CapacityReservationIds", [])  # noqa: SLF001 - the same
        return ActionResult({"CapacityReservations": reservations.describe(filters, ids)})

    return [
        (SpotInstances, "describe_spot_price_history", describe_spot_price_history),
        (SpotInstances, "describe_spot_instance_requests", describe_spot_instance_requests),
        (EC2Response, "describe_capacity_reservations", describe_capacity_reservations),
    ]


def _ec2(*, fleets: Fleets, instances: Ec2Instances) -> list[tuple[object, str, object]]:
    from moto.ec2.models.instances import Instance, InstanceBackend
    from moto.ec2.responses.fleets import Fleets as FleetResponses

    terminate = Instance.terminate

    def stop(instance: Any) -> Any:
        return instances.stop(instance)

    def reboot(instance: Any) -> None:
        instances.reboot(instance)

    def start_instances(backend: Any, instance_ids: list[str]) -> Any:
        return instances.start(backend.get_multi_instances_by_id(instance_ids))

    def create_fleet(response: Any) -> Any:
        response.error_on_dryrun()
        params = {name: value for name in _FLEET_PARAMETERS if (value := response._get_param(name)) is not None}  # noqa: SLF001 - how moto's own read them
        return ActionResult(fleets.create(params))

    return [
        (FleetResponses, "create_fleet", create_fleet),
        (Instance, "terminate", lambda instance: instances.terminate(terminate, instance)),
        (Instance, "stop", stop),
        (Instance, "reboot", reboot),
        (InstanceBackend, "start_instances", start_instances),
    ]


def _invocations(functions: Callable[[], LambdaFunctions]) -> list[tuple[object, str, object]]:
    from moto.awslambda_simple.models import LambdaSimpleBackend

    def invoke(
        _backend: Any, name: str, _qualifier: str | None, body: str | bytes, headers: Any, _answer: dict[str, str]
    ) -> bytes:
        if headers.get("X-Amz-Invocation-Type") != "Event":
            # This request is served under the lock that the function's own calls need.
            raise NotImplementedError("functions are invoked asynchronously only (InvocationType=Event)")
        functions().enqueue(name, json.loads(body), trigger="Invoke")
        return b""

    return [(LambdaSimpleBackend, "invoke", invoke)]


def _filters() -> list[tuple[object, str, object]]:
    """Filters of instances with wildcards, as EC2's user guide has them ("List and filter using the CLI and API")."""
    from moto.ec2 import utils

    is_among = utils.instance_value_in_filter_values

    def matches(value: Any, allowed: Sequence[str]) -> bool:
        if is_among(value, allowed):
            return True
        patterns = [text for text in allowed if "*" in text or "?" in text]
        values = value if isinstance(value, list) else [value]
        return any(re.match(utils.simple_aws_filter_to_re(p), str(v)) for p in patterns for v in values)

    return [(utils, "instance_value_in_filter_values", matches)]


def _templates() -> list[tuple[object, str, object]]:
    from moto.cloudformation.models import Stack

    parse = Stack.parse_template

    def parse_template(template: str) -> Any:
        try:
            return json.loads(template)  # YAML's parser takes half of a world's start for the same
        except ValueError:
            return parse(template)

    return [(Stack, "parse_template", staticmethod(parse_template))]


def _if_known(consistency: EventualConsistency, operation: str) -> tuple[object, str, object]:
    from moto.ec2.responses.instances import InstanceResponse

    original = getattr(InstanceResponse, operation)

    def checked(response: Any) -> Any:
        instance_ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - how moto's own read them
        instances = response.ec2_backend.get_multi_instances_by_id(instance_ids)
        consistency.check_known(instances)
        if operation == "terminate_instances":
            _check_unprotected(instances)
        return original(response)

    return InstanceResponse, operation, checked


def _consistency(consistency: EventualConsistency) -> list[tuple[object, str, object]]:
    from moto.ec2.models.instances import InstanceBackend
    from moto.ec2.responses.instances import InstanceResponse
    from moto.ec2.responses.tags import TagResponse

    create_tags = TagResponse.create_tags

    def describe(backend: Any, filters: Any = None) -> list[Any]:
        return consistency.described(backend.all_reservations(), filters, ())

    def describe_by_id(backend: Any, instance_ids: list[str], filters: Any = None) -> list[Any]:
        return consistency.described(backend.all_reservations(), filters, instance_ids)

    def describe_instances(response: Any) -> Any:
        response.error_on_dryrun()
        backend, filters = response.ec2_backend, response._filters_from_querystring()  # noqa: SLF001 - how moto's own read them
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - the same
        described = describe_by_id(backend, ids, filters) if ids else describe(backend, filters)
        token = str(response._get_param("NextToken") or "")  # noqa: SLF001 - the same
        max_results = int(response._get_param("MaxResults", _MAX_RESULTS))  # noqa: SLF001 - the same
        reservations, next_token = consistency.page(described, token=token, max_results=max_results)
        return ActionResult({"Reservations": reservations, "NextToken": next_token})

    def create_tags_if_known(response: Any) -> Any:
        backend = response.ec2_backend

        def launched_at(instance_id: str) -> datetime | None:
            instance = backend.get_instance_by_id(instance_id)
            return launch_time(instance) if instance is not None else None

        consistency.check_taggable(response._get_param("Resources", []), launched_at)  # noqa: SLF001 - how moto's own read them
        return create_tags(response)

    return [
        (InstanceBackend, "describe_instances", describe),
        (InstanceBackend, "get_reservations_by_instance_ids", describe_by_id),
        (InstanceResponse, "describe_instances", describe_instances),
        *(_if_known(consistency, f"{verb}_instances") for verb in ("start", "stop", "terminate")),
        (TagResponse, "create_tags", create_tags_if_known),
    ]


def _check_unprotected(instances: list[Any]) -> None:
    """Refuse the whole call, as EC2 does within a zone: moto terminates the instances before the protected one."""
    from moto.ec2.exceptions import OperationNotPermitted4

    for instance in instances:
        if instance.disable_api_termination is True:
            raise OperationNotPermitted4(instance.id)


def _listings(consistency: EventualConsistency, now: Callable[[], datetime]) -> list[tuple[object, str, object]]:
    from moto.ec2.responses.amis import AmisResponse
    from moto.ec2.responses.security_groups import SecurityGroups
    from moto.ec2.responses.subnets import Subnets

    def incomplete(owner: object, operation: str, ids: str, key: str) -> tuple[object, str, object]:
        describe = getattr(owner, operation)

        def listing(response: Any) -> Any:
            answer = describe(response)
            if response._get_param(ids, []):  # noqa: SLF001 - how moto's own read them
                return answer
            if operation == "describe_images":
                answer = ActionResult({key: amis.listed(response, answer.result[key], now())})
            return ActionResult({key: consistency.listed(answer.result[key])})

        return owner, operation, listing

    return [
        incomplete(Subnets, "describe_subnets", "SubnetIds", "Subnets"),
        incomplete(SecurityGroups, "describe_security_groups", "GroupIds", "SecurityGroups"),
        incomplete(AmisResponse, "describe_images", "ImageIds", "Images"),
    ]


def _iam() -> list[tuple[object, str, object]]:
    original = iam_models.IAMBackend.get_instance_profiles_for_role

    def get_instance_profiles_for_role(backend: Any, role_name: str) -> Any:
        # moto answers for a missing role as for one without profiles.
        backend.get_role(role_name)
        return original(backend, role_name)

    return [(iam_models.IAMBackend, "get_instance_profiles_for_role", get_instance_profiles_for_role)]


def _messaging(event_buses: Callable[[], EventBuses], now: Callable[[], datetime]) -> list[tuple[object, str, object]]:
    from moto.events.models import Rule
    from moto.sqs.models import SQSBackend

    def send_to_targets(rule: Any, event: Mapping[str, Any], transform_input: bool = True) -> None:  # noqa: FBT001, FBT002 - moto's own signature
        event_buses().deliver(rule, event, transform_input)

    send_message = SQSBackend.send_message

    def send_with_lineage(backend: Any, *args: Any, **kwargs: Any) -> Any:
        message = send_message(backend, *args, **kwargs)
        recursive_loops.attach(message)
        return message

    def is_retained(backend: Any, queue_name: str, message: Any) -> bool:
        # moto counts the queue's messages several times for each received message.
        retention = float(backend.queues[queue_name].message_retention_period)
        return bool(message.sent_timestamp / 1000 + retention > now().timestamp())

    return [
        (SQSBackend, "send_message", send_with_lineage),
        (SQSBackend, "is_message_valid_based_on_retention_period", is_retained),
        (Rule, "send_to_targets", send_to_targets),
    ]


def _alarms(now: Callable[[], datetime]) -> list[tuple[object, str, object]]:
    from moto.cloudwatch.models import CloudWatchBackend

    set_alarm_state = CloudWatchBackend.set_alarm_state

    def set_and_announce(backend: Any, alarm_name: str, reason: str, reason_data: str, state_value: str) -> None:
        # moto doesn't tell EventBridge.
        before = backend.alarms[alarm_name].state_value if alarm_name in backend.alarms else ""
        set_alarm_state(backend, alarm_name, reason, reason_data, state_value)
        if before == state_value:
            return
        detail = {"alarmName": alarm_name, "state": {"value": state_value}, "previousState": {"value": before}}
        backends.events(backend.region_name).put_events(
            [
                {
                    "Source": "aws.cloudwatch",
                    "DetailType": "CloudWatch Alarm State Change",
                    "Detail": json.dumps(detail),
                    "Resources": [backend.alarms[alarm_name].alarm_arn],
                    "Time": now().timestamp(),
                }
            ]
        )

    return [(CloudWatchBackend, "set_alarm_state", set_and_announce)]

"""The event bus, and the rules that deliver hints, schedules and EC2's events to queues and functions.

Every target has a retry policy and a dead-letter queue, because EventBridge drops events that it can't deliver.
Schedules are rules with a rate on the default bus, the only bus that supports them.

A queue's policy has one statement for all rules that send to it: a statement for each rule would exceed the limits of
SQS (20 statements, 10 conditions, 8,192 bytes). So rules have names of their own, with the cluster's prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import function_sizes
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from infra.options.stack_options import DEFAULT_BUS
from shared.api import buffer_signals
from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aws_cdk import aws_lambda as lambda_

    from infra.cluster.functions import Functions
    from infra.cluster.queues import Queues
    from infra.options.stack_options import StackOptions

MINUTE = Duration.minutes(1)
_HINT_AGE = Duration.minutes(5)  # several sweeps run in that time
_HINT_TRIES = 10
_SWEEP_AGE = Duration.minutes(1)  # then the next one runs
_SWEEP_TRIES = 2
_REFRESH_AGE = Duration.minutes(15)
_WARNING_AGE = Duration.minutes(5)  # the retention of the interruption queue
_WARNING_TRIES = 20

REFRESHES: Mapping[str, Duration] = {"types": Duration.hours(12), "prices": Duration.minutes(15)}
"""How often each part of the catalog is fetched."""
_COMMITMENTS_RATE = Duration.hours(1)

INTERRUPTIONS: Mapping[str, Mapping[str, Any]] = {
    "SpotInterruption": {"source": ["aws.ec2"], "detail_type": ["EC2 Spot Instance Interruption Warning"]},
    "Rebalance": {"source": ["aws.ec2"], "detail_type": ["EC2 Instance Rebalance Recommendation"]},
    "StateChange": {
        "source": ["aws.ec2"],
        "detail_type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["stopping", "stopped", "shutting-down", "terminated"]},
    },
    "ReservationInterruption": {
        "source": ["aws.ec2"],
        "detail_type": ["EC2 Capacity Reservation Instance Interruption Warning"],
    },
    "Health": {
        "source": ["aws.health"],
        "detail_type": ["AWS Health Event"],
        "detail": {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]},
    },
}
"""AWS's events about instances, by rule. EC2's events have no tags: every cluster gets those of the whole Region."""

NODE_GROUP_INTERRUPTIONS: Mapping[str, Mapping[str, Any]] = {
    "NodeGroupSpot": INTERRUPTIONS["SpotInterruption"],
    "NodeGroupHealth": INTERRUPTIONS["Health"],
    "NodeGroupTermination": {
        "source": ["aws.autoscaling"],
        "detail_type": ["EC2 Instance-terminate Lifecycle Action"],
    },
}
"""The events about instances of node groups, by rule. Auto Scaling replaces what EC2 recommends to replace."""


class Bus(Construct):
    """The cluster's own event bus, for hints from the relay and functions."""

    def __init__(self, scope: Construct, id_: str, *, cluster: str) -> None:
        super().__init__(scope, id_)
        # The relay's manifest needs the name, so it is set explicitly. Other resources use the bus's attributes instead
        # of Ref, which the local world's CloudFormation can't resolve for a bus.
        resource = events.CfnEventBus(
            self,
            "Bus",
            name=cluster_manifests.bus_name(cluster),
            description=f"Tenon's hints for EKS cluster {cluster}",
        )
        self.bus = events.EventBus.from_event_bus_attributes(
            self,
            "Reference",
            event_bus_name=resource.attr_name,
            event_bus_arn=resource.attr_arn,
            event_bus_policy=resource.attr_policy,
        )


class Events(Construct):
    """The EventBridge rules."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        options: StackOptions,
        bus: events.IEventBus,
        queues: Queues,
        functions: Functions,
        catalog: lambda_.IFunction,
    ) -> None:
        """``catalog`` is the catalog function, the cluster's or its fleet's."""
        super().__init__(scope, id_)
        self._catalog = catalog
        self._cluster = options.cluster
        self._bus = bus
        self._queues = queues
        self._functions = functions.by_name
        self._senders = functions.senders
        # The CDK's targets would add a statement for each rule to a queue of this stack, but not to an imported one.
        self._imported = {
            queue.node.path: sqs.Queue.from_queue_attributes(
                self, f"{queue.node.id}Reference", queue_arn=queue.queue_arn, fifo=queue.fifo
            )
            for queue in (*queues.by_function.values(), *queues.delayed.values(), queues.undelivered)
        }
        self._hints()
        self._schedules(options)
        self._interruptions(function_sizes.INTERRUPTION, INTERRUPTIONS)
        if function_sizes.NODE_GROUPS in self._functions:
            self._interruptions(function_sizes.NODE_GROUPS, NODE_GROUP_INTERRUPTIONS)
        if function_sizes.BUFFERS in self._functions:
            self._buffers(options)
        self._allow_rules(options)

    def _hints(self) -> None:
        provisioning = self._queue(function_sizes.PROVISIONER, age=_HINT_AGE, tries=_HINT_TRIES)
        lifecycle = self._function(function_sizes.LIFECYCLE, age=_HINT_AGE, tries=_HINT_TRIES)
        disruption = self._queue(function_sizes.DISRUPTION, age=_HINT_AGE, tries=_HINT_TRIES)
        termination = self._queue(function_sizes.TERMINATION, age=_HINT_AGE, tries=_HINT_TRIES)
        catalog = self._to_function(self._catalog, age=_HINT_AGE, tries=_HINT_TRIES)
        self._hint("PodsUnschedulable", [hints.PODS_UNSCHEDULABLE], hints.RELAY, provisioning)
        self._hint("NodePoolsChanged", [hints.NODE_POOLS_CHANGED], hints.RELAY, provisioning, lifecycle, disruption)
        self._hint("CapacityBuffers", [hints.CAPACITY_BUFFERS_CHANGED], hints.RELAY, provisioning, lifecycle)
        self._hint("NodesChanged", [hints.NODES_CHANGED], hints.RELAY, lifecycle)
        emptied = [hints.NODES_EMPTIED, hints.NODES_UNDERUTILIZED, hints.NODES_DELETED]
        self._hint("NodesEmptied", emptied, hints.RELAY, disruption)
        deleting = [hints.NODES_DELETING, hints.NODE_CLAIMS_DELETING, hints.DRAINS_UNBLOCKED]
        self._hint("Deleting", deleting, hints.RELAY, termination)
        self._hint("CatalogMissing", [hints.CATALOG_MISSING], hints.FUNCTIONS, catalog)

    def _hint(self, id_: str, detail_types: Sequence[str], source: str, *rule_targets: events.IRuleTarget) -> None:
        events.Rule(
            self,
            id_,
            rule_name=resource_names.rule(self._cluster, id_),
            description=f"{' or '.join(detail_types)}, cluster {self._cluster}",
            event_bus=self._bus,
            event_pattern=events.EventPattern(
                source=[source], detail_type=list(detail_types), detail={"cluster": [self._cluster]}
            ),
            targets=list(rule_targets),
        )

    def _schedules(self, options: StackOptions) -> None:
        # The sweep has its own message group: a hint whose function failed blocks its group for the visibility timeout,
        # but not the sweep, which completes its work within a minute.
        provisioning = self._queue(
            function_sizes.PROVISIONER, age=_SWEEP_AGE, tries=_SWEEP_TRIES, group=f"{self._cluster}-sweep"
        )
        # EC2's recommendations and announcements are kept on NodeClaims and followed when budgets allow.
        swept = (*function_sizes.SWEPT, function_sizes.NODE_GROUPS)
        functions = [
            self._function(name, age=_SWEEP_AGE, tries=_SWEEP_TRIES) for name in swept if name in self._functions
        ]
        # One rule, because EventBridge charges for events, not for targets. Five targets are its limit.
        self._schedule("Sweep", MINUTE, provisioning, *functions)
        if function_sizes.RELAY in self._functions:
            # An event that is delivered twice or late finds the watch held.
            self._schedule(
                "RelayCheck", MINUTE, self._function(function_sizes.RELAY, age=_SWEEP_AGE, tries=_SWEEP_TRIES)
            )
        for data, rate in refreshes(options).items() if function_sizes.CATALOG in self._functions else ():
            target = self._function(
                function_sizes.CATALOG,
                age=_REFRESH_AGE,
                tries=_HINT_TRIES,
                event=events.RuleTargetInput.from_object({"refresh": data}),
            )
            self._schedule(f"Refresh{data.capitalize()}", rate, target)

    def _schedule(self, id_: str, rate: Duration, *rule_targets: events.IRuleTarget) -> None:
        add_schedule(self, id_, rate, *rule_targets, owner=self._cluster, title=f"cluster {self._cluster}")

    def _interruptions(self, function: str, patterns: Mapping[str, Mapping[str, Any]]) -> None:
        for id_, pattern in patterns.items():
            events.Rule(
                self,
                id_,
                rule_name=resource_names.rule(self._cluster, id_),
                description=f"{pattern['detail_type'][0]}, for cluster {self._cluster}",
                event_pattern=events.EventPattern(**pattern),
                targets=[self._queue(function, age=_WARNING_AGE, tries=_WARNING_TRIES)],
            )

    def _buffers(self, options: StackOptions) -> None:
        """What CapacityBuffers follow: users' events; alarms and queues, which are read twice a minute."""
        # It also runs without queues and alarms: so it is warm when an event comes, and finds events that aren't named.
        sweep = self._queue(function_sizes.BUFFERS, age=_SWEEP_AGE, tries=_SWEEP_TRIES)
        second = [
            self._to(queue, age=_SWEEP_AGE, tries=_SWEEP_TRIES)
            for function, queue in self._queues.delayed.items()
            if function == function_sizes.BUFFERS
        ]
        self._schedule("BuffersSweep", MINUTE, sweep, *second)
        if options.buffer_alarms:
            changed = buffer_signals.ALARM_CHANGED
            pattern = events.EventPattern(
                source=[changed.source],
                detail_type=[changed.detail_type],
                detail={"alarmName": [*options.buffer_alarms]},
            )
            self._buffer_rule("BufferAlarms", pattern, None)
        bus = None
        if options.buffer_event_bus != DEFAULT_BUS:
            bus = events.EventBus.from_event_bus_name(self, "BufferEventBus", options.buffer_event_bus)
        by_source: dict[str, list[str]] = {}
        for event in options.buffer_events:
            by_source.setdefault(event.source, []).append(event.detail_type)
        for number, (source, detail_types) in enumerate(by_source.items()):
            pattern = events.EventPattern(source=[source], detail_type=detail_types)
            self._buffer_rule(f"BufferEvents{number}", pattern, bus)

    def _buffer_rule(self, id_: str, pattern: events.EventPattern, bus: events.IEventBus | None) -> None:
        # Without the detail: nothing here needs it, and it may be confidential.
        envelope = events.RuleTargetInput.from_object(
            {
                "source": events.EventField.from_path("$.source"),
                "detail-type": events.EventField.from_path("$.detail-type"),
                "time": events.EventField.from_path("$.time"),
            }
        )
        events.Rule(
            self,
            id_,
            rule_name=resource_names.rule(self._cluster, id_),
            description=f"What CapacityBuffers follow, for cluster {self._cluster}",
            event_bus=bus,
            event_pattern=pattern,
            targets=[self._queue(function_sizes.BUFFERS, age=_HINT_AGE, tries=_HINT_TRIES, event=envelope)],
        )

    def _queue(
        self,
        function: str,
        *,
        age: Duration,
        tries: int,
        group: str = "",
        event: events.RuleTargetInput | None = None,
    ) -> targets.SqsQueue:
        is_fifo = function == function_sizes.PROVISIONER
        group_id = (group or self._cluster) if is_fifo else None
        return self._to(self._queues.by_function[function], age=age, tries=tries, group_id=group_id, event=event)

    def _to(
        self,
        queue: sqs.IQueue,
        *,
        age: Duration,
        tries: int,
        group_id: str | None = None,
        event: events.RuleTargetInput | None = None,
    ) -> targets.SqsQueue:
        return targets.SqsQueue(
            self._imported[queue.node.path],
            message=event,
            message_group_id=group_id,
            dead_letter_queue=self._imported[self._queues.undelivered.node.path],
            max_event_age=age,
            retry_attempts=tries,
        )

    def _function(
        self, function: str, *, age: Duration, tries: int, event: events.RuleTargetInput | None = None
    ) -> targets.LambdaFunction:
        return self._to_function(self._functions[function], age=age, tries=tries, event=event)

    def _to_function(
        self, function: lambda_.IFunction, *, age: Duration, tries: int, event: events.RuleTargetInput | None = None
    ) -> targets.LambdaFunction:
        return targets.LambdaFunction(
            function,
            event=event,
            dead_letter_queue=self._imported[self._queues.undelivered.node.path],
            max_event_age=age,
            retry_attempts=tries,
        )

    def _allow_rules(self, options: StackOptions) -> None:
        """Let the cluster's rules send to the queues. The pattern of a bus has no other cluster's rules."""
        on_default_bus = f"{resource_names.rule_prefix(self._cluster)}*"
        on_own_bus = f"{cluster_manifests.bus_name(self._cluster)}/*"
        sources = {
            function_sizes.PROVISIONER: (on_default_bus, on_own_bus),
            function_sizes.INTERRUPTION: (on_default_bus,),
            function_sizes.TERMINATION: (on_own_bus,),
            function_sizes.DISRUPTION: (on_own_bus,),
        }
        on_users_bus: tuple[str, ...] = ()
        if options.buffer_events and options.buffer_event_bus != DEFAULT_BUS:
            on_users_bus = (f"{options.buffer_event_bus}/{on_default_bus}",)
        if self._queues.own_undelivered is not None:
            self._allow(self._queues.own_undelivered, (on_default_bus, on_own_bus, *on_users_bus))
        if function_sizes.BUFFERS in self._queues.by_function:
            sources[function_sizes.BUFFERS] = (on_default_bus, *on_users_bus)
        if function_sizes.NODE_GROUPS in self._queues.by_function:
            sources[function_sizes.NODE_GROUPS] = (on_default_bus,)
        for function, rules in sources.items():
            self._allow(self._queues.by_function[function], rules)
            self._deny_others(self._queues.by_function[function], rules, self._senders(function))
        for queue in self._queues.delayed.values():
            self._allow(queue, (on_default_bus,))
            self._deny_others(queue, (on_default_bus,), ())

    def _deny_others(self, queue: sqs.Queue, rules: Sequence[str], roles: Sequence[str]) -> None:
        """Let nobody else of the account send to the queue either, whatever their own policies allow.

        A negated condition holds where its key is missing ("IAM JSON policy elements: Condition operators", IAM User
        Guide): EventBridge's requests have no aws:PrincipalArn, those of roles no aws:SourceArn.
        """
        excepted: dict[str, dict[str, list[str]]] = {"ArnNotLike": {"aws:SourceArn": self._rule_arns(rules)}}
        if roles:
            excepted["ArnNotEquals"] = {"aws:PrincipalArn": list(roles)}
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="DenyOthers",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["sqs:SendMessage"],
                resources=[queue.queue_arn],
                conditions=excepted,
            )
        )

    def _rule_arns(self, rules: Sequence[str]) -> list[str]:
        stack = Stack.of(self)
        return [stack.format_arn(service="events", resource="rule", resource_name=rule) for rule in rules]

    def _allow(self, queue: sqs.Queue, rules: Sequence[str]) -> None:
        stack = Stack.of(self)
        arns = self._rule_arns(rules)
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowRules",
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[queue.queue_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {"aws:SourceArn": arns},
                },
            )
        )


def refreshes(options: StackOptions) -> Mapping[str, Duration]:
    """What the catalog function fetches, and how often."""
    return {**REFRESHES, "commitments": _COMMITMENTS_RATE} if options.commitments else REFRESHES


def add_schedule(
    scope: Construct, id_: str, rate: Duration, *rule_targets: events.IRuleTarget, owner: str, title: str
) -> None:
    """Send an event to the targets at this rate; ``owner`` is in the rule's name, ``title`` in its description."""
    events.Rule(
        scope,
        id_,
        rule_name=resource_names.rule(owner, id_),
        description=f"{id_}, {title}",
        schedule=events.Schedule.rate(rate),
        targets=list(rule_targets),
    )

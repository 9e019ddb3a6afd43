"""EventBridge's delivery of events to targets, and its schedules.

moto's delivery omits the account, delivers for disabled rules, matches every event with schedules, and can't invoke
functions. Patterns are matched by moto. Schedules run on the world's clock.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.aws import backends, dead_letters, input_transformer, recursive_loops, schedule_expressions
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.lambda_functions import LambdaFunctions


class Delivery(Struct, kw_only=True):
    """One event as it was delivered to one target."""

    at: datetime
    rule: str
    target_arn: str
    event: Mapping[str, Any]
    group_id: str = ""
    dead_letter_arn: str = ""


class EventBuses:
    """An actor for schedules; :meth:`deliver` replaces moto's ``Rule.send_to_targets``."""

    def __init__(self, *, region: str, now: Callable[[], datetime], functions: LambdaFunctions) -> None:
        self._region = region
        self._now = now
        self._functions = functions
        self._next_runs: dict[str, datetime] = {}
        self._observers: list[Callable[[Delivery], None]] = []
        self.deliveries: list[Delivery] = []

    def observe(self, observer: Callable[[Delivery], None]) -> None:
        """Notify the observer of every later delivery."""
        self._observers.append(observer)

    def deliver(self, rule: Any, original: Mapping[str, Any], _transform: bool = True) -> None:  # noqa: FBT001, FBT002 - moto's own signature
        """Send an event to the targets of a rule, if the rule is enabled and its pattern matches."""
        if rule.state != "ENABLED" or not rule.event_pattern.get_pattern():
            return
        if rule.event_pattern.matches_event(original):
            self._send(rule, self._envelope(original))

    def redeliver(self, delivery: Delivery) -> None:
        """Repeat a delivery: EventBridge delivers at least once."""
        self._to_target(delivery)

    def step(self, now: datetime) -> bool:
        """Run the schedules that are due. Each runs once, however far the clock was skipped."""
        did = False
        for rule in self._scheduled():
            run_at = self._next_runs.setdefault(rule.arn, schedule_expressions.after(rule.scheduled_expression, now))
            if run_at <= now:
                following = schedule_expressions.after(rule.scheduled_expression, run_at)
                self._next_runs[rule.arn] = (
                    following if following > now else schedule_expressions.after(rule.scheduled_expression, now)
                )
                self._send(rule, self._scheduled_event(rule, run_at))
                did = True
        return did

    def due(self) -> datetime | None:
        """When the next schedule runs."""
        for rule in self._scheduled():
            self._next_runs.setdefault(rule.arn, schedule_expressions.after(rule.scheduled_expression, self._now()))
        return min((self._next_runs[rule.arn] for rule in self._scheduled()), default=None)

    def _scheduled(self) -> list[Any]:
        return [
            rule
            for bus in backends.events(self._region).event_buses.values()
            for rule in bus.rules.values()
            if rule.scheduled_expression and rule.state == "ENABLED"
        ]

    def _scheduled_event(self, rule: Any, at: datetime) -> dict[str, Any]:
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": backends.ACCOUNT,
            "time": _iso(at),
            "region": self._region,
            "resources": [rule.arn],
            "detail": {},
        }

    def _envelope(self, original: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "version": "0",
            "id": original["id"],
            "detail-type": original["detail-type"],
            "source": original["source"],
            "account": backends.ACCOUNT,
            "time": _iso(datetime.fromtimestamp(float(original["time"]), UTC)),
            "region": self._region,
            "resources": list(original["resources"]),
            "detail": original["detail"],
        }

    def _send(self, rule: Any, event: Mapping[str, Any]) -> None:
        for target in rule.targets:
            self._to_target(
                Delivery(
                    at=self._now(),
                    rule=rule.name,
                    target_arn=target["Arn"],
                    event=_input(target, event),
                    group_id=str(target.get("SqsParameters", {}).get("MessageGroupId", "")),
                    dead_letter_arn=str(target.get("DeadLetterConfig", {}).get("Arn", "")),
                )
            )

    def _to_target(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        for observer in self._observers:
            observer(delivery)
        service, name = delivery.target_arn.split(":")[2], delivery.target_arn.split(":", 5)[5]
        detail_type = str(delivery.event.get("detail-type", delivery.rule))
        if service == "lambda":
            self._functions.enqueue(
                name.removeprefix("function:"),
                delivery.event,
                trigger=detail_type,
                dead_letter_arn=delivery.dead_letter_arn,
            )
        elif service == "sqs":
            self._to_queue(name, delivery)
        else:
            raise NotImplementedError(f"rule {delivery.rule}: targets of {service} are not supported here")

    def _to_queue(self, name: str, delivery: Delivery) -> None:
        backend = backends.sqs(self._region)
        body = json.dumps(delivery.event)
        if name in backend.queues:
            with recursive_loops.new_chain():
                backend.send_message(queue_name=name, message_body=body, group_id=delivery.group_id or None)
        elif delivery.dead_letter_arn:
            dead_letters.send(self._region, delivery.dead_letter_arn, body, reason=f"no queue {name}")


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _input(target: Mapping[str, Any], event: Mapping[str, Any]) -> Mapping[str, Any]:
    if "Input" in target:
        constant: Mapping[str, Any] = json.loads(target["Input"])
        return constant
    transformer = target.get("InputTransformer")
    if not transformer:
        return event
    transformed: Mapping[str, Any] = input_transformer.transformed(transformer, event)
    return transformed

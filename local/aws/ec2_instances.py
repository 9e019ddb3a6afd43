"""EC2 instances over time: their states, spot interruptions, and the events on EventBridge's default bus.

moto's instances change state at once. Here a change takes as many seconds of the world's clock as on EC2, and is sent
as an event, as EC2 does.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import InstanceState, StateReason

from local.aws import backends
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.aws.capacity_pools import CapacityPools
    from local.aws.capacity_reservations import CapacityReservations
    from local.aws.eventual_consistency import EventualConsistency

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = "pending", "running", "shutting-down", "terminated"
STOPPING, STOPPED = "stopping", "stopped"
_CODES = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48, STOPPING: 64, STOPPED: 80}
START_DURATION = timedelta(seconds=1)
RESTART_DURATION = timedelta(seconds=5)
"""From StartInstances to running: the instance gets a host, and its volumes are attached."""
STOP_DURATION = timedelta(seconds=8)
SPOT_NOTICE = timedelta(minutes=2)
INTERNAL_ERROR = "Client.InternalError", "Client error on launch"
INVALID_KMS_KEY = "Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state"
"""State reasons of instances that are terminated at boot: code and message. EC2 gives the second for a volume whose key
it may not use."""
NO_CAPACITY_AT_START = "Server.InsufficientInstanceCapacity", "Insufficient capacity to satisfy the instance request"
"""The state reason of an instance that is stopped again although StartInstances was answered."""
_SPOT_TERMINATION = "Server.SpotInstanceTermination", "Spot instance termination"
INTERRUPTION = "EC2 Spot Instance Interruption Warning"
RECOMMENDATION = "EC2 Instance Rebalance Recommendation"
"""The detail types of what EC2 announces."""
FULFILLED, RECLAIMED, TERMINATED_BY_USER = "fulfilled", "instance-terminated-no-capacity", "instance-terminated-by-user"
"""Status codes of spot requests (EC2 User Guide, "Spot request status"); EC2 sets the second with the warning."""


class _FailingStarts(MutableStruct):
    remaining: int
    reason: StateReason


class Ec2Instances:
    """An actor that carries out the state changes that are due."""

    def __init__(
        self,
        *,
        region: str,
        now: Callable[[], datetime],
        capacity: CapacityPools,
        reservations: CapacityReservations,
        consistency: EventualConsistency,
    ) -> None:
        self._region = region
        self._consistency = consistency
        self._now = now
        self._capacity = capacity
        self._reservations = reservations
        self._failing_starts: dict[tuple[str, str], _FailingStarts] = {}
        self._boot_failures: dict[str, StateReason] = {}
        self._failing_restarts = 0
        self.stop_duration = STOP_DURATION
        """How long instances are shutting down before they are terminated."""
        self._transitions: dict[str, tuple[datetime, str, Any]] = {}
        self._terminations: dict[str, datetime] = {}
        self._state_events: list[tuple[str, str]] = []
        self._observers: list[tuple[str, Callable[[Sequence[str]], None]]] = []
        self._request_status: dict[str, str] = {}
        self._status_delayed_until: dict[str, datetime] = {}
        self.spot_status_delay = timedelta()
        """How long DescribeSpotInstanceRequests still returns the status before an interruption."""
        self.all: list[Any] = []
        """Every launched instance, moto's objects in order of launch."""
        self.running: dict[str, Any] = {}
        """The instances in state running by id, moto's objects in order of launch or start."""
        self.stopped: set[str] = set()
        """The ids of the instances that are stopping, stopped or being started again."""
        self.reboots: Counter[str] = Counter()
        """How often instances were rebooted, by id."""

    def launched(self, instance: Any) -> None:
        """Start a new instance: pending now, running a second later; a failing one is terminated then.

        EC2 has answered CreateFleet by then, so the answer doesn't tell.
        """
        self.all.append(instance)
        if instance.lifecycle == "spot":
            self._request_status[instance.id] = FULFILLED
        if (
            end := self._reservations.terminated_at(getattr(instance, "capacity_reservation_id", None) or "")
        ) is not None:
            self._terminations[instance.id] = end
        self._change(instance, PENDING)
        if reason := self._boot_failure(instance):
            self._boot_failures[instance.id] = reason
            self._terminations[instance.id] = self._now() + START_DURATION
        else:
            self._transitions[instance.id] = (self._now() + START_DURATION, RUNNING, instance)

    def fail_starts(
        self, instance_type: str, zone: str, times: int, *, reason: tuple[str, str] = INTERNAL_ERROR
    ) -> None:
        """Terminate that many of the next instances before they run, with that state reason (code and message).

        "*" stands for any type or zone.
        """
        self._failing_starts[instance_type, zone] = _FailingStarts(times, _state_reason(*reason))

    def fail_restarts(self, times: int) -> None:
        """Stop that many of the next started instances again, for lack of capacity, after EC2's answer to the start."""
        self._failing_restarts = times

    def stop(self, instance: Any) -> InstanceState:
        """Replaces moto's ``Instance.stop``: stopping now, stopped some seconds later; its capacity is free then.

        Raises:
            EC2ClientError: the instance is pending or ends, or its spot request is a one-time request.
        """
        before = copy.copy(instance._state)  # noqa: SLF001 - moto offers no getter of both
        if instance.lifecycle == "spot":
            raise EC2ClientError(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time request.",
            )
        if before.name in (STOPPING, STOPPED):
            return before
        if before.name != RUNNING:
            raise _incorrect_state(instance, "stopped")
        instance.state_reason = _state_reason("Client.UserInitiatedShutdown", "User initiated shutdown")
        self._change(instance, STOPPING)
        self._transitions[instance.id] = (self._now() + self.stop_duration, STOPPED, instance)
        return before

    def reboot(self, instance: Any) -> None:
        """Replaces moto's ``Instance.reboot``: EC2 queues the request and answers; the state stays running.

        Requests for terminated instances are ignored (API reference, RebootInstances).

        Raises:
            EC2ClientError: the instance is pending or stopped.
        """
        if instance.state in (SHUTTING_DOWN, TERMINATED):
            return
        if instance.state != RUNNING:
            raise _incorrect_state(instance, "rebooted")
        self.reboots[instance.id] += 1

    def start(self, instances: Sequence[Any]) -> list[tuple[Any, InstanceState]]:
        """Replaces moto's ``start_instances``: all are pending now and running some seconds later, or none is.

        Raises:
            EC2ClientError: one is neither stopped nor running, or a capacity pool has too few instances.
        """
        before = [(instance, copy.copy(instance._state)) for instance in instances]  # noqa: SLF001 - as above
        stopped = [instance for instance, state in before if state.name == STOPPED]
        for instance, state in before:
            if state.name not in (STOPPED, PENDING, RUNNING):
                raise _incorrect_state(instance, "started")
        wanted = Counter(("on-demand", i.instance_type, i.availability_zone) for i in stopped)
        for pool, count in wanted.items():
            remaining = self._capacity.remaining(pool)
            if remaining is not None and remaining < count:
                raise EC2ClientError(
                    "InsufficientInstanceCapacity",
                    f"We currently do not have sufficient {pool[1]} capacity in the Availability Zone you requested "
                    f"({pool[2]}).",
                )
        for pool, count in wanted.items():
            self._capacity.take(pool, count)
        for instance in stopped:
            self._restart(instance)
        return before

    def _restart(self, instance: Any) -> None:
        instance.launch_time = self._now().replace(tzinfo=None)
        instance.state_reason = StateReason()
        self._change(instance, PENDING)
        fails = self._failing_restarts > 0
        self._failing_restarts -= fails
        self._transitions[instance.id] = (self._now() + RESTART_DURATION, STOPPED if fails else RUNNING, instance)

    def _boot_failure(self, instance: Any) -> StateReason | None:
        kind, zone = instance.instance_type, instance.availability_zone
        for key in ((kind, zone), (kind, "*"), ("*", zone), ("*", "*")):
            failing = self._failing_starts.get(key)
            if failing is not None and failing.remaining > 0:
                failing.remaining -= 1
                return failing.reason
        return None

    def terminate(self, original: Callable[[Any], Any], instance: Any) -> Any:
        """Replaces moto's ``Instance.terminate``: shutting down now, terminated some seconds later."""
        before = instance._state.name  # noqa: SLF001 - moto offers no setter
        if before in (SHUTTING_DOWN, TERMINATED):
            return InstanceState(before, _CODES[before])
        previous = original(instance)
        if before != STOPPED:
            self._release(instance)
        self._reservations.release(instance.id)
        if self._request_status.get(instance.id) == FULFILLED:
            self._request_status[instance.id] = TERMINATED_BY_USER
        self._terminations.pop(instance.id, None)
        if (reason := self._boot_failures.get(instance.id)) is not None:
            instance.state_reason = reason
            self._transitions.pop(instance.id, None)
            self._change(instance, TERMINATED)
            return previous
        self._change(instance, SHUTTING_DOWN)
        self._transitions[instance.id] = (self._now() + self.stop_duration, TERMINATED, instance)
        return previous

    def reclaim(self, instance_ids: list[str]) -> None:
        """Reclaim spot instances: terminated in two minutes, without an interruption warning."""
        now = self._now()
        for instance_id in instance_ids:
            if instance_id in self._request_status:
                self._request_status[instance_id] = RECLAIMED
                self._status_delayed_until[instance_id] = now + self.spot_status_delay
            self._terminations[instance_id] = now + SPOT_NOTICE

    def spot_requests(self, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """The entries of DescribeSpotInstanceRequests, one for each spot instance. Filter: instance-id."""
        if unknown := filters.keys() - {"instance-id"}:
            raise LookupError(f"DescribeSpotInstanceRequests by {sorted(unknown)} is not supported here")
        ids = filters.get("instance-id", self._request_status)
        return [self._request(instance_id) for instance_id in ids if instance_id in self._request_status]

    def _request(self, instance_id: str) -> dict[str, Any]:
        code = self._request_status[instance_id]
        if code == RECLAIMED and self._now() < self._status_delayed_until[instance_id]:
            code = FULFILLED
        return {
            "SpotInstanceRequestId": instance_id.replace("i-", "sir-", 1),
            "InstanceId": instance_id,
            "State": "active" if code == FULFILLED else "closed",
            "Status": {"Code": code},
            "Type": "one-time",
        }

    def interrupt(self, instance_ids: list[str]) -> None:
        """Interrupt spot instances: the warning now, the termination in two minutes."""
        self.reclaim(instance_ids)
        self._announce(INTERRUPTION, instance_ids)
        for instance_id in instance_ids:
            self._put(INTERRUPTION, instance_id, {"instance-id": instance_id, "instance-action": "terminate"})

    def recommend_rebalance(self, instance_ids: list[str]) -> None:
        """Send rebalance recommendations for spot instances."""
        self._announce(RECOMMENDATION, instance_ids)
        for instance_id in instance_ids:
            self._put(RECOMMENDATION, instance_id, {"instance-id": instance_id})

    def observe(self, announcement: str, observer: Callable[[Sequence[str]], None]) -> None:
        """Notify an AWS service of the instances of every later announcement of this detail type."""
        self._observers.append((announcement, observer))

    def _announce(self, announcement: str, instance_ids: Sequence[str]) -> None:
        for observed, observer in self._observers:
            if observed == announcement:
                observer(instance_ids)

    def step(self, now: datetime) -> bool:
        """Carry out the changes that are due."""
        events, self._state_events = self._state_events, []
        for instance_id, state in events:
            self._put(
                "EC2 Instance State-change Notification", instance_id, {"instance-id": instance_id, "state": state}
            )
        due = [item for item in self._transitions.values() if item[0] <= now]
        for _, state, instance in due:
            del self._transitions[instance.id]
            if state == STOPPED:
                self._release(instance)
                if instance.state == PENDING:
                    instance.state_reason = _state_reason(*NO_CAPACITY_AT_START)
            self._change(instance, state)
        terminations = [instance_id for instance_id, at in self._terminations.items() if at <= now]
        for instance_id in terminations:
            del self._terminations[instance_id]
            ((instance, _),) = backends.ec2(self._region).terminate_instances([instance_id])
            if self._request_status.get(instance_id) == RECLAIMED:
                instance.state_reason = _state_reason(*_SPOT_TERMINATION)
        return bool(events or due or terminations)

    def due(self) -> datetime | None:
        """When the next state changes."""
        if self._state_events:
            return self._now()
        times = [item[0] for item in self._transitions.values()] + list(self._terminations.values())
        return min(times, default=None)

    def _release(self, instance: Any) -> None:
        kind = "spot" if instance.lifecycle == "spot" else "on-demand"
        self._capacity.release((kind, instance.instance_type, instance.availability_zone))

    def _change(self, instance: Any, state: str) -> None:
        instance._state = InstanceState(state, _CODES[state])  # noqa: SLF001 - moto offers no setter
        self._consistency.changed(instance, instance._state)  # noqa: SLF001 - the same
        if state == RUNNING:
            self.running[instance.id] = instance
        else:
            self.running.pop(instance.id, None)
        if state in (STOPPING, STOPPED):
            self.stopped.add(instance.id)
        elif state != PENDING:
            self.stopped.discard(instance.id)
        # Sent in the next step: the caller gets its response first, as on EC2.
        self._state_events.append((instance.id, state))

    def _put(self, detail_type: str, instance_id: str, detail: dict[str, str]) -> None:
        backends.events(self._region).put_events(
            [
                {
                    "Source": "aws.ec2",
                    "DetailType": detail_type,
                    "Detail": json.dumps(detail),
                    "Resources": [f"arn:aws:ec2:{self._region}:{backends.ACCOUNT}:instance/{instance_id}"],
                    "Time": self._now().timestamp(),
                }
            ]
        )


def _incorrect_state(instance: Any, action: str) -> EC2ClientError:
    text = f"The instance '{instance.id}' is not in a state from which it can be {action}."
    return EC2ClientError("IncorrectInstanceState", text)


def _state_reason(code: str, message: str) -> StateReason:
    """EC2 repeats the code in the message."""
    return StateReason(f"{code}: {message}", code)

"""Ec2Instances over time: pending, running, shutting down, gone; and what EventBridge is told of it.

moto's change state at once. Here they take the seconds that real ones do, on the world's clock, and each change is put
on the default bus as EC2 does, so that the interruption rules see what they would see.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instances import InstanceState

from local.aws import backends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.aws.capacity_pools import CapacityPools
    from local.aws.capacity_reservations import CapacityReservations

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED = "pending", "running", "shutting-down", "terminated"
_CODES = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48}
STARTS_IN = timedelta(seconds=1)
STOPS_IN = timedelta(seconds=8)
SPOT_NOTICE = timedelta(minutes=2)
FULFILLED, TAKEN, ENDED = "fulfilled", "instance-terminated-no-capacity", "instance-terminated-by-user"
"""Status codes of spot requests (EC2 User Guide, "Spot request status"): EC2 sets the second with its warning."""


class Ec2Instances:
    """An actor: carries the state changes that are due."""

    def __init__(
        self, *, region: str, now: Callable[[], datetime], capacity: CapacityPools, reservations: CapacityReservations
    ) -> None:
        self._region = region
        self._now = now
        self._capacity = capacity
        self._reservations = reservations
        self._broken: dict[tuple[str, str], int] = {}
        self._next: dict[str, tuple[datetime, str, Any]] = {}
        self._doomed: dict[str, datetime] = {}
        self._said: list[tuple[str, str]] = []
        self._requests: dict[str, str] = {}
        self._lagging: dict[str, datetime] = {}
        self.spot_status_delay = timedelta()
        """How long DescribeSpotInstanceRequests goes on to answer what was so before a warning."""
        self.all: list[Any] = []
        """Every instance that was launched, moto's own, in order of launch."""
        self.running: dict[str, Any] = {}
        """moto's instances by id, from running until they begin to stop, in order of launch."""

    def launched(self, instance: Any) -> None:  # noqa: ANN401 - moto's instance
        """A new instance: pending now, running in a second; one that can't start begins to stop then."""
        self.all.append(instance)
        if instance.lifecycle == "spot":
            self._requests[instance.id] = FULFILLED
        self._change(instance, PENDING)
        if self._breaks(instance):
            self._doomed[instance.id] = self._now() + STARTS_IN
        else:
            self._next[instance.id] = (self._now() + STARTS_IN, RUNNING, instance)

    def fail_starts(self, instance_type: str, zone: str, times: int) -> None:
        """Have so many of the next instances end before they run, as with a volume's key that EC2 may not use.

        "*" stands for any type or zone.
        """
        self._broken[instance_type, zone] = times

    def _breaks(self, instance: Any) -> bool:  # noqa: ANN401 - moto's instance
        kind, zone = instance.instance_type, instance.availability_zone
        for key in ((kind, zone), (kind, "*"), ("*", zone), ("*", "*")):
            if self._broken.get(key, 0) > 0:
                self._broken[key] -= 1
                return True
        return False

    def terminate(self, original: Callable[[Any], Any], instance: Any) -> Any:  # noqa: ANN401 - moto's
        """In place of moto's ``Instance.terminate``: shutting down now, terminated some seconds later."""
        before = instance._state.name  # noqa: SLF001 - moto offers no setter
        if before in (SHUTTING_DOWN, TERMINATED):
            return InstanceState(before, _CODES[before])
        previous = original(instance)
        kind = "spot" if instance.lifecycle == "spot" else "on-demand"
        self._capacity.give_back((kind, instance.instance_type, instance.availability_zone))
        self._reservations.release(instance.id)
        if self._requests.get(instance.id) == FULFILLED:
            self._requests[instance.id] = ENDED
        self._change(instance, SHUTTING_DOWN)
        self._doomed.pop(instance.id, None)
        self._next[instance.id] = (self._now() + STOPS_IN, TERMINATED, instance)
        return previous

    def reclaim(self, instance_ids: list[str]) -> None:
        """EC2 wants its spot instances back, and ends them in two minutes; who warns of it, if anybody, is not said."""
        now = self._now()
        for instance_id in instance_ids:
            if instance_id in self._requests:
                self._requests[instance_id] = TAKEN
                self._lagging[instance_id] = now + self.spot_status_delay
            self._doomed[instance_id] = now + SPOT_NOTICE

    def spot_requests(self, filters: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        """DescribeSpotInstanceRequests' entries: one request an instance, as fleets make them. Filter: instance-id."""
        if unknown := filters.keys() - {"instance-id"}:
            raise LookupError(f"DescribeSpotInstanceRequests by {sorted(unknown)} is not answered here")
        wanted = filters.get("instance-id", self._requests)
        return [self._request(i) for i in wanted if i in self._requests]

    def _request(self, instance_id: str) -> dict[str, Any]:
        code = self._requests[instance_id]
        if code == TAKEN and self._now() < self._lagging[instance_id]:
            code = FULFILLED
        return {
            "SpotInstanceRequestId": instance_id.replace("i-", "sir-", 1),
            "InstanceId": instance_id,
            "State": "active" if code == FULFILLED else "closed",
            "Status": {"Code": code},
            "Type": "one-time",
        }

    def interrupt(self, instance_ids: list[str]) -> None:
        """EC2 wants its spot instances back: the warning now, the end in two minutes."""
        self.reclaim(instance_ids)
        for instance_id in instance_ids:
            self._put(
                "EC2 Spot Instance Interruption Warning",
                instance_id,
                {"instance-id": instance_id, "instance-action": "terminate"},
            )

    def recommend_rebalance(self, instance_ids: list[str]) -> None:
        """EC2 says that spot instances are at elevated risk."""
        for instance_id in instance_ids:
            self._put("EC2 Instance Rebalance Recommendation", instance_id, {"instance-id": instance_id})

    def step(self, now: datetime) -> bool:
        """Carry out what is due."""
        said, self._said = self._said, []
        for instance_id, state in said:
            self._put(
                "EC2 Instance State-change Notification", instance_id, {"instance-id": instance_id, "state": state}
            )
        due = [item for item in self._next.values() if item[0] <= now]
        for _, state, instance in due:
            del self._next[instance.id]
            self._change(instance, state)
        doomed = [instance_id for instance_id, at in self._doomed.items() if at <= now]
        for instance_id in doomed:
            del self._doomed[instance_id]
            backends.ec2(self._region).terminate_instances([instance_id])
        return bool(said or due or doomed)

    def due(self) -> datetime | None:
        """The next change of state."""
        if self._said:
            return self._now()
        moments = [item[0] for item in self._next.values()] + list(self._doomed.values())
        return min(moments, default=None)

    def _change(self, instance: Any, state: str) -> None:  # noqa: ANN401 - moto's instance
        instance._state = InstanceState(state, _CODES[state])  # noqa: SLF001 - moto offers no setter
        if state == RUNNING:
            self.running[instance.id] = instance
        else:
            self.running.pop(instance.id, None)
        # Told in the next step: whoever made the call has its answer first, as with EC2.
        self._said.append((instance.id, state))

    def _put(self, about: str, instance_id: str, detail: dict[str, str]) -> None:
        backends.events(self._region).put_events(
            [
                {
                    "Source": "aws.ec2",
                    "DetailType": about,
                    "Detail": json.dumps(detail),
                    "Resources": [f"arn:aws:ec2:{self._region}:{backends.ACCOUNT}:instance/{instance_id}"],
                    "Time": self._now().timestamp(),
                }
            ]
        )

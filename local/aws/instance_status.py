"""EC2's status checks and scheduled events of instances, as DescribeInstanceStatus answers; moto's are always passed.

Checks fail and events are scheduled on command. The answer is as strict as EC2's about filters and pages: filters of
different names must all match, MaxResults is 5 to 1000, and a page may be empty while others follow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.ec2_instances import Ec2Instances
    from local.aws.interceptor import RawResponse

Check = Literal["system", "instance", "attached-ebs"]
_CHECKS: Mapping[Check, str] = {
    "system": "systemStatus",
    "instance": "instanceStatus",
    "attached-ebs": "attachedEbsStatus",
}
_CODES = frozenset({"instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"})
_LEAST_RESULTS, _MOST_RESULTS = 5, 1000


class ScheduledEvent(MutableStruct, kw_only=True):
    """A scheduled event of an instance. Once it is over, EC2's description starts with [Completed] or [Canceled]."""

    code: str
    not_before: datetime
    description: str


class InstanceStatuses:
    """The failing checks and scheduled events; tests change them while the world runs."""

    def __init__(self, instances: Ec2Instances, *, now: Callable[[], datetime]) -> None:
        self._instances = instances
        self._now = now
        self._failing: dict[str, dict[Check, datetime]] = {}
        self._events: dict[str, list[ScheduledEvent]] = {}
        self.first_page_is_empty = False
        """Whether an answer begins with an empty page, after which others follow."""

    def fail(self, instance_id: str, check: Check = "system") -> None:
        """Let a check of the instance fail from now on."""
        self._failing.setdefault(instance_id, {})[check] = self._now()

    def recover(self, instance_id: str) -> None:
        """Let all checks of the instance pass again."""
        self._failing.pop(instance_id, None)

    def schedule(self, instance_id: str, code: str, not_before: datetime) -> ScheduledEvent:
        """Schedule an event of the instance."""
        event = ScheduledEvent(code=code, not_before=not_before, description=f"the instance has {code}")
        self._events.setdefault(instance_id, []).append(event)
        return event

    def describe(self, body: bytes) -> RawResponse:
        """DescribeInstanceStatus: the running instances that match all filters."""
        query = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        filters = _filters(query)
        unknown = filters.keys() - {"event.code", *(f"{check}-status.status" for check in _CHECKS)}
        if unknown:
            return _error("InvalidParameterValue", f"The filter '{min(unknown)}' is invalid")
        if filters.get("event.code", set()) - _CODES:
            return _error("InvalidParameterValue", "Invalid value for filter event.code")
        size = int(query.get("MaxResults", _MOST_RESULTS))
        if not _LEAST_RESULTS <= size <= _MOST_RESULTS:
            return _error("InvalidParameterValue", "Value for parameter maxResults is invalid: 5 to 1000")
        if "MaxResults" in query and any(key.startswith("InstanceId") for key in query):
            return _error("InvalidParameterCombination", "MaxResults and InstanceIds can't be combined")
        matching = [i for i in self._instances.running.values() if self._matches(i.id, filters)]
        is_first = "NextToken" not in query
        start = int(query.get("NextToken", "0"))
        end = start if is_first and self.first_page_is_empty else start + size
        items = "".join(self._item(instance) for instance in matching[start:end])
        token = f"<nextToken>{end}</nextToken>" if end < len(matching) else ""
        answer = f"<instanceStatusSet>{items}</instanceStatusSet>{token}"
        return 200, {}, f"<DescribeInstanceStatusResponse>{answer}</DescribeInstanceStatusResponse>".encode()

    def _matches(self, instance_id: str, filters: Mapping[str, set[str]]) -> bool:
        for name, values in filters.items():
            if name == "event.code":
                if not values & {event.code for event in self._events.get(instance_id, ())}:
                    return False
            elif self._status(instance_id, name) not in values:
                return False
        return True

    def _status(self, instance_id: str, name: str) -> str:
        failing = self._failing.get(instance_id, {})
        return "impaired" if any(f"{check}-status.status" == name for check in failing) else "ok"

    def _item(self, instance: Any) -> str:
        failing = self._failing.get(instance.id, {})
        checks = "".join(_summary(element, failing.get(check)) for check, element in _CHECKS.items())
        events = "".join(
            f"<item><instanceEventId>instance-event-{number:017x}</instanceEventId><code>{event.code}</code>"
            f"<description>{escape(event.description)}</description>"
            f"<notBefore>{_timestamp(event.not_before)}</notBefore></item>"
            for number, event in enumerate(self._events.get(instance.id, ()))
        )
        return (
            f"<item><instanceId>{instance.id}</instanceId>"
            f"<availabilityZone>{instance.availability_zone}</availabilityZone>"
            "<instanceState><code>16</code><name>running</name></instanceState>"
            f"{checks}{f'<eventsSet>{events}</eventsSet>' if events else ''}</item>"
        )


def _summary(element: str, since: datetime | None) -> str:
    status, check = ("ok", "passed") if since is None else ("impaired", "failed")
    impaired = f"<impairedSince>{_timestamp(since)}</impairedSince>" if since is not None else ""
    details = f"<details><item><name>reachability</name><status>{check}</status>{impaired}</item></details>"
    return f"<{element}><status>{status}</status>{details}</{element}>"


def _filters(query: Mapping[str, str]) -> dict[str, set[str]]:
    """The filters by name, with their values."""
    names = {key.split(".")[1]: value for key, value in query.items() if key.endswith(".Name")}
    filters: dict[str, set[str]] = {}
    for key, value in query.items():
        parts = key.split(".")
        if parts[0] == "Filter" and parts[2] == "Value":
            filters.setdefault(names[parts[1]], set()).add(value)
    return filters


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _error(code: str, message: str) -> RawResponse:
    error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return 400, {}, f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>".encode()

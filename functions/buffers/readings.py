"""Reads the queues and alarms that buffers follow. What can't be read says why, and the others are read.

Only what the deployment names is read: the role allows no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from shared.base.aws import error_code
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_sqs import SQSClient

    from functions.buffers.settings import BufferSettings
    from shared.api.buffer_signals import Signals

_ALARM_STATE = "ALARM"
_ALARMS_OF_A_CALL = 100
"""DescribeAlarms takes and returns no more names at once."""
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
NOT_NAMED = "{} is not named at deployment (-c {}=…)"


class Source(NamedTuple):
    """A queue, alarm or event by its name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


class Readings(Struct, kw_only=True):
    """The visible messages of queues, whether alarms' states are ALARM, and a sentence for each unknown source."""

    messages: Mapping[str, int]
    alarms: Mapping[str, bool]
    unknown: Mapping[Source, str]


class SourceReader(Struct, kw_only=True):
    """Reads queues and alarms; ``cache`` is the warm process's, which keeps the URLs of queues."""

    settings: BufferSettings
    sqs: Callable[[], SQSClient]
    cloudwatch: Callable[[], CloudWatchClient]
    cache: MutableMapping[str, Any]

    def read(self, followed: Sequence[Signals]) -> Readings:
        """The readings of all queues and alarms that buffers follow."""
        unknown: dict[Source, str] = {}
        messages: dict[str, int] = {}
        named_queues, named_alarms, named_events = self.settings.queues, self.settings.alarms, self.settings.events
        for name in sorted({s.queue for s in followed if s.queue}):
            source = Source("queue", name)
            if name not in named_queues:
                unknown[source] = NOT_NAMED.format(source, "bufferQueues")
                continue
            try:
                messages[name] = self._messages(name)
            except (BotoCoreError, ClientError) as error:
                unknown[source] = _why(source, error)
        alarm_names = {s.alarm for s in followed if s.alarm}
        for name in alarm_names - named_alarms:
            source = Source("alarm", name)
            unknown[source] = NOT_NAMED.format(source, "bufferAlarms")
        for missing in {event for s in followed for event in s.events} - named_events:
            source = Source("event", str(missing))
            unknown[source] = NOT_NAMED.format(source, "bufferEvents")
        return Readings(messages=messages, alarms=self._alarms(alarm_names & named_alarms, unknown), unknown=unknown)

    def _messages(self, name: str) -> int:
        sqs, key = self.sqs(), f"buffers:url:{name}"
        if key not in self.cache:
            self.cache[key] = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        answer = sqs.get_queue_attributes(QueueUrl=self.cache[key], AttributeNames=["ApproximateNumberOfMessages"])
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    def _alarms(self, names: Iterable[str], unknown: dict[Source, str]) -> dict[str, bool]:
        """Whether each alarm's state is ALARM. DescribeAlarms leaves out those that don't exist."""
        states: dict[str, bool] = {}
        for part in _parts(sorted(names)):
            try:
                described = self.cloudwatch().describe_alarms(AlarmNames=part, MaxRecords=_ALARMS_OF_A_CALL)
            except (BotoCoreError, ClientError) as error:
                sources = [Source("alarm", name) for name in part]
                unknown.update((source, _why(source, error)) for source in sources)
                continue
            states |= {alarm["AlarmName"]: alarm["StateValue"] == _ALARM_STATE for alarm in described["MetricAlarms"]}
            for name in part:
                if name not in states:
                    source = Source("alarm", name)
                    unknown[source] = f"there is no {source} of a metric in this account and Region"
        return states


def _parts(names: list[str]) -> Iterator[list[str]]:
    return (names[start : start + _ALARMS_OF_A_CALL] for start in range(0, len(names), _ALARMS_OF_A_CALL))


def _why(source: Source, error: BotoCoreError | ClientError) -> str:
    code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
    if code in _NO_QUEUE:
        return f"there is no {source} in this account and Region"
    return f"{source} can't be read: {code}"

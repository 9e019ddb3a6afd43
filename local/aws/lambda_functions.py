"""Lambda on this machine: the handlers of the template, invoked as Lambda invokes them, and a record of each time.

An execution environment serves one invocation at a time and keeps its warm state; a crash throws it away. What came
through EventBridge is asynchronous: it is tried again after one and two minutes, and then dead-lettered. What a
function prints, its logs and its metrics, is kept in the record.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import io
import json
import sys
import threading
import time
import traceback
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from local.aws import backends
from local.aws.calls import CALLER
from local.faults import Crash
from shared import runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.stack import DeployedFunction
    from local.faults import Faults

_RETRY_AFTER = (timedelta(minutes=1), timedelta(minutes=2))
"""Lambda's own retries of an asynchronous invocation that failed."""
_OUTPUT: contextvars.ContextVar[io.StringIO | None] = contextvars.ContextVar("output", default=None)


class _Output:
    """Stands for standard output while functions run, and keeps what each prints apart, whatever thread it runs in.

    It is put in place for each invocation, because test runners exchange standard output meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._outside: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._outside = sys.stdout
                sys.stdout = self
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.stdout = self._outside

    def write(self, text: str) -> int:
        return int(self._target().write(text))

    def flush(self) -> None:
        self._target().flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a stream has
        return getattr(self._target(), name)

    def _target(self) -> Any:  # noqa: ANN401 - a text stream of any kind
        kept = _OUTPUT.get()
        if kept is not None:
            return kept
        # A logger that a function made keeps this stream for good: outside invocations it is standard output.
        return self._outside if self._users else sys.stdout


_output = _Output()


class LambdaContext:
    """What Lambda gives a handler beside the event."""

    def __init__(self, function: DeployedFunction, *, request_id: str, remaining: Callable[[], float]) -> None:
        self.function_name = function.name
        self.function_version = "$LATEST"
        self.memory_limit_in_mb = function.memory_mib
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:{backends.ACCOUNT}:function:{function.name}"
        self.aws_request_id = request_id
        self.log_group_name = f"/aws/lambda/{function.name}"
        self.log_stream_name = "local"
        self._remaining = remaining

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds of cluster time until the function's timeout."""
        return max(0, int(self._remaining() * 1000))


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One invocation as it went. ``latency`` in seconds of real time; ``result`` is what the handler returned."""

    function: str
    trigger: str
    at: datetime
    latency: float
    request_id: str
    ok: bool
    error: str = ""
    traceback: str = ""
    result: Any = None
    event: Any = None
    cold: bool = False
    output: str = ""

    @property
    def logs(self) -> tuple[dict[str, Any], ...]:
        """The structured lines it logged; metrics aside."""
        return tuple(line for line in self._lines() if "_aws" not in line)

    @property
    def metrics(self) -> tuple[dict[str, Any], ...]:
        """The metrics it put out, in CloudWatch's embedded format."""
        return tuple(line for line in self._lines() if "_aws" in line)

    def _lines(self) -> list[dict[str, Any]]:
        found = []
        for text in self.output.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                line = {"message": text}
            found.append(line if isinstance(line, dict) else {"message": text})
        return found


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """An asynchronous invocation that is due."""

    function: str
    event: Any
    trigger: str
    at: datetime
    attempt: int = 0
    dead_letter_arn: str = ""


@dataclass
class _Environment:
    warm: dict[str, Any] = field(default_factory=dict)
    used: bool = False


class LambdaFunctions:
    """An actor: runs the asynchronous invocations that are due; queues and tests start others by :meth:`start`."""

    def __init__(
        self,
        functions: Mapping[str, DeployedFunction],
        *,
        region: str,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        faults: Faults,
        concurrency: int = 1,
    ) -> None:
        self._functions = {function.name: function for function in functions.values()}
        self._region = region
        self._now = now
        self._sleep = sleep
        self._faults = faults
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="function") if concurrency > 1 else None
        self._lock = threading.Lock()
        self._idle: defaultdict[str, list[_Environment]] = defaultdict(list)
        self._running: defaultdict[str, int] = defaultdict(int)
        self._waiting: list[_Waiting] = []
        self._broken: list[BaseException] = []
        self._observers: list[Callable[[Invocation], None]] = []
        self.invocations: list[Invocation] = []
        self.dead: list[tuple[str, Any]] = []

    @property
    def running(self) -> int:
        """How many invocations are under way."""
        with self._lock:
            return sum(self._running.values())

    def observe(self, observer: Callable[[Invocation], None]) -> None:
        """Have every later invocation told to the observer when it ends, in the thread that it ran in."""
        self._observers.append(observer)

    def named(self, function: str) -> DeployedFunction:
        """A function by its physical name, logical id or folder; KeyError if there is none."""
        for candidate in self._functions.values():
            if function in (candidate.name, candidate.logical_id, candidate.short_name):
                return candidate
        raise KeyError(function)

    def may_start(self, function: str) -> bool:
        """Whether there is an execution environment to be had: reserved concurrency, and this world's own limit."""
        name = self.named(function).name
        reserved = self._functions[name].reserved_concurrency
        with self._lock:
            free = sum(self._running.values()) < self._concurrency
            return free and (reserved is None or self._running[name] < reserved)

    def start(self, function: str, event: Any, *, trigger: str, done: Callable[[Invocation], None]) -> None:  # noqa: ANN401 - an event is any JSON
        """Invoke, in this thread or (concurrency above one) in another; ``done`` is called there with the record."""
        name = self.named(function).name
        with self._lock:
            self._running[name] += 1
        if self._pool is None:
            self._run(name, event, trigger, done)
        else:
            self._pool.submit(self._run, name, event, trigger, done).add_done_callback(self._notice)

    def invoke(self, function: str, event: Any, *, trigger: str = "test") -> Invocation:  # noqa: ANN401 - the same
        """Invoke synchronously and return the record."""
        records: list[Invocation] = []
        finished = threading.Event()

        def done(record: Invocation) -> None:
            records.append(record)
            finished.set()

        self.start(function, event, trigger=trigger, done=done)
        finished.wait()
        return records[0]

    def enqueue(self, function: str, event: Any, *, trigger: str, dead_letter_arn: str = "") -> None:  # noqa: ANN401 - the same
        """Invoke asynchronously, as EventBridge does; what keeps failing goes to the dead-letter queue."""
        waiting = _Waiting(
            function=self.named(function).name,
            event=event,
            trigger=trigger,
            at=self._now(),
            dead_letter_arn=dead_letter_arn,
        )
        with self._lock:
            self._waiting.append(waiting)

    def step(self, now: datetime) -> bool:
        """Start what is due and may run."""
        if self._broken:
            raise self._broken[0]
        did = False
        for waiting in self._due(now):
            if not self.may_start(waiting.function):
                continue
            with self._lock:
                self._waiting.remove(waiting)
            self.start(
                waiting.function,
                waiting.event,
                trigger=waiting.trigger,
                done=lambda record, waiting=waiting: self._settle(waiting, record),  # type: ignore[misc]  # a bound default
            )
            did = True
        return did

    def due(self) -> datetime | None:
        """When the next asynchronous invocation is due."""
        with self._lock:
            return min((waiting.at for waiting in self._waiting), default=None)

    def close(self) -> None:
        """Wait for what runs and stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _due(self, now: datetime) -> list[_Waiting]:
        with self._lock:
            return sorted((item for item in self._waiting if item.at <= now), key=lambda item: item.at)

    def _settle(self, waiting: _Waiting, record: Invocation) -> None:
        if record.ok:
            return
        if waiting.attempt < len(_RETRY_AFTER):
            again = _Waiting(
                function=waiting.function,
                event=waiting.event,
                trigger=waiting.trigger,
                at=self._now() + _RETRY_AFTER[waiting.attempt],
                attempt=waiting.attempt + 1,
                dead_letter_arn=waiting.dead_letter_arn,
            )
            with self._lock:
                self._waiting.append(again)
            return
        self.dead.append((waiting.function, waiting.event))
        target = self._functions[waiting.function].dead_letter_arn or waiting.dead_letter_arn
        if target:
            send_dead_letter(self._region, target, json.dumps(waiting.event), reason=record.error)

    def _notice(self, future: Any) -> None:  # noqa: ANN401 - concurrent.futures.Future of nothing
        error = future.exception()
        if error is not None:
            self._broken.append(error)

    def _run(self, name: str, event: Any, trigger: str, done: Callable[[Invocation], None]) -> None:  # noqa: ANN401 - the same
        with self._lock:
            environment = self._idle[name].pop() if self._idle[name] else _Environment()
        try:
            # A context of its own: what a handler binds (its host, its caller's name) ends with it.
            record = contextvars.copy_context().run(self._handle, self._functions[name], environment, event, trigger)
            if record.ok or not record.error.startswith("Crash"):
                with self._lock:
                    self._idle[name].append(environment)
            self.invocations.append(record)
            for observer in self._observers:
                observer(record)
            done(record)
        finally:
            with self._lock:
                self._running[name] -= 1

    def _handle(self, function: DeployedFunction, environment: _Environment, event: Any, trigger: str) -> Invocation:  # noqa: ANN401 - the same
        at = self._now()
        deadline = at + timedelta(seconds=function.timeout)
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{function.name}/{len(self.invocations)}/{at.isoformat()}"))
        context = LambdaContext(
            function,
            request_id=request_id,
            remaining=lambda: (deadline - self._now()).total_seconds(),  # noqa: PLW0108 - asked each time anew
        )
        own = runtime.Runtime(environ=function.environ, now=self._now, sleep=self._sleep, cache=environment.warm)
        output = io.StringIO()
        _OUTPUT.set(output)
        CALLER.set(function.short_name)
        cold, environment.used = not environment.used, True
        error = trace = ""
        result: Any = None
        # What Lambda hands over is JSON, made anew each time.
        payload = json.loads(json.dumps(event))
        started = time.perf_counter()
        try:
            with _output, runtime.using(own), self._faults.line_crash(function.short_name) or contextlib.nullcontext():
                module, attribute = function.handler.rsplit(".", 1)
                result = getattr(importlib.import_module(module), attribute)(payload, context)
                result = json.loads(json.dumps(result))
        except (Exception, Crash) as raised:  # noqa: BLE001 - as Lambda does: whatever a handler raises is its result
            error = f"{type(raised).__name__}: {raised}"
            trace = traceback.format_exc()
        return Invocation(
            function=function.short_name,
            trigger=trigger,
            at=at,
            latency=time.perf_counter() - started,
            request_id=request_id,
            ok=not error,
            error=error,
            traceback=trace,
            result=result,
            event=event,
            cold=cold,
            output=output.getvalue(),
        )


def send_dead_letter(region: str, queue_arn: str, body: str, *, reason: str) -> None:
    """Put a message that nobody could handle on a dead-letter queue, with the reason as an attribute."""
    backend = backends.sqs(region)
    name = queue_arn.rsplit(":", 1)[-1]
    backend.send_message(
        queue_name=name,
        message_body=body,
        message_attributes={"reason": {"DataType": "String", "StringValue": reason[:1024] or "unknown"}},
        group_id="dead" if name.endswith(".fifo") else None,
        deduplication_id=str(uuid.uuid4()) if name.endswith(".fifo") else None,
    )

"""Lambda on this machine: invokes the handlers of the deployed functions and records each invocation.

An execution environment serves one invocation at a time and keeps its warm state; a crash or a timeout discards it.
EventBridge invokes asynchronously: failures are retried after one and two minutes, then sent to the dead-letter queue.
A function's output, with its logs and metrics, is part of the record. A function with a timeout of more than ten
minutes spends most of it waiting, and runs only when what it waits for is there (long_invocations.py).
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import io
import json
import threading
import traceback
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from infra import installation
from local.aws import dead_letters, recursive_loops, struct_types
from local.aws.calls import CALLER
from local.aws.captured_output import OUTPUT, captured_output
from local.aws.invocation import Invocation, LambdaContext
from local.aws.invocation_timeout import TIMEOUT, TimedOut, Timeout
from local.aws.long_invocations import MIN_TIMEOUT, LongInvocation, LongInvocations, WorldEnded
from local.faults import Crash
from shared.base import runtime
from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.recursive_loops import Lineage
    from local.aws.stack import DeployedFunction
    from local.clock import Clock
    from local.faults import Faults

_RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2))
"""Lambda's delays before it retries a failed asynchronous invocation."""
_ENDS_OF_ENVIRONMENT = (Crash.__name__, TimedOut.__name__, WorldEnded.__name__)
"""Errors after which Lambda starts a new execution environment."""


class _AsyncInvocation(Struct, kw_only=True):
    """A queued asynchronous invocation."""

    function: str
    event: Any
    trigger: str
    at: datetime
    attempt: int = 0
    dead_letter_arn: str = ""


class _ExecutionEnvironment(MutableStruct):
    warm: dict[str, Any] = {}
    used: bool = False


class LambdaFunctions:
    """An actor that runs the asynchronous invocations that are due; queues and tests call :meth:`start`."""

    def __init__(
        self,
        functions: Mapping[str, DeployedFunction],
        *,
        region: str,
        now: Callable[[], datetime],
        sleep: Callable[[float], None],
        faults: Faults,
        concurrency: int = 1,
        shared_cache: Mapping[str, Any] = MappingProxyType({}),
        clock: Clock | None = None,
    ) -> None:
        """``shared_cache`` is what is in the cache of each new execution environment (``Runtime.cache``).

        With the ``clock`` threads wait at the same time.
        """
        self._clock = clock
        self._shared_cache = shared_cache
        self._functions = {function.name: function for function in functions.values()}
        self._region = region
        self._now = now
        self.skew = timedelta()
        """How far the functions' clock is ahead."""
        self._sleep = sleep
        self._faults = faults
        self._concurrency = concurrency
        self._pool: ThreadPoolExecutor | None = None
        if concurrency > 1:
            struct_types.prepare(function.handler for function in self._functions.values())
            self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="function")
        self._lock = threading.Lock()
        self._idle: defaultdict[str, list[_ExecutionEnvironment]] = defaultdict(list)
        self._running: defaultdict[str, int] = defaultdict(int)
        self._long = LongInvocations(now=now)
        self._queued: list[_AsyncInvocation] = []
        self._internal_errors: list[BaseException] = []
        self._observers: list[Callable[[Invocation], None]] = []
        self.invocations: list[Invocation] = []
        self.recursive_invocations_dropped: list[Invocation] = []
        """Invocations that recursive loop detection dropped, CloudWatch's RecursiveInvocationsDropped."""

    @property
    def running(self) -> int:
        """The number of running invocations, without those that wait."""
        with self._lock:
            return sum(self._running.values())

    def waiting_caches(self, function: str) -> list[dict[str, Any]]:
        """The caches (``Runtime.cache``) of the function's invocations that wait."""
        return self._long.caches(self.named(function).name)

    def discard_environments(self) -> None:
        """End the execution environments that wait, as Lambda does at any time: what they keep is lost."""
        self._idle.clear()

    def observe(self, observer: Callable[[Invocation], None]) -> None:
        """Notify the observer of every later invocation when it ends, in its thread."""
        self._observers.append(observer)

    def named(self, function: str) -> DeployedFunction:
        """A function by its physical name, logical id or folder.

        Raises:
            KeyError: there is no such function.
        """
        for candidate in self._functions.values():
            if function in (candidate.name, candidate.logical_id, candidate.short_name):
                return candidate
        raise KeyError(function)

    def may_start(self, function: str) -> bool:
        """Whether the concurrency limits of the function and of this world allow another invocation."""
        with self._lock:
            free = sum(self._running.values()) < self._concurrency
        return free and not self.is_throttled(function)

    def is_throttled(self, function: str) -> bool:
        """Whether the function's invocations take its whole reserved concurrency."""
        name = self.named(function).name
        with self._lock:
            return self._is_held_back(name, self._running[name])

    def _take_environment(self, name: str) -> _ExecutionEnvironment:
        return self._idle[name].pop() if self._idle[name] else _ExecutionEnvironment(warm=dict(self._shared_cache))

    def _is_held_back(self, name: str, running: int = 0) -> bool:
        """Whether invocations that wait, and that many running ones, take the whole reserved concurrency."""
        reserved = self._functions[name].reserved_concurrency
        return reserved is not None and running + self._long.count(name) >= reserved

    def start(
        self,
        function: str,
        event: Any,
        *,
        trigger: str,
        done: Callable[[Invocation], None],
        lineage: Lineage = MappingProxyType({}),
    ) -> None:
        """Invoke, in this thread or (with concurrency above 1) in another; ``done`` is called there with the record.

        The record is that of a failure if the function is in a recursive loop, and the function doesn't run.
        """
        name = self.named(function).name
        if not self._functions[name].allows_recursion and recursive_loops.is_loop(name, lineage):
            done(self._drop(name, event, trigger))
            return
        own_lineage = recursive_loops.extended(name, lineage)
        if self._functions[name].timeout > MIN_TIMEOUT:
            with self._lock:
                environment = self._take_environment(name)
            self._long.start(
                name,
                environment.warm,
                lambda own: self._run_in(environment, name, event, trigger, done, own_lineage, long=own),
            )
            return
        with self._lock:
            self._running[name] += 1
        if self._pool is None:
            self._run(name, event, trigger, done, own_lineage)
        else:
            future = self._pool.submit(self._run_in_thread, name, event, trigger, done, own_lineage)
            future.add_done_callback(self._collect_error)

    def invoke(self, function: str, event: Any, *, trigger: str = "test") -> Invocation:
        """Invoke synchronously."""
        records: list[Invocation] = []
        finished = threading.Event()

        def done(record: Invocation) -> None:
            records.append(record)
            finished.set()

        self.start(function, event, trigger=trigger, done=done)
        finished.wait()
        return records[0]

    def enqueue(self, function: str, event: Any, *, trigger: str, dead_letter_arn: str = "") -> None:
        """Invoke asynchronously, as EventBridge does; after the last retry the event goes to the dead-letter queue."""
        queued = _AsyncInvocation(
            function=self.named(function).name,
            event=event,
            trigger=trigger,
            at=self._now(),
            dead_letter_arn=dead_letter_arn,
        )
        with self._lock:
            self._queued.append(queued)

    def step(self, now: datetime) -> bool:
        """Start the queued invocations that are due and allowed."""
        if self._internal_errors:
            raise self._internal_errors[0]
        did = self._long.step(now)
        for queued in self._due(now):
            if not self.may_start(queued.function):
                continue
            with self._lock:
                self._queued.remove(queued)
            self.start(
                queued.function,
                queued.event,
                trigger=queued.trigger,
                done=lambda record, queued=queued: self._handle_result(queued, record),  # type: ignore[misc]  # a bound default
            )
            did = True
        return did

    def due(self) -> datetime | None:
        """When the next queued invocation is due, or one that waits."""
        with self._lock:
            queued = [item.at for item in self._queued if not self._is_held_back(item.function)]
        waiting = self._long.due()
        return min((*queued, *([waiting] if waiting is not None else ())), default=None)

    def close(self) -> None:
        """Wait for running invocations, end those that wait, and stop the threads."""
        self._long.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _due(self, now: datetime) -> list[_AsyncInvocation]:
        with self._lock:
            return sorted((item for item in self._queued if item.at <= now), key=lambda item: item.at)

    def _handle_result(self, queued: _AsyncInvocation, record: Invocation) -> None:
        if record.ok:
            return
        if queued.attempt < min(self._functions[queued.function].retries, len(_RETRY_DELAYS)):
            retry = _AsyncInvocation(
                function=queued.function,
                event=queued.event,
                trigger=queued.trigger,
                at=self._now() + _RETRY_DELAYS[queued.attempt],
                attempt=queued.attempt + 1,
                dead_letter_arn=queued.dead_letter_arn,
            )
            with self._lock:
                self._queued.append(retry)
            return
        function = self._functions[queued.function]
        if function.failure_destination:
            body = json.dumps(dead_letters.failure_record(function.arn, record, attempts=queued.attempt + 1))
            dead_letters.send(self._region, function.failure_destination, body, reason="")
        elif target := function.dead_letter_arn or queued.dead_letter_arn:
            dead_letters.send(self._region, target, json.dumps(queued.event), reason=record.error)

    def _collect_error(self, future: Any) -> None:
        error = future.exception()
        if error is not None:
            self._internal_errors.append(error)

    def _drop(self, name: str, event: Any, trigger: str) -> Invocation:
        dropped = Invocation(
            function=self._functions[name].short_name,
            trigger=trigger,
            at=self._now(),
            latency=0.0,
            request_id="",
            ok=False,
            error=f"{recursive_loops.ERROR}: more than {recursive_loops.MAX_INVOCATIONS} invocations in one chain",
            event=event,
            function_name=name,
        )
        self.recursive_invocations_dropped.append(dropped)
        return dropped

    def _run_in_thread(self, *arguments: Any) -> None:
        with self._clock.own_time() if self._clock else contextlib.nullcontext():
            self._run(*arguments)

    def _run(self, name: str, event: Any, trigger: str, done: Callable[[Invocation], None], lineage: Lineage) -> None:
        with self._lock:
            environment = self._take_environment(name)
        try:
            self._run_in(environment, name, event, trigger, done, lineage)
        finally:
            with self._lock:
                self._running[name] -= 1

    def _run_in(
        self,
        environment: _ExecutionEnvironment,
        name: str,
        event: Any,
        trigger: str,
        done: Callable[[Invocation], None],
        lineage: Lineage,
        *,
        long: LongInvocation | None = None,
    ) -> None:
        # A context of its own: context variables that are set for a handler end with it.
        context = contextvars.copy_context()
        context.run(recursive_loops.LINEAGE.set, lineage)
        record = context.run(self._handle, self._functions[name], environment, event, trigger, long)
        if record.ok or not record.error.startswith(_ENDS_OF_ENVIRONMENT):
            with self._lock:
                self._idle[name].append(environment)
        self.invocations.append(record)
        for observer in self._observers:
            observer(record)
        done(record)

    def _call(
        self, function: DeployedFunction, payload: Any, context: LambdaContext, timeout: Timeout
    ) -> tuple[Any, str, str]:
        """What the handler answers, its error and the error's traceback."""
        result: Any = None
        try:
            with captured_output, self._faults.line_crash(function.short_name) or contextlib.nullcontext():
                module, attribute = function.handler.rsplit(".", 1)
                result = getattr(installation.own_module(module), attribute)(payload, context)
                result = json.loads(json.dumps(result))
                timeout.check()
        except (Exception, Crash, TimedOut, WorldEnded) as raised:  # noqa: BLE001 - as on Lambda: an exception is the result of the invocation
            return result, f"{type(raised).__name__}: {raised}", traceback.format_exc()
        return result, "", ""

    def _handle(
        self,
        function: DeployedFunction,
        environment: _ExecutionEnvironment,
        event: Any,
        trigger: str,
        long: LongInvocation | None,
    ) -> Invocation:
        at = self._now()
        timeout = Timeout(seconds=function.timeout, at=at, now=self._now, sleep=self._sleep)
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{function.name}/{len(self.invocations)}/{at.isoformat()}"))
        context = LambdaContext(function, request_id=request_id, remaining=lambda: timeout.remaining)
        own = runtime.Runtime(
            environ=function.environ,
            now=lambda: self._now() + self.skew,
            sleep=timeout.wait,
            wait=functools.partial(long.wait, timeout) if long is not None else _wait_alone,
            threads=self._clock.threads if self._clock else ThreadPoolExecutor,
            cache=environment.warm,
        )
        output = io.StringIO()
        OUTPUT.set(output)
        CALLER.set(function.caller)
        TIMEOUT.set(timeout)
        cold, environment.used = not environment.used, True
        # Lambda passes JSON, decoded for each invocation.
        payload = json.loads(json.dumps(event))
        with runtime.using(own):
            result, error, trace = self._call(function, payload, context, timeout)
        return Invocation(
            function=function.short_name,
            trigger=trigger,
            at=at,
            latency=(self._now() - at).total_seconds(),
            request_id=request_id,
            ok=not error,
            error=error,
            traceback=trace,
            result=result,
            event=event,
            cold=cold,
            output=output.getvalue(),
            function_name=function.name,
        )


def _wait_alone(changed: threading.Event, seconds: float) -> None:
    raise NotImplementedError(f"only functions with a timeout of more than {MIN_TIMEOUT} s may wait for changes")

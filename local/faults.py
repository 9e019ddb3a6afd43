"""Fault injection: errors, throttling, crashes, lost connections and delays at any call or line.

A fault is injected with a condition and a number of times, and occurs where the condition holds. Random choices are
seeded, so a run that failed fails again in the same way.
"""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Literal

    from _typeshed import TraceFunction

ALWAYS = 10**9
"""How many times a fault occurs that ends only with :meth:`Faults.clear`."""


class Crash(BaseException):
    """The process of a function ends here; no exception handler of the function sees it."""


class Fault(Struct, kw_only=True):
    """An error response, a crash or lost connection before or after the call is served, a delay (seconds), or several.

    ``code`` is the error code of AWS, or the reason of the Kubernetes API. ``retry_after`` is the header of its error
    (seconds). ``listed`` is the share of a list's objects that the Kubernetes API answers with, if that isn't all.
    """

    code: str = ""
    status: int = 400
    message: str = "injected"
    crash: Literal["", "before", "after"] = ""
    disconnect: Literal["", "before", "after"] = ""
    delay: float = 0.0
    retry_after: int = 0
    listed: float = 1.0


class InjectionPoint(Struct, kw_only=True):
    """A call at which a fault can occur. ``service`` is "kubernetes" for requests to the Kubernetes API.

    ``operation`` is AWS's name, or the HTTP method; ``target`` the path of a Kubernetes request, ``caller`` the
    function. A Kubernetes request passes two points: where it is sent (``sending``), where its caller can crash, and at
    the server, where all other faults occur and ``caller`` is the client's user agent.
    """

    service: str
    operation: str
    caller: str = ""
    target: str = ""
    sending: bool = False


class _InjectedFault(MutableStruct):
    condition: Callable[[InjectionPoint], bool]
    fault: Fault
    remaining: int
    chance: float


class _LineCrash(Struct, kw_only=True):
    """A crash at the n-th executed line of a function's own code, in files whose path contains ``path``."""

    function: str
    path: str
    after_lines: int


_READ_PREFIXES = ("GET", "Get", "Describe", "List", "Query")


class CrashPoints:
    """Crashes a function right before and right after each of its calls that write: each point once, one per run.

    Between two writing calls a function only reads, so a crash anywhere between them leaves the same state. These
    points therefore cover every crash. Calls are distinguished by operation and resource, without object names.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self.tried: set[tuple[str, str]] = set()
        """The crash points so far: the call, and "before" or "after"."""
        self.calls: set[str] = set()
        """Every writing call that was reached."""

    @property
    def remaining(self) -> set[str]:
        """The calls that were reached and have not yet been followed by a crash."""
        return self.calls - {call for call, when in self.tried if when == "after"}

    def fault_at(self, point: InjectionPoint) -> Fault | None:
        """A crash if this point has not been tried; else None."""
        if point.caller != self._function or point.operation.startswith(_READ_PREFIXES):
            return None
        call = f"{point.service} {point.operation} {_without_names(point.target)}".strip()
        self.calls.add(call)
        if (call, "before") not in self.tried:
            self.tried.add((call, "before"))
            return Fault(crash="before")
        if (call, "after") not in self.tried:
            self.tried.add((call, "after"))
            return Fault(crash="after")
        return None


def _without_names(path: str) -> str:
    """A path of the Kubernetes API with NAME in place of the object's name, and without its namespace."""
    parts = path.split("?", maxsplit=1)[0].strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:  # noqa: PLR2004 - namespaces/NAME/resource
        parts = parts[2:]
    return "/".join([*parts[:1], *("NAME" for _ in parts[1:2]), *parts[2:]])


class Faults(MutableStruct, dict=True):
    """The faults of a world; none at the start."""

    seed: int = 0
    _injected: list[_InjectedFault] = []
    _line_crashes: list[_LineCrash] = []
    _crash_points: CrashPoints | None = None
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    occurred: list[tuple[InjectionPoint, Fault]] = []

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - not for security: which calls fail

    def inject(
        self, condition: Callable[[InjectionPoint], bool], fault: Fault, *, times: int = 1, chance: float = 1.0
    ) -> None:
        """Inject a fault wherever the condition holds: with that chance at each match, at most that many times."""
        with self._lock:
            self._injected.append(_InjectedFault(condition=condition, fault=fault, remaining=times, chance=chance))

    def inject_aws(
        self, service: str, operation: str, fault: Fault, *, times: int = 1, chance: float = 1.0, caller: str = ""
    ) -> None:
        """Inject a fault at calls of an AWS operation (``"ec2", "CreateFleet"``), of all callers or one function."""

        def matches(point: InjectionPoint) -> bool:
            return (
                point.service == service
                and point.operation == operation
                and (not caller or point.caller.endswith(caller))
            )

        self.inject(matches, fault, times=times, chance=chance)

    def fail_service(self, service: str, operation: str = "", *, code: str = "InternalServerError") -> None:
        """Let every call of an AWS service, or of one of its operations, fail until the faults are cleared."""
        self.inject(
            lambda point: point.service == service and operation in ("", point.operation),
            Fault(code=code, status=500),
            times=ALWAYS,
        )

    def throttle(self, service: str, operation: str, *, times: int = 1) -> None:
        """Answer calls of an AWS operation with AWS's throttling error."""
        code, status = ("RequestLimitExceeded", 503) if service == "ec2" else ("ThrottlingException", 400)
        fault = Fault(code=code, status=status, message="Request limit exceeded.")
        self.inject_aws(service, operation, fault, times=times)

    def inject_kubernetes(
        self, method: str, path: str, fault: Fault, *, times: int = 1, chance: float = 1.0, caller: str = ""
    ) -> None:
        """Inject a fault at requests to the Kubernetes API by HTTP method whose path contains ``path``."""

        def matches(point: InjectionPoint) -> bool:
            return (
                point.service == "kubernetes"
                and point.operation == method
                and path in point.target
                and (not caller or point.caller.endswith(caller))
            )

        self.inject(matches, fault, times=times, chance=chance)

    def crash_after_lines(self, function: str, lines: int, *, path: str = "functions/") -> None:
        """Crash the function's next invocation after that many lines in files whose path contains ``path``."""
        with self._lock:
            self._line_crashes.append(_LineCrash(function=function, path=path, after_lines=lines))

    def crash_around_each_write(self, function: str) -> CrashPoints:
        """From now on, crash the function once before and once after each of its writing calls to AWS or Kubernetes."""
        with self._lock:
            self._crash_points = CrashPoints(function)
            return self._crash_points

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._crash_points = None
            self._injected.clear()
            self._line_crashes.clear()

    def next_fault(self, point: InjectionPoint) -> Fault | None:
        """The fault that occurs at this point now, if any; it is counted and recorded in ``occurred``."""
        with self._lock:
            if self._crash_points is not None and (fault := self._crash_points.fault_at(point)) is not None:
                self.occurred.append((point, fault))
                return fault
            for injected in self._injected:
                # A caller can only crash where it sends; all else happens at the server.
                here = point.service != "kubernetes" or point.sending == bool(injected.fault.crash)
                if (
                    here
                    and injected.remaining > 0
                    and injected.condition(point)
                    and self._random.random() < injected.chance
                ):
                    injected.remaining -= 1
                    self.occurred.append((point, injected.fault))
                    return injected.fault
        return None

    def line_crash(self, function: str) -> CrashAtLine | None:
        """The line crash for the next invocation of the function, a context manager; None without one. Used once."""
        with self._lock:
            for line_crash in self._line_crashes:
                if function.endswith(line_crash.function):
                    self._line_crashes.remove(line_crash)
                    return CrashAtLine(line_crash.path, line_crash.after_lines)
        return None


class CrashAtLine:
    """While entered, counts executed lines of this thread and raises :class:`Crash` after the given number."""

    def __init__(self, path: str, after_lines: int) -> None:
        self._path = path
        self._remaining = after_lines

    def __enter__(self) -> None:
        self._previous_trace = sys.gettrace()
        sys.settrace(self._trace_call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._previous_trace)

    def _trace_call(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:  # noqa: ARG002 - sys.settrace's own shape
        return self._trace_line if self._path in frame.f_code.co_filename else None

    def _trace_line(self, frame: FrameType, event: str, arg: object) -> TraceFunction | None:  # noqa: ARG002 - sys.settrace's own shape
        if event == "line":
            self._remaining -= 1
            if self._remaining < 0:
                sys.settrace(None)
                raise Crash(f"crashed at {frame.f_code.co_filename}:{frame.f_lineno}")
        return self._trace_line

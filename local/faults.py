"""What can go wrong, on demand: errors, throttling, crashes and delays at any call or line.

A fault is armed with a condition and a number of times, and goes off where it matches. Everything is seeded, so a run
that broke something breaks it again.
"""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Literal


class Crash(BaseException):
    """The process of a function dies here; nothing after this line runs, no handler of exceptions sees it."""


class ConnectionLost(Exception):  # noqa: N818 - named for what happens
    """The connection is cut before an answer came."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """What happens: an error answer, a crash before or after the work was done, a delay (seconds), or several."""

    code: str = ""
    status: int = 400
    message: str = "injected"
    crash: Literal["", "before", "after"] = ""
    disconnect: Literal["", "before", "after"] = ""
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where something is about to happen. ``service`` is "kubernetes" for requests to the Kubernetes API.

    ``operation`` is AWS's name, or the HTTP verb; ``target`` the path of a Kubernetes request, ``caller`` the function.
    A Kubernetes request passes twice: where it is sent (``sending``), where its caller can die, and at the server,
    where everything else can go wrong with it and ``caller`` is the client's name for itself.
    """

    service: str
    operation: str
    caller: str = ""
    target: str = ""
    sending: bool = False


@dataclass
class _Armed:
    where: Callable[[Site], bool]
    action: Action
    left: int
    chance: float


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The n-th executed line of a function's own code, in files whose path contains ``path``."""

    function: str
    path: str
    after_lines: int


_READING = ("GET", "Get", "Describe", "List", "Query")


class Cuts:
    """Dies right before and right after every call of a function that changes anything: each once, one a run.

    Between two such calls it only reads, so a death anywhere there leaves the same behind: these are all cuts there
    are. Calls are told apart by what they ask of what, names left out.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self.made: set[tuple[str, str]] = set()
        """The cuts so far: the call, and "before" or "after"."""
        self.calls: set[str] = set()
        """Every call that was reached."""

    @property
    def left(self) -> set[str]:
        """The calls that were reached and not yet died after."""
        return self.calls - {call for call, when in self.made if when == "after"}

    def at(self, site: Site) -> Action | None:
        """Whether to die here."""
        if site.caller != self._function or site.operation.startswith(_READING):
            return None
        call = f"{site.service} {site.operation} {_shape(site.target)}".strip()
        self.calls.add(call)
        if (call, "before") not in self.made:
            self.made.add((call, "before"))
            return Action(crash="before")
        if (call, "after") not in self.made:
            self.made.add((call, "after"))
            return Action(crash="after")
        return None


def _shape(path: str) -> str:
    """A path of the Kubernetes API without names: collections, objects and subresources remain."""
    parts = path.split("?", maxsplit=1)[0].strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:  # noqa: PLR2004 - namespaces/NAME/what is in it
        parts = parts[2:]
    return "/".join([*parts[:1], *("NAME" for _ in parts[1:2]), *parts[2:]])


@dataclass
class Faults:
    """The faults of a world; none to begin with."""

    seed: int = 0
    _armed: list[_Armed] = field(default_factory=list)
    _lines: list[_Line] = field(default_factory=list)
    _cuts: Cuts | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    went_off: list[tuple[Site, Action]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - not for security: which calls fail

    def at(self, where: Callable[[Site], bool], action: Action, *, times: int = 1, chance: float = 1.0) -> None:
        """Arm a fault wherever the condition holds; each match goes off with that chance, so many times."""
        with self._lock:
            self._armed.append(_Armed(where=where, action=action, left=times, chance=chance))

    def call(
        self, service: str, operation: str, action: Action, *, times: int = 1, chance: float = 1.0, caller: str = ""
    ) -> None:
        """Arm a fault at calls of an AWS operation (``"ec2", "CreateFleet"``), or of one function's only."""

        def matches(site: Site) -> bool:
            return (
                site.service == service and site.operation == operation and (not caller or site.caller.endswith(caller))
            )

        self.at(matches, action, times=times, chance=chance)

    def throttle(self, service: str, operation: str, *, times: int = 1) -> None:
        """Refuse calls of an AWS operation as AWS does when there are too many."""
        code, status = ("RequestLimitExceeded", 503) if service == "ec2" else ("ThrottlingException", 400)
        self.call(service, operation, Action(code=code, status=status, message="Request limit exceeded."), times=times)

    def kubernetes(
        self, verb: str, path: str, action: Action, *, times: int = 1, chance: float = 1.0, caller: str = ""
    ) -> None:
        """Arm a fault at requests to the Kubernetes API whose path contains ``path``; ``code`` is the reason."""

        def matches(site: Site) -> bool:
            return (
                site.service == "kubernetes"
                and site.operation == verb
                and path in site.target
                and (not caller or site.caller.endswith(caller))
            )

        self.at(matches, action, times=times, chance=chance)

    def crash_after_lines(self, function: str, lines: int, *, path: str = "functions/") -> None:
        """Crash the function's next invocation once it has run so many lines in files whose path contains ``path``."""
        with self._lock:
            self._lines.append(_Line(function=function, path=path, after_lines=lines))

    def walk_cuts(self, function: str) -> Cuts:
        """From now on, the function dies at each of its calls to AWS and Kubernetes, once before and once after it."""
        with self._lock:
            self._cuts = Cuts(function)
            return self._cuts

    def clear(self) -> None:
        """Disarm everything."""
        with self._lock:
            self._cuts = None
            self._armed.clear()
            self._lines.clear()

    def strike(self, site: Site) -> Action | None:
        """What goes wrong at this site now, if anything; counted as having gone off."""
        with self._lock:
            if self._cuts is not None and (action := self._cuts.at(site)) is not None:
                self.went_off.append((site, action))
                return action
            for armed in self._armed:
                here = site.service != "kubernetes" or site.sending == bool(armed.action.crash)
                if here and armed.left > 0 and armed.where(site) and self._random.random() < armed.chance:
                    armed.left -= 1
                    self.went_off.append((site, armed.action))
                    return armed.action
        return None

    def tracing(self, function: str) -> CrashAtLine | None:
        """The crash armed for the next invocation of the function, taken from the list; a context manager."""
        with self._lock:
            for line in self._lines:
                if function.endswith(line.function):
                    self._lines.remove(line)
                    return CrashAtLine(line.path, line.after_lines)
        return None


class CrashAtLine:
    """While entered, counts executed lines of this thread and raises :class:`Crash` at the chosen one."""

    def __init__(self, path: str, after_lines: int) -> None:
        self._path = path
        self._left = after_lines

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ANN401, ARG002 - sys.settrace's own shape
        return self._line if self._path in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ANN401, ARG002 - sys.settrace's own shape
        if event == "line":
            self._left -= 1
            if self._left < 0:
                sys.settrace(None)
                raise Crash(f"crashed at {frame.f_code.co_filename}:{frame.f_lineno}")
        return self._line

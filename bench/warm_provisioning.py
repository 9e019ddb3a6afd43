"""A warm provisioner: from the message that it is handed to the CreateFleet request that it sends.

The real handler runs, against a canned Kubernetes API in another process and a local AWS in this one. What counts is
the processor time of the thread it runs in, less what the local AWS takes of it to answer.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

from bench import stub_account
from functions.provisioner import handler
from local.aws import backends
from local.aws.interceptor import Interceptor
from shared import runtime
from shared.cluster.snapshot_reader import SnapshotReader
from shared.provisioning import leased_scheduling

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 5


class Stopwatch:
    """Processor seconds of this thread since :meth:`start`, by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.until_fleet = 0.0

    def start(self) -> None:
        """From now."""
        self.spent = {}
        self.until_fleet = 0.0
        self._began = time.thread_time()

    def over(self, what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The work, with the time it takes counted under that name."""

        @functools.wraps(work)
        def timed(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (whatever the work takes and gives)
            began, answering = time.thread_time(), self.spent.get("aws", 0.0)
            try:
                return work(*args, **more)
            finally:
                within = self.spent.get("aws", 0.0) - answering
                self.spent[what] = self.spent.get(what, 0.0) + time.thread_time() - began - within

        return timed

    def answering(self, gate: Interceptor, event_name: str, request: Any, **more: object) -> Any:  # noqa: ANN401 (botocore's)
        """The local AWS's own time; CreateFleet ends what is measured."""
        if event_name.endswith("CreateFleet") and not self.until_fleet:
            self.until_fleet = time.thread_time() - self._began - self.spent.get("aws", 0.0)
        began = time.thread_time()
        try:
            return _answer(gate, event_name, request, **more)
        finally:
            self.spent["aws"] = self.spent.get("aws", 0.0) + time.thread_time() - began


_answer = Interceptor.__call__


def measure(nodes: int, pods: int) -> list[dict[str, float]]:
    """Seconds of each warm run by part, ``all`` until CreateFleet was asked. A first run warms and is left out."""
    watch = Stopwatch()
    runs = []

    def answer(gate: Interceptor, *args: Any, **more: Any) -> Any:  # noqa: ANN401 (botocore's)
        return watch.answering(gate, *args, **more)

    warm: dict[str, Any] = {}
    with stub_account.account(nodes, pods) as environ, contextlib.ExitStack() as stack:
        for place, name, what in (
            (SnapshotReader, "read", "snapshot"),
            (leased_scheduling.LeasedScheduler, "_resolved_pools", "supply"),
            (leased_scheduling, "schedule", "schedule"),
            (leased_scheduling.LeasedScheduler, "_create_node_claims", "claims"),
        ):
            stack.enter_context(backends.replaced(place, name, watch.over(what, getattr(place, name))))
        stack.enter_context(backends.replaced(Interceptor, "__call__", answer))
        for run in range(RUNS + 1):
            with runtime.using(runtime.Runtime(environ=environ, cache=warm)):
                watch.start()
                answered = handler.handle(
                    stub_account.batch([stub_account.scheduled()]), stub_account.context("provisioner", run=run)
                )
            assert answered == {"batchItemFailures": []}, answered
            assert watch.until_fleet, "CreateFleet was never asked"
            runs.append({**watch.spent, "all": watch.until_fleet})
    return runs[1:]

"""A warm provisioner: the time from receiving a message to sending the CreateFleet request.

The real handler runs with a stub Kubernetes API in another process and a local AWS in this one. The result is the
processor time of the handler's thread without the local AWS's part.
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
from shared.base import runtime
from shared.cluster.snapshot_reader import SnapshotReader
from shared.provisioning import round as provisioning_round
from shared.provisioning.round import Provisioning

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS = 5


class Stopwatch:
    """Processor seconds of this thread since :meth:`start`, by part."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.until_fleet = 0.0

    def start(self) -> None:
        """Start measuring."""
        self.spent = {}
        self.until_fleet = 0.0
        self._began = time.thread_time()

    def measured(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function to measure its time as a part."""

        @functools.wraps(work)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began, aws_before = time.thread_time(), self.spent.get("aws", 0.0)
            try:
                return work(*args, **kwargs)
            finally:
                within = self.spent.get("aws", 0.0) - aws_before
                self.spent[part] = self.spent.get(part, 0.0) + time.thread_time() - began - within

        return timed

    def aws_call(self, gate: Interceptor, event_name: str, request: Any, **kwargs: object) -> Any:
        """Measures the local AWS's own time; CreateFleet ends the measurement."""
        if event_name.endswith("CreateFleet") and not self.until_fleet:
            self.until_fleet = time.thread_time() - self._began - self.spent.get("aws", 0.0)
        began = time.thread_time()
        try:
            return _intercept(gate, event_name, request, **kwargs)
        finally:
            self.spent["aws"] = self.spent.get("aws", 0.0) + time.thread_time() - began


_intercept = Interceptor.__call__


def measure(nodes: int, pods: int) -> list[dict[str, float]]:
    """Seconds of each warm run by part, ``all`` until CreateFleet. The first run only warms up."""
    watch = Stopwatch()
    runs = []

    def answer(gate: Interceptor, *args: Any, **kwargs: Any) -> Any:
        return watch.aws_call(gate, *args, **kwargs)

    warm: dict[str, Any] = {}
    with stub_account.account(nodes, pods) as environ, contextlib.ExitStack() as stack:
        for owner, name, part in (
            (SnapshotReader, "read", "snapshot"),
            (Provisioning, "resolved_pools", "supply"),
            (provisioning_round, "schedule", "schedule"),
            (Provisioning, "create_node_claims", "claims"),
        ):
            stack.enter_context(backends.replaced(owner, name, watch.measured(part, getattr(owner, name))))
        stack.enter_context(backends.replaced(Interceptor, "__call__", answer))
        for run in range(RUNS + 1):
            with runtime.using(runtime.Runtime(environ=environ, cache=warm)):
                watch.start()
                response = handler.handle(
                    stub_account.batch([stub_account.scheduled()]), stub_account.context("provisioner", run=run)
                )
            assert response == {"batchItemFailures": []}, response
            assert watch.until_fleet, "CreateFleet was never called"
            runs.append({**watch.spent, "all": watch.until_fleet})
    return runs[1:]

"""``python -m tests.faults``: make each fault of faults.yaml in a copy of the checkout, and say which test notices it.

For each fault the test that noticed it last (detections.yaml) runs first, then the test files that are likely to. The
faults that are left are made all at once, the whole suite runs, and what fails runs again on each of them alone. So the
sixty faults take about as long as two runs of the suite, and a fault is only said to be unnoticed if the whole suite
passed with it. The exit status is 1 if a fault isn't noticed.
"""

from __future__ import annotations

import argparse
import queue
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import detections, suites
from tests.faults.checkout_copy import CheckoutCopy
from tests.faults.detections import Detection
from tests.faults.fault import load
from tests.faults.related_tests import related_tests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.faults.fault import Fault
    from tests.faults.suites import Suite

_FEW_FILES = 8


def main() -> int:
    """Run what the command line says."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the copies and what runs in them end, too
    faults = [fault for fault in load() if not options.select or fault.id in options.select]
    if unknown := set(options.select) - {fault.id for fault in faults}:
        print(f"faults.yaml has no fault {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="tenon-faults-") as folder:
        copies = [CheckoutCopy(Path(folder) / str(number)) for number in range(options.workers)]
        trial = _Trial(copies, detections.load(), quick=options.quick, total=len(faults))
        try:
            for suite in (suites.TEST, suites.LONG, suites.HOSTILE) if options.all else (suites.TEST,):
                trial.run(faults, suite, options.tests)
        finally:
            if options.record:
                detections.save({**detections.load(), **trial.noticed})
        broken = trial.failures_without_fault()
    _print_table(faults, trial.noticed)
    for test in broken:
        print(f"fails without a fault, too: {test}")
    return 1 if broken or len(trial.noticed) < len(faults) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--select", nargs="+", default=[], metavar="ID", help="only these faults")
    parser.add_argument("--all", action="store_true", help="what make test doesn't notice: also make test-all")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only these tests, on each fault")
    parser.add_argument("--quick", action="store_true", help="only the tests that are likely to notice a fault")
    parser.add_argument("--workers", type=int, default=2, help="how many faults are tried at once")
    parser.add_argument("--record", action="store_true", help="write what noticed them to detections.yaml")
    return parser.parse_args()


class _Trial:
    """Tries faults on copies of the checkout. ``noticed`` is by fault."""

    def __init__(
        self, copies: Sequence[CheckoutCopy], earlier: dict[str, Detection], *, quick: bool, total: int
    ) -> None:
        self._copies = copies
        self._earlier = earlier
        self._quick = quick
        self._total = total
        self.noticed: dict[str, Detection] = {}

    def run(self, faults: Sequence[Fault], suite: Suite, tests: Sequence[str]) -> None:
        """Try those that aren't noticed yet; with ``tests`` only by these."""
        if tests:
            self._try_each(suite, {fault: [list(tests)] for fault in self._remaining(faults)})
            return
        self._try_each(suite, {fault: self._likely_tests(fault) for fault in self._remaining(faults)})
        while not self._quick and (remaining := self._remaining(faults)):
            failed = self._failures_of_all(remaining, suite)
            self._try_each(suite, {fault: [failed] for fault in remaining})
            if len(self._remaining(faults)) in {0, len(remaining)}:
                return

    def failures_without_fault(self) -> list[str]:
        """The tests that noticed faults and fail on the unchanged copy, too."""
        failed: list[str] = []
        for suite in (suites.TEST, suites.LONG, suites.HOSTILE):
            tests = {d.test for d in self.noticed.values() if d.target == suite.target and not d.hangs}
            if tests:
                failures = self._copies[0].failures(sorted(tests), suite, processes=len(self._copies), stop=False)
                failed += failures.tests
        return failed

    def _remaining(self, faults: Iterable[Fault]) -> list[Fault]:
        return [fault for fault in faults if fault.id not in self.noticed]

    def _likely_tests(self, fault: Fault) -> list[list[str]]:
        earlier = self._earlier.get(fault.id)
        last_time = earlier.function if earlier is not None else ""
        return [[last_time], related_tests(fault, most=_FEW_FILES)]

    def _failures_of_all(self, faults: Sequence[Fault], suite: Suite) -> list[str]:
        """The tests of the suite that fail with all these faults, and not without them."""
        print(f"{suite.target} with {len(faults)} faults at once: {', '.join(f.id for f in faults)}", flush=True)
        with self._copies[0].with_faults(faults):
            failures = self._copies[0].failures([], suite, processes=len(self._copies), stop=False)
        print(f"{len(failures.tests)} tests failed", flush=True)
        failed = [*failures.tests, *failures.hanging]
        unrelated = self._copies[0].failures(failed, suite, processes=len(self._copies), stop=False) if failed else None
        return [test for test in failed if unrelated is None or test not in unrelated.tests]

    def _try_each(self, suite: Suite, batches: Mapping[Fault, Sequence[Sequence[str]]]) -> None:
        """Try each fault by its batches of tests, one batch after the other, until a test fails."""
        free: queue.SimpleQueue[CheckoutCopy] = queue.SimpleQueue()
        for copy in self._copies:
            free.put(copy)

        def attempt(fault: Fault) -> None:
            copy, begin = free.get(), time.monotonic()
            try:
                test = _first_failure(copy, fault, suite, batches[fault])
            finally:
                free.put(copy)
            if test:
                self.noticed[fault.id] = Detection(target=suite.target, test=test)
            seconds = time.monotonic() - begin
            progress = f"[{len(self.noticed)}/{self._total}]"
            print(f"{progress} {fault.id}: {test or 'not noticed yet'} ({seconds:.0f} s)", flush=True)

        with ThreadPoolExecutor(len(self._copies)) as pool:
            futures = [pool.submit(attempt, fault) for fault in batches]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self._copies:
                    copy.stop()
                raise


def _first_failure(copy: CheckoutCopy, fault: Fault, suite: Suite, batches: Iterable[Sequence[str]]) -> str:
    with copy.with_faults([fault]):
        for batch in batches:
            tests = [test for test in batch if test]
            if tests and (test := copy.failures(tests, suite).first):
                return test
    return ""


def _print_table(faults: Sequence[Fault], noticed: dict[str, Detection]) -> None:
    print("\n| fault | place | noticed by | test |\n|---|---|---|---|")
    for fault in faults:
        detection = noticed.get(fault.id, Detection(target="nothing", test=""))
        print(f"| {fault.id} | {fault.file}:{fault.line} | {detection.target} | {detection.test} |")
    by_test = sum(detection.target == suites.TEST.target for detection in noticed.values())
    print(f"\nmake test notices {by_test} of {len(faults)}, make test-all {len(noticed)}")


if __name__ == "__main__":
    sys.exit(main())

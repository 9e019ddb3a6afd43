"""A copy of the checkout, in which faults are made and tests run."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults import failure_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.faults.fault import Fault
    from tests.faults.suites import Suite

CHECKOUT = Path(__file__).parents[2]
_SHARED = (".venv", "node_modules")
_TEXT_TESTS = "tests/unit/code"
"""Tests that read code instead of running it: they would notice any change."""


_NO_TESTS = 5
"""Pytest's exit status when every test was deselected."""
_POLL_SECONDS = 5
HANGS = " (hangs)"
"""What follows the name of a test that never ended."""


class PytestError(RuntimeError):
    """Pytest couldn't run the tests; the message is the end of its output."""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """The tests that failed, and those that never ended, in order."""

    tests: tuple[str, ...] = ()
    hanging: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The first test that failed, or that hung; "" if all passed."""
        return next(iter((*self.tests, *(test + HANGS for test in self.hanging))), "")


class CheckoutCopy:
    """A copy of the checkout's files, committed or not, with the same packages and a build folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        for name in _listed_files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, target, follow_symlinks=False)
        for name in _SHARED:
            (folder / name).symlink_to((CHECKOUT / name).resolve())
        _copy_build(CHECKOUT / "build", folder / "build")
        for command in (["init", "--quiet"], ["add", "--all"]):  # some tests list the repository's files
            subprocess.run(["git", *command], cwd=folder, check=True)

    @contextlib.contextmanager
    def with_faults(self, faults: Iterable[Fault]) -> Iterator[None]:
        """The copy with these faults, until the end of the block."""
        originals: dict[Path, str] = {}
        try:
            for fault in faults:
                path = self._folder / fault.file
                text = path.read_text(encoding="utf-8")
                originals.setdefault(path, text)
                path.write_text(fault.applied(text), encoding="utf-8")
            yield
        finally:
            for path, text in originals.items():
                path.write_text(text, encoding="utf-8")

    def failures(self, tests: Sequence[str], suite: Suite, *, processes: int = 0, stop: bool = True) -> Failures:
        """Run tests, all of the suite if none is given; ``stop``: until the first failure.

        Raises:
            PytestError: pytest couldn't run them.
        """
        with tempfile.TemporaryDirectory(prefix="tenon-faults-log-") as folder:
            log, output = Path(folder) / "log", Path(folder) / "output"
            command = [
                *(".venv/bin/python", "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider"),
                *("-p", "tests.faults.failure_log", f"--ignore={_TEXT_TESTS}", "-n", str(processes)),
                *(["--dist", "worksteal"] if processes else []),
                *(["-x"] if stop else []),
                *suite.arguments,
                *(tests or suite.folders),
            ]
            environ = {
                **os.environ,
                **suite.environ,
                failure_log.VARIABLE: str(log),
                "PYTHONPATH": str(self._folder),  # the commands that tests start must be the copy's, too
            }
            with output.open("wb") as file:
                self._process = subprocess.Popen(
                    command,
                    cwd=self._folder,
                    env=environ,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                code = _status(self._process, log, longest=suite.longest)
            finally:
                self.stop()
            failed, unfinished = failure_log.read(log)
            if not failed and code not in {0, _NO_TESTS, *([None] if unfinished else [])}:
                raise PytestError(f"pytest ended with {code}:\n{output.read_text(errors='replace')[-2000:]}")
        return Failures(tests=tuple(failed), hanging=tuple(unfinished) if code is None else ())

    def stop(self) -> None:
        """End the tests that run, and what they have started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _status(process: subprocess.Popen[bytes], log: Path, *, longest: float) -> int | None:
    """The exit status; None if nothing was logged for the ``longest`` seconds that a test may take."""
    begin = time.time()
    while time.time() - (log.stat().st_mtime if log.exists() else begin) <= longest:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_SECONDS)
    return None


def _listed_files() -> list[str]:
    """The files that are committed or could be, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    names = dict.fromkeys(name for name in listed.split("\0") if name)
    return [name for name in names if (CHECKOUT / name).is_file()]


def _copy_build(source: Path, target: Path) -> None:
    """The build folder, whose caches a fault's run may add to; large single files are linked."""
    target.mkdir()
    for path in source.iterdir() if source.is_dir() else ():
        if path.is_dir():
            shutil.copytree(path, target / path.name, symlinks=True, ignore=shutil.ignore_patterns(".tmp-*"))
        else:
            (target / path.name).symlink_to(path.resolve())

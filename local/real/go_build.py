"""Binaries that are built once by Go, from modules of ours that pin every version.

A binary is kept in build/ under a hash of its module's files, so that a change of them builds another one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from shared.base.struct import Struct

CHECKOUT = Path(__file__).resolve().parent.parent.parent
_BUILD = CHECKOUT / "build"
_BUILD_SECONDS = 1200
_PACKAGES_AT_ONCE = 2
"""More would need more than 4 GiB of memory."""


class BuildError(RuntimeError):
    """A binary can't be built: there is no Go, or Go refused; the message says which."""


def go() -> str:
    """The path of the Go command; empty where Go is not installed."""
    return shutil.which("go") or ""


def environment() -> dict[str, str]:
    """The environment of Go's commands: of a module that needs a newer Go, Go fetches the one that go.mod names."""
    return {**os.environ, "GOTOOLCHAIN": "auto"}


class Binary(Struct, kw_only=True):
    """What is built: ``command`` is Go's with its flags and the package, without ``-p`` and ``-o``."""

    name: str
    module: Path
    sources: tuple[str, ...]
    command: tuple[str, ...]

    def built(self) -> Path:
        """The binary's path; it is built first if that hasn't been done.

        Raises:
            BuildError: Go is not installed, or the build failed.
        """
        path = _BUILD / f"{self.name}-{self._version()}"
        if path.exists():
            return path
        if not go():
            raise BuildError(f"{self.name} is built by Go, which is not installed")
        _BUILD.mkdir(exist_ok=True)
        with (_BUILD / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._build(path)
        return path

    def _version(self) -> str:
        texts = [(self.module / name).read_bytes() for name in self.sources]
        return hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]

    def _build(self, path: Path) -> None:
        partial = path.with_suffix(f".{os.getpid()}")
        verb, *flags, package = self.command
        command = [go(), verb, "-p", str(_PACKAGES_AT_ONCE), *flags, "-o", str(partial), package]
        try:
            subprocess.run(  # noqa: S603 - Go's own command
                command,
                cwd=self.module,
                check=True,
                capture_output=True,
                text=True,
                timeout=_BUILD_SECONDS,
                env=environment(),
            )
        except subprocess.CalledProcessError as error:
            raise BuildError(f"Go can't build {self.name}: {error.stderr[-2000:]}") from error
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"Go has not built {self.name} within {_BUILD_SECONDS} s") from error
        partial.rename(path)

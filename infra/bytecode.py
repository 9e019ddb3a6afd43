"""Bytecode for bundles: Lambda can't keep what it compiles, so a bundle without it is compiled anew at each cold start.

That is three quarters of an import's time. Only the very version of Python that Lambda runs makes bytecode that it
reads; where that isn't installed, bundles go without, and work all the same. The bytecode says that it needn't be
checked, because files in a bundle never change.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "3.13"
"""Lambda's Python, as functions.py names it."""
_WHERE = "/var/task"  # where a bundle is unpacked to, for tracebacks


class CompileError(RuntimeError):
    """A file of a bundle is no valid Python; the text is the compiler's."""


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """Lambda's version of Python on this machine: its executable and full version, both empty if there is none."""

    executable: str = ""
    version: str = ""

    def compile(self, folder: Path) -> None:
        """Put bytecode beside every module below the folder.

        Raises:
            CompileError: a module can't be compiled.
        """
        if not self.executable:
            return
        flags = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", _WHERE]
        done = subprocess.run(  # noqa: S603  our own words
            [self.executable, "-I", "-m", "compileall", *flags, str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CompileError(done.stdout.strip() or done.stderr.strip())


@functools.cache
def compiler() -> Compiler:
    """This interpreter if it is of that version, or one of that name on PATH that runs; else one that does nothing."""
    found = shutil.which(f"python{VERSION}")
    for executable in (sys.executable, *([found] if found else [])):
        asked = "import platform; print(platform.python_implementation(), platform.python_version())"
        done = subprocess.run(  # noqa: S603  our own words
            [executable, "-I", "-c", asked], capture_output=True, text=True, check=False
        )
        kind, _, version = done.stdout.strip().partition(" ")
        if done.returncode == 0 and kind == "CPython" and version.startswith(f"{VERSION}."):
            return Compiler(executable=executable, version=version)
    return Compiler()

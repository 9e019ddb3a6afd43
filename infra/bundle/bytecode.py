"""Bytecode for bundles: without it, Lambda compiles all modules at each cold start.

That is three quarters of the import time. Lambda only reads bytecode of its own Python version. If that isn't
installed, bundles have no bytecode; they work all the same. The bytecode is marked as unchecked, because files in a
bundle never change.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from shared.base.struct import Struct

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "3.13"
"""The Python version of the functions (infra/cluster/functions.py)."""
_BUNDLE_ROOT = "/var/task"  # the folder of a bundle on Lambda, for tracebacks


class CompileError(RuntimeError):
    """A file of a bundle is not valid Python; the message is the compiler's."""


class Compiler(Struct, kw_only=True):
    """Lambda's Python version on this machine: executable and full version, both empty if it isn't installed."""

    executable: str = ""
    version: str = ""

    def compile(self, folder: Path) -> None:
        """Compile every module in the folder.

        Raises:
            CompileError: a module can't be compiled.
        """
        if not self.executable:
            return
        flags = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", _BUNDLE_ROOT]
        process = subprocess.run(
            [self.executable, "-I", "-m", "compileall", *flags, str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise CompileError(process.stdout.strip() or process.stderr.strip())


@functools.cache
def compiler() -> Compiler:
    """This interpreter if it has that version, or one on PATH; else a compiler that does nothing."""
    on_path = shutil.which(f"python{VERSION}")
    for executable in (sys.executable, *([on_path] if on_path else [])):
        program = "import platform; print(platform.python_implementation(), platform.python_version())"
        process = subprocess.run([executable, "-I", "-c", program], capture_output=True, text=True, check=False)
        kind, _, version = process.stdout.strip().partition(" ")
        if process.returncode == 0 and kind == "CPython" and version.startswith(f"{VERSION}."):
            return Compiler(executable=executable, version=version)
    return Compiler()

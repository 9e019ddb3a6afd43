"""The size of each function's bundle, and its import time in a new process.

Sizes are those of the uploaded code. Imports are measured with the same bundle built for this machine, with Lambda's
Python version, in a new process each, as processor time, so that other load matters little. The interpreter's start is
not counted. boto3 is in another folder, as in Lambda's runtime.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from pathlib import Path

from infra import function_sizes
from infra.bundle import bundling, bytecode

CHECKOUT = Path(__file__).resolve().parent.parent
RUNS = 9
_MIB = 1024 * 1024
_IMPORT = """
import sys, time
sys.path[:0] = {paths!r}
before = time.process_time()
import functions.{function}.handler
print(time.process_time() - before)
"""


class NoPythonError(RuntimeError):
    """Lambda's Python version is not installed on this machine."""


def run() -> list[dict[str, str]]:
    """For each function a row with its size, and one with its import time.

    Raises:
        NoPythonError: Lambda's Python version is not installed.
    """
    compiler = bytecode.compiler()
    if not compiler.executable:
        raise NoPythonError(
            f"imports are measured with Python {bytecode.VERSION}: put python{bytecode.VERSION} on PATH"
        )
    deployed = bundling.bundles(CHECKOUT, mode="full")
    local = bundling.bundles(CHECKOUT, mode="full", machine=platform.machine())
    runtime = bundling.runtime(CHECKOUT, machine=platform.machine())
    rows = []
    for function in function_sizes.ALL:
        files = [path for path in deployed[function].rglob("*") if path.is_file()]
        mebibytes = sum(path.stat().st_size for path in files) / _MIB
        rows.append(
            {
                "measurement": f"{function}, unpacked",
                "target": f"at most {bundling.LIMIT_MIB} MiB",
                "result": f"{mebibytes:.1f} MiB",
                "method": f"{len(files)} files for arm64, with bytecode",
            }
        )
    for function in function_sizes.ALL:
        seconds = [_import(compiler.executable, function, [local[function], runtime]) for _ in range(RUNS)]
        rows.append(
            {
                "measurement": f"{function}, cold import",
                "target": "at most 400 ms",
                "result": f"{statistics.median(seconds) * 1000:.0f} ms (from {min(seconds) * 1000:.0f})",
                "method": f"processor time, median (and minimum) of {RUNS} new processes, Python {compiler.version}",
            }
        )
    return rows


def _import(python: str, function: str, folders: list[Path]) -> float:
    program = _IMPORT.format(paths=[str(folder) for folder in folders], function=function)
    environ = {**os.environ, **function_sizes.RUNTIME}
    process = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True, env=environ)
    return float(process.stdout)

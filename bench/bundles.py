"""What each function brings, and how long its import takes in a process that starts cold.

Sizes are those of what is uploaded. Imports are measured in the same bundle made for this machine, by Lambda's version
of Python in a fresh process each, as processor time, so that what else runs here counts little; the interpreter's own
start is not counted. boto3 lies beside the bundle, as in Lambda's runtime.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from pathlib import Path

from infra import bundling, bytecode, function_sizes

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
    """Lambda's version of Python is not on this machine."""


def run() -> list[dict[str, str]]:
    """A row a function for its size, and one for its import.

    Raises:
        NoPythonError: there is nothing to import with.
    """
    compiler = bytecode.compiler()
    if not compiler.executable:
        raise NoPythonError(f"importing is measured by Python {bytecode.VERSION}: put python{bytecode.VERSION} on PATH")
    deployed = bundling.bundles(CHECKOUT, mode="full")
    here = bundling.bundles(CHECKOUT, mode="full", machine=platform.machine())
    runtime = bundling.runtime(CHECKOUT, machine=platform.machine())
    rows = []
    for function in function_sizes.FUNCTIONS:
        files = [path for path in deployed[function].rglob("*") if path.is_file()]
        mebibytes = sum(path.stat().st_size for path in files) / _MIB
        rows.append(
            {
                "figure": f"{function}, unpacked",
                "asked": f"at most {bundling.LIMIT_MIB} MiB",
                "measured": f"{mebibytes:.1f} MiB",
                "how": f"{len(files)} files for arm64, bytecode among them",
            }
        )
    for function in function_sizes.FUNCTIONS:
        seconds = [_import(compiler.executable, function, [here[function], runtime]) for _ in range(RUNS)]
        rows.append(
            {
                "figure": f"{function}, cold import",
                "asked": "at most 400 ms",
                "measured": f"{statistics.median(seconds) * 1000:.0f} ms (from {min(seconds) * 1000:.0f})",
                "how": f"processor time, median (and least) of {RUNS} fresh processes, Python {compiler.version}",
            }
        )
    return rows


def _import(python: str, function: str, folders: list[Path]) -> float:
    program = _IMPORT.format(paths=[str(folder) for folder in folders], function=function)
    environ = {**os.environ, **function_sizes.RUNTIME}
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True, env=environ)
    return float(done.stdout)

"""A program that invokes a function's handler thousands of times, and says how much memory the process has.

It imports nothing but the handler, so that its memory is the function's. Arguments: the function, and after which
invocations to measure; the event, in JSON, is the input.
"""

from __future__ import annotations

import gc
import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

_SECONDS = 120
_KIB_PER_MIB = 1 << 10


def main(function: str, *at: str) -> None:
    """Invoke the handler, and print what was measured by invocation."""
    handler = importlib.import_module(f"functions.{function}.handler")
    event, moments = json.load(sys.stdin), {int(number) for number in at}
    measured = {}
    for number in range(1, max(moments) + 1):
        context = SimpleNamespace(
            function_name=function,
            memory_limit_in_mb=1024,
            invoked_function_arn="arn:x",
            aws_request_id=f"run-{number}",
            get_remaining_time_in_millis=lambda: _SECONDS * 1000,
        )
        answer = handler.handle(event, context)
        assert not (answer or {}).get("batchItemFailures"), answer
        if number in moments:
            gc.collect()
            measured[number] = {"mib": _resident(), "blocks": sys.getallocatedblocks()}
            print(f"{function} {number}: {measured[number]}", file=sys.stderr, flush=True)
    print(json.dumps(measured))


def _resident() -> float:
    """MiB of this process."""
    match = re.search(r"^VmRSS:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
    assert match
    return int(match[1]) / _KIB_PER_MIB


if __name__ == "__main__":
    main(*sys.argv[1:])

"""``python -m tests.fuzz --minutes 10``: look for inputs on which a parser raises an error that it doesn't document.

Each parser is tried in turn with new inputs, until the time is over. The exit status is 1 if one fails; Hypothesis
prints the smallest input, which becomes an example in ``tests/fuzz/inputs.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from hypothesis import HealthCheck, given, settings

from tests.fuzz.inputs import inputs
from tests.fuzz.parsers import PARSERS, try_to_read

_EXAMPLES = 500


def main() -> int:
    """Try the parsers."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", choices=sorted(PARSERS), action="append")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    left = dict.fromkeys(options.only or PARSERS, 0)
    failed: set[str] = set()
    while left.keys() - failed and time.monotonic() < end:
        for name in left.keys() - failed:
            if not _holds(name):
                failed.add(name)
            left[name] += _EXAMPLES
            if time.monotonic() >= end:
                break
    print(f"{sum(left.values())} inputs of {len(left)} parsers; failed: {', '.join(sorted(failed)) or 'none'}")
    return 1 if failed else 0


def _holds(name: str) -> bool:
    @given(text=inputs(PARSERS[name].examples))
    @settings(max_examples=_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def property_(text: str) -> None:
        try_to_read(name, text)

    try:
        property_()
    except Exception:  # noqa: BLE001 (any error of a parser is what is looked for)
        print(f"--- {name}")
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())

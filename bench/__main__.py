"""``make bench``: measures what README and docs state, and writes bench/RESULTS.md.

Each module here has ``run() -> list[dict]`` with rows of what was asked, what was measured and how. Figures are of the
machine they were made on; what counts are their ratios within one run.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from pathlib import Path

MODULES = ("main_job", "scheduling", "launching", "cluster_state", "interruptions")
RESULTS = Path(__file__).parent / "RESULTS.md"
_COLUMNS = ("figure", "asked", "measured", "how")


def machine() -> str:
    """What the figures were made on, without naming anybody's host."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"{platform.system()} {platform.release().partition('-')[0]}"
    )


def table(rows: list[dict[str, str]]) -> str:
    """Rows as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(row.get(c, "").replace("|", "\\|") for c in _COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run the named modules, or all; write the results when all were run."""
    unknown = [n for n in names if n not in MODULES]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    parts = []
    for name in names or MODULES:
        print(f"\n{name} …", flush=True)
        began = time.monotonic()
        rows = importlib.import_module(f"bench.{name}").run()
        part = f"## {name.replace('_', ' ')}\n\n{table(rows)}\n\n`make bench ARGS={name}`, "
        part += f"{time.monotonic() - began:.0f} s.\n"
        print(part, flush=True)
        parts.append(part)
    if not names:
        head = f"# Results\n\nMade by `make bench` on {time.strftime('%Y-%m-%d')}: {machine()}.\n\n"
        RESULTS.write_text(head + "\n".join(parts))
        print(f"written to {RESULTS}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

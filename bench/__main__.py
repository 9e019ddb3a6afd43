"""``make bench``: measures what README and docs state, and writes bench/RESULTS.md.

Each module here has ``run() -> list[dict]`` with rows of what was asked, what was measured and how. Figures are of the
machine they were made on; what counts are their ratios within one run.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
import time
from pathlib import Path

MODULES = (
    "pending_to_running",
    "scheduling",
    "launching",
    "cluster_state",
    "command_line",
    "consolidation",
    "steady_load",
    "interruptions",
    "bundles",
    "function_resources",
    "cost_model",
)
RESULTS = Path(__file__).parent / "RESULTS.md"
_PARTS = re.MULTILINE | re.DOTALL
_HEAD = """# Results

Written by `make bench`; each part says its own command, day and machine. What counts are ratios within one run.

"""
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
    """Run the named modules, or all, and write what each measured."""
    unknown = [n for n in names if n not in MODULES]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    for name in names or MODULES:
        print(f"\n{name} …", flush=True)
        began = time.monotonic()
        rows = importlib.import_module(f"bench.{name}").run()
        part = f"{table(rows)}\n\n`make bench ARGS={name}`, {time.monotonic() - began:.0f} s, "
        part += f"{time.strftime('%Y-%m-%d')}, {machine()}.\n"
        print(part, flush=True)
        keep(name, part)
    print(f"written to {RESULTS}")
    return 0


def keep(name: str, part: str) -> None:
    """Put a module's part into the results, in place of the one that is there."""
    kept = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", RESULTS.read_text() if RESULTS.exists() else "", _PARTS))
    kept[name] = f"{part}\n"
    body = "".join(f"## {known}\n\n{kept[known]}" for known in MODULES if known in kept)
    RESULTS.write_text(f"{_HEAD}{body}".rstrip() + "\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

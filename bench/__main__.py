"""``make bench``: measures the figures of README and docs, and writes bench/RESULTS.md.

Each module has ``run() -> list[dict]`` with rows of measurement, target, result and method. Results depend on the
machine; compare ratios within one run.
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
    "limited_pool",
    "launching",
    "cluster_state",
    "command_line",
    "consolidation",
    "steady_load",
    "scale_in",
    "deletion_cost",
    "month",
    "frontier",
    "committed_month",
    "interruptions",
    "bundles",
    "function_resources",
    "scale",
    "fleet_rate",
    "relay",
    "handovers",
    "endurance",
    "warm_memory",
    "webhook",
    "cost_model",
    "real",
    "real_flows",
)
_MODULES_IN_PACKAGES = {
    "month": "month.results",
    "frontier": "month.frontier",
    "committed_month": "month.committed",
    "warm_memory": "endurance.warm_memory",
    "scale": "scale.results",
}
ON_REQUEST = ("real_flows", "endurance", "warm_memory", "frontier", "scale")
"""In real time and with Go, for an hour, or of figures that are saved first: only measured by name."""
RESULTS = Path(__file__).parent / "RESULTS.md"
_REGEX_FLAGS = re.MULTILINE | re.DOTALL
_HEADER = """# Results

Written by `make bench`. Each part has its command, date and machine. Compare ratios within one run.

"""
_COLUMNS = ("measurement", "target", "result", "method")


def machine() -> str:
    """The machine of the measurements, without its host name."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"{platform.system()} {platform.release().partition('-')[0]}"
    )


def table(rows: list[dict[str, str]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(row.get(c, "").replace("|", "\\|") for c in _COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Run the named modules, or all, and write their results."""
    unknown = [n for n in names if n not in MODULES]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; available: {', '.join(MODULES)}", file=sys.stderr)
        return 2
    for name in names or [name for name in MODULES if name not in ON_REQUEST]:
        print(f"\n{name} …", flush=True)
        began = time.monotonic()
        rows = importlib.import_module(f"bench.{_MODULES_IN_PACKAGES.get(name, name)}").run()
        section = f"{table(rows)}\n\n`make bench ARGS={name}`, {time.monotonic() - began:.0f} s, "
        section += f"{time.strftime('%Y-%m-%d')}, {machine()}.\n"
        print(section, flush=True)
        save(name, section)
    print(f"written to {RESULTS}")
    return 0


def save(name: str, section: str) -> None:
    """Replace a module's part of the results."""
    sections = dict(
        re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", RESULTS.read_text() if RESULTS.exists() else "", _REGEX_FLAGS)
    )
    sections[name] = f"{section}\n"
    body = "".join(f"## {module}\n\n{sections[module].rstrip()}\n\n" for module in MODULES if module in sections)
    RESULTS.write_text(f"{_HEADER}{body}".rstrip() + "\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

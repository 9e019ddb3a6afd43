"""The files that a wheel has in addition to its modules: ``python -m distribution.assets FOLDER`` writes them.

They are the synthesised stacks of ``tenon demo``, which then needs no CDK and no Node.js, the instance types of the
local world, and uPlot, which draws the report's charts. They are made from pinned packages each time, so the repository
has no copies.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from cli.cluster import local_catalog
from cli.demo.request import DemoRequest
from cli.report import charts
from distribution import layout
from infra import assembly
from local.world import catalog_cache
from local.world.stack_context import stack_context
from shared.instance_types import catalog

_ROOT = Path(__file__).resolve().parent.parent
RELAYS = ("function", "pod")
"""What watches the cluster in the demo: the function, or the pod in clusters of users and in comparisons."""


def write(build: Path) -> None:
    """Write the files below the folder with a wheel's import package.

    Raises:
        OSError: Node.js or npm isn't installed.
        CalledProcessError: npm can't install uPlot.
    """
    cluster, tenon = DemoRequest().cluster, build / layout.IMPORT_PACKAGE
    for relay in RELAYS:
        context = stack_context(cluster, {"relay": relay})
        with tempfile.TemporaryDirectory() as temporary:
            synthesised = assembly.synthesise(cluster=cluster, out=Path(temporary) / "assembly", context=context)
            assemblies = tenon / layout.SOURCES / "infra" / assembly.IN_WHEEL.name
            folder = assemblies / assembly.name_in_wheel(cluster, context)
            folder.mkdir(parents=True, exist_ok=True)
            for path in (synthesised / "manifest.json", *synthesised.glob("*.template.json")):
                shutil.copyfile(path, folder / path.name)
    types = catalog_cache.load_or_fetch(region=local_catalog.REGION, seed=0, now=datetime.now(UTC))
    (tenon / "cli" / "cluster" / local_catalog.IN_WHEEL.name).write_bytes(catalog.FORM.encode(types))
    _write_charts(tenon / "cli" / "report" / "page" / charts.IN_WHEEL)


def _write_charts(target: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copyfile(_ROOT / name, Path(temporary) / name)
        quietly = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(["npm", "ci", "--omit=dev", "--prefer-offline", *quietly], cwd=temporary, check=True)  # noqa: S603, S607 (our own arguments, the user's npm)
        for name in (charts.SCRIPT, charts.STYLES, charts.LICENSE):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(temporary) / "node_modules" / "uplot" / name, target / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

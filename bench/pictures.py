"""Draws the pictures of docs/: the output of commands for a cluster in the local world, and the report of a demo run.

``make pictures`` runs it. Terminal output becomes SVG; the page becomes PNG with an installed Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from cli.cluster import live_reader
from cli.cluster.cluster_reference import ClusterReference
from cli.demo.request import DemoRequest, Scale
from cli.demo.runner import Demo
from cli.explain import explanation, pods
from cli.nodes import table, watch
from cli.plan import output, planning, what_if
from cli.report.page import page
from cli.report.recording import read
from local.world import World
from shared.base import runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.cluster.observed_cluster import ObservedCluster
    from cli.report.recording import Recording

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
_MANIFESTS = Path(__file__).resolve().parent.parent / "cli" / "demo" / "manifests"
_WIDTH = 118
_THEME = TerminalTheme(
    (22, 27, 34),
    (230, 233, 239),
    [(71, 80, 99), (240, 118, 110), (70, 195, 147), (240, 167, 61), (122, 162, 255), (205, 141, 219), (79, 182, 214),
     (230, 233, 239)],
    [(152, 162, 179), (240, 118, 110), (70, 195, 147), (240, 167, 61), (122, 162, 255), (205, 141, 219), (79, 182, 214),
     (255, 255, 255)],
)  # fmt: skip
_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_FONTS = '"DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace'
_UNSCHEDULABLE_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "trainer", "namespace": "default"},
    "spec": {
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "containers": [
            {"name": "main", "image": "trainer:1", "resources": {"requests": {"cpu": "2", "memory": "8Gi"}}}
        ],
    },
}


def main() -> int:
    """Draw all pictures."""
    chromium = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if chromium is None:
        print("Chromium is required on PATH for the report's picture", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    terminals()
    report(recorded(), chromium)
    return 0


def terminals() -> None:
    """The output of plan, explain and nodes for one cluster."""
    with World(cluster="shop") as world, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(world.kubectl_config())
        os.environ["KUBECONFIG"] = str(config)
        world.apply(_MANIFESTS / "consolidation.yaml")
        world.apply(_MANIFESTS / "spot-default.yaml")
        world.scale("default", "inflate", 14)
        world.run_until_idle()
        world.apply(_UNSCHEDULABLE_POD)
        world.run_until(
            lambda: any(h.type == "invocation" and h.name == "provisioner" for h in world.timeline.all[-5:])
        )
        world.scale("default", "inflate", 17)
        world.run_until(lambda: any(h.type == "claim created" for h in world.timeline.all[-20:]))
        reference = ClusterReference(cluster="shop")
        with (
            runtime.using(runtime.Runtime(environ=os.environ, now=world.clock.now, sleep=world.clock.sleep)),
            live_reader.read_only_aws(reference),
        ):
            observed = live_reader.read(live_reader.connect(reference), reference, now=world.clock.now())
            shot("nodes", "tenon nodes", lambda console: _nodes(console, observed))
            shot("explain", "tenon explain pod trainer", lambda console: _explain(console, observed))
            shot("plan", "tenon plan --what-if deployment/inflate=60", lambda console: _plan(console, observed))


def _nodes(console: Console, observed: ObservedCluster) -> None:
    node_rows = watch.read_rows(observed)
    console.print(table.render(node_rows, node_rows.rows, name=observed.name, width=console.width))


def _explain(console: Console, observed: ObservedCluster) -> None:
    explanation.show(console, pods.explain(observed, "default/trainer"), now=observed.now)


def _plan(console: Console, observed: ObservedCluster) -> None:
    changes = [what_if.parse("deployment/inflate=60", namespace="default")]
    changed = what_if.apply(observed, changes)
    computed = planning.make_plan(changed, changed.offerings.resolve_pools(changed.snapshot), should_stop=bool)
    output.show(console, changed, computed, assumptions="deployment/inflate=60")


def shot(name: str, title: str, draw: Callable[[Console], None]) -> None:
    """Draw on a virtual terminal, and save it as SVG without web fonts."""
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, width=_WIDTH, color_system="truecolor", highlight=False
    )
    draw(console)
    svg = console.export_svg(title=title, theme=_THEME, unique_id=f"tenon-{name}")
    svg = _FONT_FACE.sub("", svg).replace("Fira Code, monospace", _FONTS.replace('"', "'"))
    (IMAGES / f"{name}.svg").write_text(svg)
    print(IMAGES / f"{name}.svg")


def recorded() -> Recording:
    """A run of the demo that scales up and down several times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        steps = Scale(deployment="inflate", steps=(5, 40, 12, 60, 8, 0))
        request = DemoRequest(scales=(steps,), record=path, only_json=True, quiet=True)
        Demo(request, Console(file=io.StringIO())).run()
        return read(path)


def report(recording: Recording, chromium: str) -> None:
    """The page, light and dark."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only used here)

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_text(page(recording), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": 1180, "height": 1000}, color_scheme=scheme)
            tab.goto(path.as_uri())
            tab.wait_for_selector("body[data-ready]")
            tab.locator("#timeline").focus()
            for _ in range(4):
                tab.keyboard.press("ArrowDown")
            tab.screenshot(path=IMAGES / f"report-{scheme}.png", full_page=True)
            print(IMAGES / f"report-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    raise SystemExit(main())

"""How much code a reader has to know: the files that run from a pending pod to CreateFleet."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from functions.provisioner import handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from local.world import World

ROOT = Path(__file__).parents[2]
MOST_FILES = 110
"""As many as there are in a process that has cached nothing: more need a reason, and fewer are welcome. Eighteen
were added since there were 90: they tell other provisioners' objects apart, let a NodePool wait whose machines
died at boot, look again at nominations, prefer pools that are rarely interrupted, record prices, remember partial
launches, read rows that haven't expired, sign EKS's tokens, count containers that are resized in place, derive once
what the simulations of a snapshot share, and compare prices with volumes, spot risk, commitments, a NodePool's bounds
on spot, and free addresses."""


class Tracer:
    """The files below some folders of which a function was called while a function ran, in whatever thread."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.files: set[str] = set()
        self._folders = tuple(f"{ROOT / folder}/" for folder in folders)

    def over(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*arguments: object) -> object:
            before = sys.getprofile()
            sys.setprofile(self._called)
            threading.setprofile(self._called)
            try:
                return function(*arguments)
            finally:
                sys.setprofile(before)
                threading.setprofile(before)

        return traced

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            file = frame.f_code.co_filename
            if file.startswith(self._folders):
                self.files.add(file.removeprefix(f"{ROOT}/"))


@pytest.mark.flow
@pytest.mark.calm_world  # it profiles the thread of the test; functions that run at once have their own
def test_a_pending_pod_crosses_few_files_on_its_way_to_create_fleet(
    world: World, load: Callable[[str], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = next(o for o in load("spot-default.yaml") if o["kind"] == "Deployment")
    world.apply([*load("v1.yaml"), deployment])
    world.run_until_idle()
    relay, provisioner = Tracer(["relay"]), Tracer(["functions", "shared"])
    assert world.relay is not None
    monkeypatch.setattr(world.relay, "observe", relay.over(world.relay.observe))
    monkeypatch.setattr(handler, "handle", provisioner.over(handler.handle))
    world.scale("default", deployment["metadata"]["name"], 1)
    relay.over(world.run_until_idle)()
    assert len(world.nodes()) == 1
    assert {"relay/change_detection.py", "shared/scheduling/scheduler.py"} <= relay.files | provisioner.files
    crossed = sorted(relay.files | provisioner.files)
    assert len(crossed) <= MOST_FILES, "\n".join(crossed)

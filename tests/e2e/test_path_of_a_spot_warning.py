"""How much code a reader has to know: the files that run from a spot interruption warning until its node is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from functions.interruption import handler as interruption
from functions.lifecycle import handler as lifecycle
from functions.provisioner import handler as provisioner
from functions.termination import handler as termination
from tests.e2e.called_files import Tracer
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World

MOST_FILES = 137
"""As many as there are in a process that has cached nothing: more need a reason, and fewer are welcome."""


@pytest.mark.flow
@pytest.mark.calm_world  # it profiles the thread of the test; functions that run at once have their own
def test_a_spot_warning_crosses_few_files_until_its_node_is_replaced_and_gone(
    world: World, load: Callable[[str], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = next(o for o in load("spot-default.yaml") if o["kind"] == "Deployment")
    world.apply([*load("v1.yaml"), deployment])
    world.scale("default", deployment["metadata"]["name"], 1)
    world.run_until_idle()
    (warned,) = world.instances()
    functions = Tracer(["functions", "shared"])
    for handler in (interruption, termination, lifecycle, provisioner):
        monkeypatch.setattr(handler, "handle", functions.over(handler.handle))
    world.interrupt_spot([warned.id])
    world.run_until(lambda: warned.id not in {i.id for i in world.instances()} and len(running(world)) == 1)
    assert {
        "shared/interruptions/spot_interruption.py",
        "shared/launch/fleet/create_fleet.py",
        "shared/termination/drain.py",
        "functions/termination/instance_termination.py",
        "functions/lifecycle/claims/registration.py",
    } <= functions.files
    assert len(functions.files) <= MOST_FILES, "\n".join(sorted(functions.files))

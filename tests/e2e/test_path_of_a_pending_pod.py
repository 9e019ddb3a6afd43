"""How much code a reader has to know: the files that run from a pending pod to CreateFleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from functions.provisioner import handler
from tests.e2e.called_files import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.world import World

MOST_FILES = 86
"""As many as there are in a process that has cached nothing: more need a reason, and fewer are welcome.

The last is the module of API errors: a cluster without ProvisioningRequests answers 404 to the first list of them.
"""


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

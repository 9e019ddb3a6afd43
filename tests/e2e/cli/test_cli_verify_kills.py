"""`tenon verify` that is killed leaves nothing that the next one doesn't remove: kill -9 after each writing call."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cli.verify import clean_up
from cli.verify.objects import RENEWED
from local.faults import Crash
from local.kubernetes import kinds
from tests.e2e.cli.verified_world import Kill, VerifiedWorld, verified_world

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
KILLED_IN = {"pool": 2, "client token": 3, "node": 2, "drain": 5, "interruption": 3, "protection": 5, "clean-up": 3}
"""The steps that write, each with the fewest of its writing calls: the run is killed before the first, the second …"""


@pytest.fixture
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerifiedWorld]:
    with verified_world(tmp_path_factory.mktemp("verify")) as opened:
        yield opened


def killed(verified: VerifiedWorld, step: str, writes: int) -> bool:
    """Whether a run was killed after that many writing calls of the step; else it has ended."""
    begun = verified.begin()
    kill = Kill(begun, step, writes)
    kill.inject(verified.world)
    try:
        verified.verify(begun, "node" if step == "clean-up" else step)
    except Crash:
        return True
    finally:
        verified.world.faults.clear()
    return False


@pytest.mark.parametrize("step", KILLED_IN)
def test_whatever_a_killed_run_left_is_removed_by_the_next_one(verified: VerifiedWorld, step: str) -> None:
    writes = 0
    while killed(verified, step, writes):
        left = verified.left()
        assert left, writes  # its namespace at least, until the last call of the clean-up
        cleaned = verified.tenon("--clean-up")
        assert (cleaned.code, cleaned.out) == (0, "nothing is left\n"), cleaned.err
        assert verified.left() == [], (writes, left)
        writes += 1
    assert writes >= KILLED_IN[step]
    assert verified.left() == []
    assert verified.world.dead_letters() == []


def test_a_run_waits_until_one_that_was_killed_counts_as_dead_and_removes_what_it_left(verified: VerifiedWorld) -> None:
    assert killed(verified, "protection", 3)
    assert verified.left()
    before = verified.world.clock.now()
    assert verified.steps("wiring")["wiring"]["status"] == "passed"
    assert verified.world.clock.now() - before >= clean_up.ALIVE_FOR - timedelta(seconds=10)


def test_a_run_is_refused_while_another_one_is_alive(verified: VerifiedWorld) -> None:
    assert killed(verified, "pool", 1)
    (name,) = (left.partition(" ")[2] for left in verified.left() if left.startswith("Namespace"))
    world = verified.world

    def renew(_delivery: object) -> None:
        seen = {"metadata": {"annotations": {RENEWED: world.clock.now().isoformat()}}}
        world.store.patch(kinds.NAMESPACES, name, seen)

    renew(None)
    world.aws.event_buses.observe(renew)  # at least each minute
    refused = verified.tenon("--yes")
    assert refused.code == 1
    assert refused.err == (
        f"tenon verify: another run is in progress (namespace {name}); wait for its end, or end it with --clean-up\n"
    )
    assert f"Namespace {name}" in verified.left()


def test_pods_of_a_killed_run_end_and_so_do_their_nodes(verified: VerifiedWorld) -> None:
    assert killed(verified, "node", 1)
    assert verified.world.instances()
    verified.world.run_for(timedelta(minutes=40))
    assert verified.world.instances() == []

"""When an unhealthy node reboots in place, and when it is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.api import reboot
from shared.base.struct import with_fields
from shared.disruption import repair
from shared.disruption.command import REBOOT, REPLACE
from tests.unit.disruption.conftest import NOW
from tests.unit.disruption.unhealthy_cluster import annotate, annotate_pool, break_node, minutes, with_repair

if TYPE_CHECKING:
    from datetime import timedelta

    from shared.disruption.command import MethodResult
    from shared.disruption.disruption_state import DisruptionState
    from tests.unit.disruption.conftest import Cluster

FAULT = "AcceleratedHardwareReady"
GONE_AFTER_A_REBOOT, FATAL = "NvidiaXID48Error", "NvidiaXID79Error"


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """A cluster whose NodePool asks for reboots, with an unhealthy node."""
    cluster = with_repair(cluster)
    annotate_pool(cluster, {"tenon.sh/repair": "reboot"})
    break_node(cluster, "a", type=FAULT, reason=GONE_AFTER_A_REBOOT, ago=minutes(11))
    return cluster


def compute(cluster: Cluster, *, reboots: bool = True) -> MethodResult:
    state: DisruptionState = with_fields(cluster.state(), reboots=reboots)
    return repair.compute(state, cluster.budget_tracker())


def actions(cluster: Cluster, *, reboots: bool = True) -> list[str]:
    return [command.repair_action for command in compute(cluster, reboots=reboots).commands]


def rebooted(cluster: Cluster, ago: timedelta) -> None:
    """A reboot of the node ended so long ago."""
    claim = reboot.with_request(cluster.claims[0], "", now=NOW - ago - minutes(2))
    cluster.claims[0] = reboot.ended(claim, reboot.SUCCEEDED, "", now=NOW - ago)


def test_a_node_that_the_policy_reboots_needs_no_replacement_and_saves_nothing(cluster: Cluster) -> None:
    (command,) = compute(cluster).commands
    assert (command.repair_action, command.nodes, command.replacements, command.savings) == (REBOOT, ("a",), (), 0)
    assert command.grace_period == minutes(5)


def test_it_is_replaced_where_the_policy_says_so(cluster: Cluster) -> None:
    break_node(cluster, "a", type=FAULT, reason=FATAL, ago=minutes(11))
    assert actions(cluster) == [REPLACE]


def test_it_is_replaced_where_another_condition_needs_that(cluster: Cluster) -> None:
    break_node(cluster, "a", type="StorageReady", ago=minutes(31))
    assert actions(cluster) == [REPLACE]


def test_it_is_replaced_where_the_nodepool_only_says_true(cluster: Cluster) -> None:
    annotate_pool(cluster, {"tenon.sh/repair": "true"})
    result = compute(cluster, reboots=False)
    assert [c.repair_action for c in result.commands] == [REPLACE]
    assert result.warnings == ()
    assert actions(cluster) == [REPLACE]


def test_it_is_replaced_where_the_deployment_has_no_right_and_an_event_names_the_option(cluster: Cluster) -> None:
    result = compute(cluster, reboots=False)
    assert [c.repair_action for c in result.commands] == [REPLACE]
    (warning,) = result.warnings
    assert (warning.reason, warning.ref.name) == ("RebootNotPossible", "a")
    assert "-c reboot=on" in warning.message


@pytest.mark.parametrize(
    ("history", "action"),
    [
        ("2026-05-01T08:00:00Z", REBOOT),
        ("2026-04-30T11:00:00Z,2026-05-01T08:00:00Z", REBOOT),
        ("2026-04-30T13:00:00Z,2026-05-01T08:00:00Z", REPLACE),
    ],
)
def test_the_third_reboot_within_a_day_is_a_replacement(cluster: Cluster, history: str, action: str) -> None:
    annotate(cluster, "a", {names.REBOOTS: history}, claim=True)
    assert actions(cluster) == [action]


def test_a_condition_is_tolerated_again_after_a_reboot(cluster: Cluster) -> None:
    rebooted(cluster, minutes(9))
    result = compute(cluster)
    assert (result.commands, result.requeue_at) == ((), NOW + minutes(1))
    rebooted(cluster, minutes(10))
    assert actions(cluster) == [REBOOT]


def test_a_node_that_reboots_is_left_alone_and_holds_its_place_in_the_budget(cluster: Cluster) -> None:
    cluster.claims[0] = reboot.with_request(cluster.claims[0], "", now=NOW)
    assert compute(cluster).commands == ()

"""What moving a pod costs follows from the work that it loses: as it says, or its NodePool, or its start-up time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api.kubernetes import Pod, PodStatus
from shared.api.lost_work import lost_work, lost_work_problem, start_up_time
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodepool import NodePool
from shared.api.validation.nodepool import validate_node_pool
from shared.disruption.disruption_cost import RESTART_COST, pod_disruption_cost

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = "tenon.sh/lost-work"


def pod(annotation: str | None = None, *, ready_after: timedelta | None = None, status: str = "True") -> Pod:
    conditions = []
    if ready_after is not None:
        conditions = [Condition(type="Ready", status=status, last_transition_time=NOW + ready_after)]
    return Pod(
        metadata=ObjectMeta(name="web", annotations={} if annotation is None else {KEY: annotation}),
        status=PodStatus(start_time=NOW, conditions=conditions),
    )


@pytest.mark.parametrize(
    ("annotation", "of_pool", "expected"),
    [
        (None, {}, 10 * MINUTE),
        ("45m", {}, 45 * MINUTE),
        ("0s", {KEY: "2h"}, timedelta()),
        (None, {KEY: "2h"}, 120 * MINUTE),
        ("long", {KEY: "2h"}, 120 * MINUTE),
        ("25h", {}, 10 * MINUTE),
        ("Never", {}, 10 * MINUTE),
        ("-5m", {}, 10 * MINUTE),
    ],
)
def test_the_pod_says_it_then_its_nodepool(
    annotation: str | None, of_pool: Mapping[str, str], expected: timedelta
) -> None:
    assert lost_work(pod(annotation), of_pool) == expected


@pytest.mark.parametrize(
    ("ready_after", "status", "expected"),
    [
        (20 * MINUTE, "True", 20 * MINUTE),
        (MINUTE, "True", 10 * MINUTE),
        (61 * MINUTE, "True", 10 * MINUTE),
        (20 * MINUTE, "False", 10 * MINUTE),
        (-MINUTE, "True", 10 * MINUTE),
        (None, "True", 10 * MINUTE),
    ],
)
def test_without_an_annotation_it_is_what_the_pod_needed_to_become_ready(
    ready_after: timedelta | None, status: str, expected: timedelta
) -> None:
    assert lost_work(pod(ready_after=ready_after, status=status), {}) == expected


def test_the_start_up_time_of_a_pod_that_became_ready_again_is_unknown() -> None:
    assert start_up_time(pod(ready_after=300 * MINUTE)) == timedelta()


def test_a_move_costs_the_price_of_the_resources_for_that_time_and_the_restart() -> None:
    assert pod_disruption_cost(pod("2h"), 0.5) == pytest.approx(RESTART_COST + 2 * 0.5)
    assert pod_disruption_cost(pod("0s"), 0.5) == pytest.approx(RESTART_COST)
    assert pod_disruption_cost(pod(), 0.6, {KEY: "30m"}) == pytest.approx(RESTART_COST + 0.3)


def test_what_is_no_duration_is_named() -> None:
    assert lost_work_problem({}) == lost_work_problem({KEY: "90m"}) == ""
    why = '"soon" must be a duration from "0s" to "24h"'
    assert lost_work_problem({KEY: "soon"}) == why
    pool = NodePool(metadata=ObjectMeta(name="default", annotations={KEY: "soon"}))
    assert f"metadata.annotations[{KEY}]: {why}" in list(validate_node_pool(pool))

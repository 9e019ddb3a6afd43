"""Generated loads: the same for the same seed, and with the shapes that their parameters promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.month import load_generator
from bench.month.load_generator import DAY, HOUR, LOADS

if TYPE_CHECKING:
    from bench.month.load_trace import Trace


@pytest.mark.parametrize("load", list(LOADS))
def test_a_seed_gives_the_same_pods_and_another_seed_others(load: str) -> None:
    trace = load_generator.generate(load, seed=1, seconds=DAY)
    assert trace == load_generator.generate(load, seed=1, seconds=DAY)
    assert trace != load_generator.generate(load, seed=2, seconds=DAY)


@pytest.mark.parametrize("load", list(LOADS))
def test_names_are_unique_and_pods_are_deleted_after_they_are_created(load: str) -> None:
    trace = load_generator.generate(load, seed=1, seconds=3 * DAY)
    assert len({p.name for p in trace.pods}) == len(trace.pods)
    assert all(0 <= p.created < p.deleted for p in trace.pods)


def test_services_have_fewer_pods_at_night_and_on_weekends() -> None:
    trace = load_generator.generate("services", seed=1, seconds=7 * DAY)
    afternoon, night, saturday = (_running(trace, day * DAY + hour * HOUR) for day, hour in ((2, 14), (2, 2), (5, 14)))
    assert night < 0.8 * afternoon
    assert saturday < 0.95 * afternoon


def test_a_rolling_update_replaces_all_pods_of_a_service_with_a_quarter_too_many() -> None:
    trace = load_generator.generate("services", seed=1, seconds=7 * DAY)
    pods = [p for p in trace.pods if p.workload.startswith("Deployment/web-0-03/")]
    first, second = ([p for p in pods if p.workload.endswith(f"/{revision}")] for revision in (1, 2))
    began, ended = min(p.created for p in second), max(p.deleted for p in first)
    before = sum(p.created < began <= p.deleted for p in first)
    during = max(sum(p.created <= t < p.deleted for p in (*first, *second)) for t in range(began, ended))
    assert ended - began < HOUR
    assert before < during <= before + -(-before // 4)


def test_tasks_with_gpus_request_one_or_eight() -> None:
    trace = load_generator.generate("gpus", seed=1, seconds=30 * DAY)
    requested = [p.gpus for p in trace.pods if p.workload.startswith("Job/")]
    assert set(requested) == {1, 8}
    assert 0 < requested.count(8) / len(requested) < 0.02


def _running(trace: Trace, time: int) -> int:
    return sum(p.created <= time < p.deleted for p in trace.pods)

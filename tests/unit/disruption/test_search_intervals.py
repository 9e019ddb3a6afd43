"""How soon consolidation searches again in a cluster in which it found nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from functions.disruption.controller import NoSavings

START = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_searches_of_an_unchanged_cluster_are_twice_as_far_apart_each_time_up_to_ten_minutes() -> None:
    searched = [START]
    while searched[-1] - START < timedelta(hours=1):
        searched.append(NoSavings(fingerprint="same", since=START, searched_at=searched[-1]).until)
    minutes = [(at - START) / timedelta(minutes=1) for at in searched]
    assert minutes == [0, 1, 2, 4, 8, 16, 26, 36, 46, 56, 66]

"""The annotation of the cluster's Lease that says which zones traffic is shifted away from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.labels import SHIFTED_ZONES
from shared.api.meta import EARLIEST, LATEST
from shared.api.zonal_shift import current_shifts, format_shifts, is_shifted, read_shifts, shift_annotation

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ZONES = st.dictionaries(
    st.from_regex(r"[a-z]{2}-[a-z]+-[0-9][a-z]", fullmatch=True),
    st.datetimes(EARLIEST.replace(tzinfo=None), LATEST.replace(tzinfo=None), timezones=st.just(UTC)),
    max_size=4,
)


@given(ZONES)
def test_what_is_written_is_read_again(shifts: dict[str, datetime]) -> None:
    written = shift_annotation(shifts)
    assert read_shifts({SHIFTED_ZONES: written} if written is not None else {}) == shifts


def test_a_shift_ends_at_its_time_though_nobody_removes_it() -> None:
    annotations = {SHIFTED_ZONES: f"a={(NOW + timedelta(minutes=1)).isoformat()},b={NOW.isoformat()}"}
    assert current_shifts(annotations, now=NOW) == {"a": NOW + timedelta(minutes=1)}
    assert is_shifted(annotations, "a", now=NOW)
    assert not is_shifted(annotations, "b", now=NOW)
    assert not is_shifted(annotations, "a", now=NOW + timedelta(minutes=1))


@pytest.mark.parametrize("text", ["", "a", "a=", "a=tomorrow", "=2026-11-26T12:00:00Z", "a=2026-11-26T12:00:00"])
def test_text_that_is_none_of_ours_shifts_nothing(text: str) -> None:
    assert read_shifts({SHIFTED_ZONES: text}) == {}


def test_users_read_zones_and_ends() -> None:
    assert format_shifts({"b": NOW, "a": NOW}, ["a", "c"]) == "a (until 2026-11-26 12:00 UTC)"

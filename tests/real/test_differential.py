"""The embedded API server answers random requests as the real one does."""

from __future__ import annotations

from tests.real.differential.random_session import recorded
from tests.real.differential.replay import replay

SEEDS = range(3)
REQUESTS_EACH = 500


def test_random_requests_are_answered_alike(embedded_version: str) -> None:
    result = replay(recorded(SEEDS, REQUESTS_EACH, kubernetes=embedded_version))

    assert result.texts() == []
    assert result.repeated >= len(SEEDS) * REQUESTS_EACH

"""The embedded API server answers random requests as the real one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.real.differential.random_session import recorded
from tests.real.differential.replay import replay

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(3)
REQUESTS_EACH = 500


def test_random_requests_are_answered_alike(kubeconfig: Path | None) -> None:
    if kubeconfig is not None:
        pytest.skip("needs an API server without controllers, whose history can be read")
    result = replay(recorded(SEEDS, REQUESTS_EACH))

    assert result.texts() == []
    assert result.repeated >= len(SEEDS) * REQUESTS_EACH

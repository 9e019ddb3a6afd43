from __future__ import annotations

from datetime import UTC, datetime

import pytest


@pytest.fixture
def start() -> datetime:
    return datetime(2026, 11, 21, 12, tzinfo=UTC)

from __future__ import annotations

import pytest

from tests.local.controllers.environment import Environment


@pytest.fixture
def env() -> Environment:
    return Environment()

from __future__ import annotations

import pytest

from tests.integration.controllers.environment import Environment


@pytest.fixture
def env() -> Environment:
    return Environment()

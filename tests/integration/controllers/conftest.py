from __future__ import annotations

import pytest

from tests.integration.controllers.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()

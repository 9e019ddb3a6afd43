from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def tenon() -> Callable[..., CommandResult]:
    """`tenon …`."""
    return call

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from shared import cloud_provider
from shared.cloud_provider import Portion
from tests.integration.chromium import CHROMIUM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (only where there is a browser)

    with sync_playwright() as playwright:
        # root in a container has no user namespaces to make a sandbox of
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(params=["whole", "in portions"])
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many sweeps list each instance once: in a large cluster, each lists a portion."""
    if request.param == "whole":
        return 1
    monkeypatch.setattr(cloud_provider, "MAX_PORTION", 0)
    return Portion.of(1, at=datetime.now(UTC)).count

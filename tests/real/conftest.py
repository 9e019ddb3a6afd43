"""Tests on a real control plane, in real time: only ``make test-real`` runs them, and skips them where it can't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from local.real import binary


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that no other target runs it."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def kubeconfig() -> Path | None:
    """The kubeconfig of the throw-away cluster to test on; None: a control plane of our own, built by Go."""
    path = os.environ.get("TENON_TEST_KUBECONFIG")
    if path:
        return Path(path)
    if not binary.go():
        pytest.skip("needs Go to build a control plane, or `make test-real KUBECONFIG=…` with a throw-away cluster")
    return None

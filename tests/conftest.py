"""For all tests: properties are held on any machine, however busy, and always on the same examples.

Only the long ones (``@settings(settings.get_profile("fresh"), ...)``) look at new examples; what fails once is
kept in ``.hypothesis`` and tried first from then on.
"""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import settings

from tests.infra.cdk_command import CDK

settings.register_profile("fresh", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("tenon", deadline=None, derandomize=True)
settings.load_profile("tenon")


@pytest.fixture(scope="session")
def fetched() -> None:
    """Skips the tests unless npm has the command line or can download it."""
    try:
        done = subprocess.run([*CDK, "--version"], capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        pytest.skip("npm doesn't answer, and the CDK's command line isn't kept here")
    if done.returncode:
        pytest.skip(f"the CDK's command line can't be fetched: {done.stderr.strip()[-200:]}")

"""For all tests: properties are held on any machine, however busy, and always on the same examples.

Only the long ones (``@settings(settings.get_profile("fresh"), ...)``) look at new examples; what fails once is
kept in ``.hypothesis`` and tried first from then on. A process reads botocore's models once, and moto has no images
of its own: together they were half of the time of a test with an account.
"""

from __future__ import annotations

import functools
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import settings

from tests.infra.cdk_command import CDK

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("fresh", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("tenon", deadline=None, derandomize=True)
settings.load_profile("tenon")
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # 500 images that no EKS node uses, made for each account


@pytest.fixture(scope="session", autouse=True)
def service_models() -> Iterator[None]:
    """Lets all of boto3's sessions share what they read of botocore's models; botocore lets those of one session."""
    read = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture(scope="session")
def fetched() -> None:
    """Skips the tests unless npm has the command line or can download it."""
    try:
        done = subprocess.run([*CDK, "--version"], capture_output=True, text=True, check=False, timeout=180)
    except subprocess.TimeoutExpired:
        pytest.skip("npm doesn't answer, and the CDK's command line isn't kept here")
    if done.returncode:
        pytest.skip(f"the CDK's command line can't be fetched: {done.stderr.strip()[-200:]}")

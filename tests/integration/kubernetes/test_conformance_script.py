"""The checks that were written against a real apiserver, where they are at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.kubernetes.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from tests.integration.kubernetes.conftest import Cluster

_SCRIPT = Path(__file__).parents[4] / "shared" / "conformance" / "kubernetes_api.py"


@pytest.mark.skipif(not _SCRIPT.exists(), reason="the script is no part of this repository")
def test_every_check_of_the_conformance_script_passes(cluster: Cluster) -> None:
    ran = subprocess.run(
        [sys.executable, str(_SCRIPT), cluster.server.url, ADMIN_TOKEN], capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines()[-1] == "31 passed, 0 failed", ran.stdout + ran.stderr

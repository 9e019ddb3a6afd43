"""The embedded API server passes every check of the conformance script, which was written against a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from local.kubernetes.apiserver.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from tests.local.kubernetes_api.conftest import Cluster

_SCRIPT = Path(__file__).parents[2] / "conformance" / "kubernetes_api.py"


def test_every_check_of_the_conformance_script_passes(cluster: Cluster) -> None:
    ran = subprocess.run(
        [sys.executable, str(_SCRIPT), cluster.server.url, ADMIN_TOKEN], capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines()[-1] == "31 passed, 0 failed", ran.stdout + ran.stderr

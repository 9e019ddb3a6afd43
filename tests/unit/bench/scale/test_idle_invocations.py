"""An invocation in whose minute nothing changed reads what kubelets report, and NodeClaims."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from infra import function_sizes


def test_an_idle_provisioner_reads_no_pods_and_no_list_of_nodes() -> None:
    command = [sys.executable, "-m", "bench.scale.invocations", "measure", function_sizes.PROVISIONER, "1000"]
    environ = {**os.environ, **function_sizes.RUNTIME}
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    requests = json.loads(process.stdout.splitlines()[-1])["idle"]["requests"]
    assert not {"list pods", "list nodes"} & requests.keys()
    assert sum(counts["bytes"] for counts in requests.values()) < 5_000_000

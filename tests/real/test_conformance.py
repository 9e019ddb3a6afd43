"""The conformance script, to which the embedded API server is held, holds on the real one, and both answer the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.real.control_plane import ControlPlane
from local.real.request_log import RequestLog
from tests.real.differential.replay import replay

if TYPE_CHECKING:
    from types import ModuleType

_SCRIPT = Path(__file__).parents[1] / "conformance" / "kubernetes_api.py"
_NEEDS_COMPACTION = "watch from an expired resourceVersion -> 410 (a real server needs an etcd compaction first)"


def test_the_real_api_server_passes_all_checks_but_the_one_that_needs_a_compaction(
    kubeconfig: Path | None, kubernetes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kubeconfig is not None:
        pytest.skip("the script needs a token, and leaves objects behind")
    log = RequestLog(with_bodies=True)
    with ControlPlane(kubernetes=kubernetes, recorded=True) as control_plane, log.recorded():
        _script().main(control_plane.url, control_plane.admin_token)
        recording = control_plane.recording(log.bodies)

    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines if line.startswith("FAIL")]
    assert len(failed) == 1, lines
    assert _NEEDS_COMPACTION in failed[0]
    assert lines[-1] == "30 passed, 1 failed"
    assert replay(recording).texts() == []


def _script() -> ModuleType:
    """The script as a module, so that its requests can be recorded."""
    spec = importlib.util.spec_from_file_location("kubernetes_api", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

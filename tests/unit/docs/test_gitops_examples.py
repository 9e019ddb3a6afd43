"""The health checks of docs/gitops.md judge as a reader expects; the template of docs/alarm-channels.md is valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shared.api import crds
from tests.unit.code.source import ROOT
from tests.unit.docs.gitops_page import EXPRESSIONS, SCRIPTS, is_true_of

SERVED = {
    (f"{d['spec']['group']}/{version['name']}", d["spec"]["names"]["kind"])
    for d in crds.load()
    for version in d["spec"]["versions"]
    if version["served"]
}


@pytest.mark.parametrize("check", EXPRESSIONS, ids=lambda check: check["kind"])
@pytest.mark.parametrize(
    ("status", "observed", "current", "failed"),
    [("True", 2, True, False), ("False", 2, False, True), ("True", 1, False, False), ("Unknown", 2, False, False)],
)
def test_flux_waits_for_the_status_of_the_newest_spec(
    check: dict[str, str],
    status: str,
    observed: int,
    current: bool,  # noqa: FBT001
    failed: bool,  # noqa: FBT001
) -> None:
    (type_,) = set(re.findall(r"c\.type == '(\w+)'", check["current"] + check["failed"]))
    condition = {"type": type_, "status": status, "observedGeneration": observed}
    obj = {"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Other", "status": "True"}, condition]}}
    assert is_true_of(check["current"], obj) is current
    assert is_true_of(check["failed"], obj) is failed


def test_every_kind_is_one_of_the_definitions() -> None:
    assert {(check["apiVersion"], check["kind"]) for check in EXPRESSIONS} <= SERVED
    assert SCRIPTS.keys() <= {f"{version.partition('/')[0]}_{kind}" for version, kind in SERVED}


def test_the_template_of_the_channels_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "alarm-channels.md").read_text(encoding="utf-8")
    (tmp_path / "channels.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    command = [
        str(Path(sys.executable).with_name("cfn-lint")),
        "--regions",
        "eu-central-1",
        "--",
        str(tmp_path / "channels.yaml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

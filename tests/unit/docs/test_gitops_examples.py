"""The health checks of docs/gitops.md judge as a reader expects; the template of docs/alarm-channels.md is valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml
from celpy.adapter import json_to_cel

from shared.api import crds
from tests.unit.code.source import ROOT

PAGE = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
(FLUX,) = (block for block in BLOCKS if block["kind"] == "Kustomization")
CHECKS = FLUX["spec"]["healthCheckExprs"]
SERVED = {
    (f"{d['spec']['group']}/{version['name']}", d["spec"]["names"]["kind"])
    for d in crds.load()
    for version in d["spec"]["versions"]
    if version["served"]
}


def judged(expression: str, obj: dict[str, Any]) -> bool:
    """What the expression says of an object, whose fields are its variables."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({key: json_to_cel(value) for key, value in obj.items()}))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check["kind"])
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
    assert judged(check["current"], obj) is current
    assert judged(check["failed"], obj) is failed


def test_every_kind_is_one_of_the_definitions() -> None:
    assert {(check["apiVersion"], check["kind"]) for check in CHECKS} <= SERVED
    (settings,) = (block["data"] for block in BLOCKS if block["kind"] == "ConfigMap")
    kinds = {key.removeprefix("resource.customizations.health.") for key in settings}
    assert kinds <= {f"{version.partition('/')[0]}_{kind}" for version, kind in SERVED}


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

"""The health checks of docs/gitops.md, and what they say of an object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import celpy
import yaml
from celpy.adapter import json_to_cel

from tests.unit.code.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
_PREFIX = "resource.customizations.health."
(_FLUX,) = (block for block in BLOCKS if block["kind"] == "Kustomization")
(_ARGO_CD,) = (block["data"] for block in BLOCKS if block["kind"] == "ConfigMap")
EXPRESSIONS: list[dict[str, str]] = _FLUX["spec"]["healthCheckExprs"]
"""Flux's, each with apiVersion and kind."""
SCRIPTS: dict[str, str] = {key.removeprefix(_PREFIX): script for key, script in _ARGO_CD.items()}
"""Argo CD's, by "group_Kind"."""


def is_true_of(expression: str, obj: Mapping[str, Any]) -> bool:
    """What an expression of Flux says of an object, whose fields are its variables."""
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression))
    return bool(program.evaluate({key: json_to_cel(value) for key, value in obj.items()}))

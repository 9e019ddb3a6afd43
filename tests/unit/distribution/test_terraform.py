"""The Terraform module names the stack as the CDK does; its syntax is OpenTofu's business."""

from __future__ import annotations

import hashlib
import re

from infra.cluster import resource_names
from tests.unit.code.source import ROOT

MODULE = ROOT / "distribution" / "terraform"
UNDERSCORED = "a_b"


def test_the_stacks_name_is_cut_from_the_same_hash() -> None:
    text = (MODULE / "main.tf").read_text(encoding="utf-8")
    (digits,) = re.findall(r"substr\(sha256\(var\.cluster\), 0, (\d+)\)", text)
    digest = hashlib.sha256(UNDERSCORED.encode()).hexdigest()[: int(digits)]
    assert resource_names.stack(UNDERSCORED) == f"tenon-a-b-{digest}"


def test_every_variable_is_used_and_described() -> None:
    declared = (MODULE / "variables.tf").read_text(encoding="utf-8")
    names = set(re.findall(r'^variable "(\w+)"', declared, re.MULTILINE))
    used = set(re.findall(r"\bvar\.(\w+)", (MODULE / "main.tf").read_text(encoding="utf-8")))
    assert used == names
    assert declared.count("description =") == len(names)

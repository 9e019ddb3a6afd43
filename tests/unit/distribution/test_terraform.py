"""The Terraform module: what it asks of the AWS provider, and what it makes of a cluster's name.

The AWS provider is not among what tests can fetch, so `terraform validate` can't run: the arguments are compared with
the provider's documentation. What needs no provider runs in Terraform or OpenTofu where one of them is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from infra.cluster import resource_names
from tests.unit.code.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MODULE = ROOT / "distribution" / "terraform"
MAIN = (MODULE / "main.tf").read_text(encoding="utf-8")
UNDERSCORED = "a_b"
COMMAND = shutil.which("tofu") or shutil.which("terraform")
needs_terraform = pytest.mark.skipif(COMMAND is None, reason="neither OpenTofu nor Terraform is installed")
ARGUMENTS = {
    *("capabilities", "disable_rollback", "iam_role_arn", "name", "notification_arns", "on_failure", "parameters"),
    *("policy_body", "policy_url", "region", "tags", "template_body", "template_url", "timeout_in_minutes"),
}
"""Those of aws_cloudformation_stack (website/docs/r/cloudformation_stack.html.markdown of the provider)."""
TIMEOUTS = {"create", "update", "delete"}
ATTRIBUTES = {"id", "outputs", "tags_all"}


def run(*arguments: str, folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    assert COMMAND is not None
    environment = {**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "NO_COLOR": "1"}
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def without_provider(tmp_path: Path) -> Path:
    """The module without its resource: variables and locals."""
    (tmp_path / "variables.tf").write_text((MODULE / "variables.tf").read_text(encoding="utf-8"))
    (tmp_path / "main.tf").write_text(MAIN.partition("resource ")[0])
    return tmp_path


def test_the_stacks_name_is_cut_from_the_same_hash() -> None:
    (digits,) = re.findall(r"substr\(sha256\(var\.cluster\), 0, (\d+)\)", MAIN)
    digest = hashlib.sha256(UNDERSCORED.encode()).hexdigest()[: int(digits)]
    assert resource_names.stack(UNDERSCORED) == f"tenon-a-b-{digest}"


def test_every_variable_is_used_and_described() -> None:
    declared = (MODULE / "variables.tf").read_text(encoding="utf-8")
    names = set(re.findall(r'^variable "(\w+)"', declared, re.MULTILINE))
    used = set(re.findall(r"\bvar\.(\w+)", MAIN))
    assert used == names
    assert declared.count("description =") == len(names)


def test_the_resource_has_only_arguments_that_the_provider_documents() -> None:
    (body,) = re.findall(r'^resource "aws_cloudformation_stack" "tenon" \{\n(.*?)^\}', MAIN, re.MULTILINE | re.DOTALL)
    arguments = set(re.findall(r"^  (\w+)\s+=", body, re.MULTILINE))
    assert {"name", "template_url"} <= arguments <= ARGUMENTS
    assert not {"on_failure", "disable_rollback"} <= arguments  # they exclude each other
    assert "parameters" not in arguments  # the published template has defaults (test_cli_template.py)
    assert re.findall(r"^  (\w+) \{", body, re.MULTILINE) == ["timeouts"]
    assert set(re.findall(r"^    (\w+)\s+=", body, re.MULTILINE)) <= TIMEOUTS
    outputs = (MODULE / "outputs.tf").read_text(encoding="utf-8")
    read = set(re.findall(r"aws_cloudformation_stack\.tenon\.(\w+)", outputs))
    assert read <= ATTRIBUTES | ARGUMENTS


@needs_terraform
def test_the_files_are_well_formed_and_formatted() -> None:
    done = run("fmt", "-check", "-diff", str(MODULE), folder=MODULE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_terraform
@pytest.mark.parametrize("cluster", ["prod", UNDERSCORED, "a-b", "A_b__C-", "9" * 100])
def test_the_stacks_name_is_the_cdks(without_provider: Path, cluster: str) -> None:
    variables = (f"-var=cluster={cluster}", "-var=template_url=https://b.s3.amazonaws.com/t.json")
    done = run("console", *variables, folder=without_provider, text="local.stack_name\n")
    assert done.stdout.strip() == f'"{resource_names.stack(cluster)}"', done.stderr


@needs_terraform
@pytest.mark.parametrize("cluster", ["", "-a", "a.b", "a" * 101, "a b"])
def test_what_is_no_clusters_name_is_refused(without_provider: Path, cluster: str) -> None:
    variables = (f"-var=cluster={cluster}", "-var=template_url=https://b.s3.amazonaws.com/t.json")
    done = run("plan", *variables, folder=without_provider)
    assert done.returncode == 1
    assert "It must be the name of an EKS cluster" in done.stderr

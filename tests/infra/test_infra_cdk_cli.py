"""The CDK's CLI: context that it refuses and accepts; ``tests/e2e/test_cdk_deploys.py`` deploys with it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra import assembly
from tests.infra.cdk_command import CDK

pytestmark = pytest.mark.usefixtures("fetched")
SAID = ["-c", "cluster=demo", "-c", "bundle=source", "-c", "clusterSide=printed"]


@pytest.fixture
def ls(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `cdk ls` in the checkout as a user whose ~/.cdk.json has a key for another app."""
    (tmp_path / ".cdk.json").write_text(json.dumps({"context": {"colour": "blue"}}))
    environ = {
        # what is kept in the home folder is still used
        "npm_config_cache": str(Path.home() / ".npm"),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(Path.home() / ".cache" / "aws" / "jsii" / "package-cache"),
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": str(assembly.CHECKOUT),
        "HOME": str(tmp_path),
        "CI": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*CDK, "ls", "--no-notices", "--output", str(tmp_path / "cdk.out"), *arguments]
        return subprocess.run(
            command, cwd=assembly.CHECKOUT, env=environ, capture_output=True, text=True, check=False, timeout=180
        )

    return run


def test_without_a_cluster_the_cli_is_given_the_command_to_type(ls: Callable[..., Any]) -> None:
    done = ls()
    assert done.returncode == 1
    (line,) = (line for line in (done.stdout + done.stderr).splitlines() if "no cluster" in line)
    assert "npx aws-cdk@2 deploy -c cluster=NAME" in line
    assert "Traceback" not in done.stdout + done.stderr


def test_a_misspelt_key_is_refused_under_the_cli_too(ls: Callable[..., Any]) -> None:
    done = ls(*SAID, "-c", "nodegroups=on")
    assert done.returncode == 1
    assert "-c nodegroups=on: unknown; did you mean nodeGroups?" in done.stdout + done.stderr


def test_keys_of_the_cdk_and_of_the_users_other_apps_are_accepted(ls: Callable[..., Any]) -> None:
    done = ls(*SAID, "-c", "@aws-cdk/core:newStyleStackSynthesis=true")  # and what the command line adds itself
    assert (done.returncode, done.stdout.strip()) == (0, "tenon-demo"), done.stderr

"""The stack, checked by cdk-nag and cfn-lint."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra import assembly
from infra.bundle import bundling
from infra.cluster.stack import TenonStack
from infra.options import stack_options
from infra.shadow.stack import ShadowStack
from tests.infra.nag_findings import checked_app, findings


@pytest.mark.parametrize(
    "options",
    [{}, {"tracing": "active"}, {"mode": "shadow"}, {"relay": "webhook"}],
    ids=["by-default", "traced", "shadow", "webhook"],
)
def test_every_finding_of_cdk_nag_is_acknowledged(options: dict[str, str], tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    code = {name: str(path) for name, path in bundling.bundles(assembly.CHECKOUT, mode="source").items()}
    stack = ShadowStack if options.get("mode") == "shadow" else TenonStack
    stack(app, options=stack_options.parse(options, cluster="demo"), code=code)
    assert not findings(app)


def test_cfn_lint_finds_nothing(cloud_assembly: Path) -> None:
    lint = Path(sys.executable).with_name("cfn-lint")
    # W3005: the CDK says of more dependencies than it must
    done = subprocess.run(
        [lint, "--ignore-checks", "W3005", "--", cloud_assembly / "tenon-demo.template.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")

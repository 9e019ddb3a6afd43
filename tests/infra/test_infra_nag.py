"""The stack, checked by cdk-nag and cfn-lint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from infra import assembly, bundling, stack_options
from infra.shadow_stack import ShadowStack
from infra.stack import TenonStack


@pytest.mark.parametrize(
    "options",
    [{}, {"tracing": "active"}, {"mode": "shadow"}, {"relay": "webhook"}],
    ids=["by-default", "traced", "shadow", "webhook"],
)
def test_every_finding_of_cdk_nag_is_acknowledged(options: dict[str, str], tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
    code = {name: str(path) for name, path in bundling.bundles(assembly.CHECKOUT, mode="source").items()}
    stack = ShadowStack if options.get("mode") == "shadow" else TenonStack
    stack(app, options=stack_options.parse(options, cluster="demo"), code=code)
    app.synth()
    reports = json.loads((tmp_path / "validation-report.json").read_text())["pluginReports"]
    findings = [
        f"{violation['ruleName']}: {construct.get('constructPath')}"
        for report in reports
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    ]
    assert {report["pluginName"] for report in reports} >= {"AwsSolutions", "Serverless"}
    assert not findings


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

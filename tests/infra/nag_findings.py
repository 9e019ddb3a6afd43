"""cdk-nag's findings in stacks that tests make."""

import json
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks


def checked_app(folder: Path) -> App:
    """An app for stacks that cdk-nag checks, with its assembly in the folder."""
    app = App(outdir=str(folder), analytics_reporting=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
    return app


def findings(app: App) -> list[str]:
    """The rules that the app's stacks violate without an acknowledgment, each with its constructs."""
    folder = Path(app.synth().directory)
    reports = json.loads((folder / "validation-report.json").read_text())["pluginReports"]
    assert {report["pluginName"] for report in reports} >= {"AwsSolutions", "Serverless"}
    return [
        f"{violation['ruleName']}: {[construct.get('constructPath') for construct in violation['violatingConstructs']]}"
        for report in reports
        for violation in report["violations"]
    ]

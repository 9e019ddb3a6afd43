"""With `-c commitments=on` the catalog function may read the account's commitments, and functions know of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra import assembly, function_sizes
from infra.bundle import bundling
from infra.cluster.stack import TenonStack
from infra.fleet.stack import FleetStack
from infra.options import stack_options
from infra.options.stack_options import OptionError
from shared.base import settings
from tests.infra.nag_findings import checked_app, findings

ON = {"bundle": "source", "clusterSide": "printed", "commitments": "on"}
ACTIONS = {
    "ec2:DescribeInstances",
    "ec2:DescribeReservedInstances",
    "savingsplans:DescribeSavingsPlanRates",
    "savingsplans:DescribeSavingsPlans",
}
COUNTING = {
    function_sizes.PROVISIONER,
    function_sizes.LIFECYCLE,
    function_sizes.DISRUPTION,
    function_sizes.INTERRUPTION,
    function_sizes.CATALOG,
}

Template = dict[str, Any]


def templates(**context: str) -> dict[str, Template]:
    cluster = "" if "fleet" in context else "demo"
    folder = assembly.cached(cluster=cluster, root=assembly.CHECKOUT, context={**ON, **context})
    return {
        path.name.removesuffix(".template.json"): json.loads(path.read_text())
        for path in folder.glob("*.template.json")
    }


def of_type(template: Template, kind: str) -> list[Template]:
    return [r["Properties"] for r in template["Resources"].values() if r["Type"] == kind]


def granted(template: Template) -> dict[str, set[str]]:
    """The actions of each function's role, except those on EC2 and Savings Plans that have nothing to do with these."""
    allowed: dict[str, set[str]] = {}
    for policy in of_type(template, "AWS::IAM::Policy"):
        actions = {
            action
            for statement in policy["PolicyDocument"]["Statement"]
            for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        }
        role = policy["Roles"][0]["Ref"].removeprefix("Functions").rstrip("0123456789ABCDEF").removesuffix("Role")
        if mentioned := actions & (ACTIONS - {"ec2:DescribeInstances"}):
            allowed[role.lower()] = mentioned | (actions & ACTIONS)
    return allowed


def variables(template: Template) -> dict[str, tuple[str, str]]:
    """The values of both settings by function; functions without the first are left out."""
    names = settings.variable("commitments"), settings.variable("commitment_share")
    values: dict[str, tuple[str, str]] = {}
    for function in of_type(template, "AWS::Lambda::Function"):
        environment = function.get("Environment", {}).get("Variables", {})
        if names[0] in environment:
            values[function["Handler"].split(".")[1]] = environment[names[0]], environment[names[1]]
    return values


def refreshes(template: Template) -> dict[str, str]:
    """The rate of each refresh, by what is fetched."""
    return {
        json.loads(target["Input"])["refresh"]: rule["ScheduleExpression"]
        for rule in of_type(template, "AWS::Events::Rule")
        for target in rule["Targets"]
        if "refresh" in str(target.get("Input", ""))
    }


def test_the_catalog_function_alone_may_read_commitments_each_hour() -> None:
    template = templates(commitmentShare="0.5")["tenon-demo"]
    assert granted(template) == {"catalog": ACTIONS}
    assert variables(template) == dict.fromkeys(COUNTING, ("on", "0.5"))
    assert refreshes(template) == {
        "types": "rate(12 hours)",
        "prices": "rate(15 minutes)",
        "commitments": "rate(1 hour)",
    }


def test_without_the_option_nothing_is_read(template: Template) -> None:
    assert (granted(template), variables(template)) == ({}, {})
    assert set(refreshes(template)) == {"types", "prices"}


def test_the_clusters_of_a_fleet_share_one_reading() -> None:
    stacks = templates(fleet="prod", clusters="blue,green")
    shared = stacks.pop("tenon--fleet-prod")
    assert granted(shared) == {"catalog": ACTIONS}
    assert variables(shared) == {"catalog": ("on", "")}
    assert "commitments" in refreshes(shared)
    for template in stacks.values():
        assert (granted(template), refreshes(template)) == ({}, {})
        assert set(variables(template)) == COUNTING - {function_sizes.CATALOG}


def test_every_finding_of_cdk_nag_is_acknowledged(tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    code = {name: str(path) for name, path in bundling.bundles(assembly.CHECKOUT, mode="source").items()}
    options = stack_options.parse({"fleet": "prod", "commitments": "on"}, cluster="demo")
    FleetStack(app, options=options, clusters=("demo",), code=code[function_sizes.CATALOG])
    TenonStack(app, options=stack_options.parse({"commitments": "on"}, cluster="blue"), code=code)
    assert not findings(app)


@pytest.mark.parametrize("share", ["0", "1", "0.5", ".25", "1.0", "0.333333"])
def test_a_share_is_a_number_from_0_to_1(share: str) -> None:
    options = stack_options.parse({"commitments": "on", "commitmentShare": share}, cluster="demo")
    assert 0 <= float(options.commitment_share) <= 1


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"commitments": "yes"}, "-c commitments=yes: must be off or on"),
        ({"commitments": "on", "commitmentShare": "1.5"}, "-c commitmentShare=1.5: must be a number from 0 to 1"),
        ({"commitments": "on", "commitmentShare": "-1"}, "-c commitmentShare=-1: must be a number from 0 to 1"),
        ({"commitments": "on", "commitmentShare": "half"}, "-c commitmentShare=half: must be a number from 0 to 1"),
        ({"commitments": "on", "commitmentShare": "nan"}, "-c commitmentShare=nan: must be a number from 0 to 1"),
        ({"commitments": "on", "mode": "shadow"}, "-c commitments=on: not together with -c mode=shadow"),
        ({"commitmentShare": "0.5"}, "-c commitmentShare=0.5: must be .* only with -c commitments=on"),
    ],
)
def test_invalid_options_are_refused(context: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        stack_options.parse(context, cluster="demo")


def test_settings_take_the_share_as_a_number_or_none() -> None:
    kind = settings.CommitmentSettings
    environ = {"TENON_CLUSTER_NAME": "demo", "TENON_COMMITMENTS": "on", "TENON_COMMITMENT_SHARE": "0.5"}
    assert settings.read(kind, environ).commitment_share == 0.5
    assert settings.read(kind, {**environ, "TENON_COMMITMENT_SHARE": ""}).commitment_share is None
    assert settings.read(kind, {"TENON_CLUSTER_NAME": "demo"}).commitments == "off"
    with pytest.raises(settings.SettingsError, match="commitment_share"):
        settings.read(kind, {**environ, "TENON_COMMITMENT_SHARE": "2"})

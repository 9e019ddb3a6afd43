"""What the clusters of a fleet share is in the fleet's stack once, and each cluster may only use it."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra import assembly, function_sizes, synthesis, template_limits
from infra.bundle import bundling
from infra.cluster import resource_names
from infra.cluster.stack import TenonStack
from infra.fleet.stack import FleetStack
from infra.options import stack_options
from infra.options.stack_options import OptionError
from infra.template_limits import LimitError, Template
from tests.infra.nag_findings import checked_app, findings
from tests.infra.resolved_template import resolved

SOURCE = {"bundle": "source", "clusterSide": "printed"}
STACK = "tenon--fleet-prod"
SHARED = ("AWS::S3::Bucket", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard")


def synthesised(**context: str) -> dict[str, dict[str, Any]]:
    """The templates by stack."""
    folder = assembly.cached(cluster="", root=assembly.CHECKOUT, context={**SOURCE, "fleet": "prod", **context})
    return {
        path.name.removesuffix(".template.json"): json.loads(path.read_text())
        for path in folder.glob("*.template.json")
    }


@pytest.fixture(scope="module")
def templates() -> dict[str, dict[str, Any]]:
    return synthesised(clusters="blue,green", observability="full")


def of_type(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in template["Resources"].values() if r["Type"] == kind]


def allowed(template: dict[str, Any], role: str) -> dict[str, list[str]]:
    """The resources of each action that a function's role may do."""
    result: dict[str, list[str]] = {}
    for policy in of_type(template, "AWS::IAM::Policy"):
        if not any(role in str(named) for named in policy["Roles"]):
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            actions, resources = (
                v if isinstance(v, list) else [v] for v in (statement["Action"], statement["Resource"])
            )
            for action in actions:
                result.setdefault(action, []).extend(str(resolved(resource)) for resource in resources)
    return result


def test_shared_resources_are_in_the_fleets_stack_only(templates: dict[str, dict[str, Any]]) -> None:
    assert set(templates) == {STACK, "tenon-blue", "tenon-green"}
    assert {kind: len(of_type(templates[STACK], kind)) for kind in SHARED} == dict.fromkeys(SHARED, 1)
    for cluster in ("tenon-blue", "tenon-green"):
        assert not [kind for kind in SHARED if of_type(templates[cluster], kind)]
        handlers = {f["Handler"].split(".")[1] for f in of_type(templates[cluster], "AWS::Lambda::Function")}
        assert handlers == set(function_sizes.FUNCTIONS) - {function_sizes.CATALOG}
        queues = {str(queue["QueueName"]) for queue in of_type(templates[cluster], "AWS::SQS::Queue")}
        assert not {name for name in queues if "undelivered" in name}
        assert not {
            rule["Name"] for rule in of_type(templates[cluster], "AWS::Events::Rule") if "refresh" in rule["Name"]
        }


def test_the_alarm_has_two_metrics_whatever_the_number_of_clusters(templates: dict[str, dict[str, Any]]) -> None:
    (alarm,) = of_type(templates[STACK], "AWS::CloudWatch::Alarm")
    watched = [m["MetricStat"]["Metric"] for m in alarm["Metrics"] if "MetricStat" in m]
    names = {(m["Namespace"], m["MetricName"], str(m["Dimensions"][0]["Name"])) for m in watched}
    assert names == {
        ("Tenon", "tenon_unwell", "fleet"),
        ("AWS/Lambda", "Errors", "FunctionName"),
    }


def test_functions_report_for_the_fleet_and_record_their_sweeps(templates: dict[str, dict[str, Any]]) -> None:
    for cluster in ("blue", "green"):
        template = templates[f"tenon-{cluster}"]
        environments = [f["Environment"]["Variables"] for f in of_type(template, "AWS::Lambda::Function")]
        assert {(e["TENON_FLEET"], e["TENON_CLUSTER_NAME"]) for e in environments} == {("prod", cluster)}
        tables = {e["TENON_SWEEPS_TABLE"] for e in environments if "TENON_SWEEPS_TABLE" in e}
        (table,) = of_type(templates[STACK], "AWS::DynamoDB::Table")
        assert tables == {table["TableName"]}
    (function,) = of_type(templates[STACK], "AWS::Lambda::Function")
    assert json.loads(function["Environment"]["Variables"]["TENON_CLUSTERS"]) == ["blue", "green"]


def test_a_cluster_may_only_read_the_bucket_and_write_its_own_row(templates: dict[str, dict[str, Any]]) -> None:
    template = templates["tenon-blue"]
    on_bucket = {
        action
        for role in ("Provisioner", "Lifecycle", "Disruption", "Interruption", "Termination", "Relay")
        for action in allowed(template, f"Functions{role}Role")
        if action.startswith("s3:")
    }
    assert on_bucket == {"s3:GetObject", "s3:ListBucket"}
    (statement,) = (
        statement
        for policy in of_type(template, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement.get("Sid") == "RecordSweeps"
    )
    assert statement["Action"] == "dynamodb:PutItem"
    assert resolved(statement["Resource"]) == f"arn:aws:dynamodb:us-east-1:123456789012:table/{STACK}-sweeps"
    assert statement["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["blue"]}}
    assert (
        f"arn:aws:sqs:us-east-1:123456789012:{STACK}-undelivered"
        in allowed(template, "FunctionsLifecycleRole")["sqs:SendMessage"]
    )


def test_the_fleets_function_may_do_nothing_to_a_cluster(templates: dict[str, dict[str, Any]]) -> None:
    own = allowed(templates[STACK], "FunctionsCatalogRole")
    writing = {action for action in own if not action.split(":")[1].startswith(("Describe", "Get", "List"))}
    assert writing == {
        "dynamodb:PutItem",
        "dynamodb:Scan",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:PutObject",
        "sqs:ReceiveMessage",
        "sqs:SendMessage",
    }
    assert not [action for action in own if action.startswith("eks:")]


def test_only_rules_of_this_account_reach_what_is_shared(templates: dict[str, dict[str, Any]]) -> None:
    (policy,) = of_type(templates[STACK], "AWS::SQS::QueuePolicy")
    (rules,) = (s for s in policy["PolicyDocument"]["Statement"] if s.get("Sid") == "AllowRules")
    assert resolved(rules["Condition"]) == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {
            "aws:SourceArn": [
                "arn:aws:events:us-east-1:123456789012:rule/tenon-*",
                "arn:aws:events:us-east-1:123456789012:rule/*/tenon-*",
            ]
        },
    }
    (hints,) = (p for p in of_type(templates[STACK], "AWS::Lambda::Permission") if "SourceAccount" in p)
    source = resolved(hints["SourceArn"])
    assert source == "arn:aws:events:us-east-1:123456789012:rule/tenon-*/tenon-*.catalog-missing"
    (rule,) = (
        r for r in of_type(templates["tenon-blue"], "AWS::Events::Rule") if r["Name"].endswith("catalog-missing")
    )
    (target,) = rule["Targets"]
    assert resolved(target["Arn"]) == f"arn:aws:lambda:us-east-1:123456789012:function:{STACK}-catalog"


def test_a_cluster_is_added_and_removed_without_changing_another(templates: dict[str, dict[str, Any]]) -> None:
    more = synthesised(clusters="blue,green,red", observability="full")
    assert more["tenon-blue"] == templates["tenon-blue"]
    exported = {o["Export"]["Name"] for o in templates[STACK]["Outputs"].values() if "Export" in o}
    text = json.dumps(templates["tenon-blue"])
    assert exported == {f"{STACK}:CatalogBucket"}
    assert text.count("Fn::ImportValue") == text.count(f'{{"Fn::ImportValue": "{STACK}:CatalogBucket"}}') > 0
    # Nothing is exported by a cluster, so its stack can go at any time; the fleet's only after the last import.
    assert "Export" not in json.dumps(templates["tenon-blue"]["Outputs"])
    assert "Fn::ImportValue" not in json.dumps(templates[STACK])


def test_clusters_without_a_fleet_are_as_before() -> None:
    folder = assembly.cached(cluster="", root=assembly.CHECKOUT, context={**SOURCE, "clusters": "demo,other"})
    assert {path.name for path in folder.glob("*.template.json")} == {
        "tenon-demo.template.json",
        "tenon-other.template.json",
    }
    single = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=SOURCE)
    assert (folder / "tenon-demo.template.json").read_text() == (single / "tenon-demo.template.json").read_text()


def test_no_cluster_has_the_names_of_a_fleet() -> None:
    fleet = resource_names.of_fleet("prod")
    with pytest.raises(OptionError):
        stack_options.clusters({"cluster": fleet})
    assert resource_names.stack(fleet) != resource_names.stack("fleet-prod")


def test_fifty_clusters_are_one_deployment_and_too_many_are_refused(tmp_path: Path) -> None:
    names = [f"team-{number:02}-production-eu" for number in range(50)]
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    options = stack_options.parse({**SOURCE, "fleet": "prod", "observability": "full"}, cluster=names[0])
    code = bundling.bundles(assembly.CHECKOUT, (function_sizes.CATALOG,), mode="source")[function_sizes.CATALOG]
    FleetStack(app, options=options, clusters=names, code=str(code))
    template = json.loads((Path(app.synth().directory) / f"{STACK}.template.json").read_text())
    template_limits.check(Template(name=STACK, body=template))
    (function,) = of_type(template, "AWS::Lambda::Function")
    function["Environment"]["Variables"]["TENON_CLUSTERS"] = json.dumps(names * 4)
    with pytest.raises(LimitError, match="bytes of environment"):
        template_limits.check(Template(name=STACK, body=template))


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"fleet": "a_b"}, "letters, digits"),
        ({"fleet": "prod", "cluster": "blue"}, "-c cluster"),
        ({"fleet": "prod", "mode": "shadow"}, "shadow mode"),
    ],
)
def test_what_does_not_go_with_a_fleet_is_refused(context: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=why):
        synthesis.make(context={**SOURCE, "clusters": "blue,green", **context}, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_finding_of_cdk_nag_is_acknowledged(tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    code = {name: str(path) for name, path in bundling.bundles(assembly.CHECKOUT, mode="source").items()}
    options = stack_options.parse({"fleet": "prod"}, cluster="demo")
    FleetStack(app, options=options, clusters=("demo",), code=code[function_sizes.CATALOG])
    TenonStack(app, options=options, code=code)
    assert not findings(app)

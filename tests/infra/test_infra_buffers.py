"""The function for CapacityBuffers that follow queues, alarms and events: only for those that are named."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra import assembly, function_sizes, template_limits
from infra.bundle import bundling
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from infra.cluster.stack import TenonStack
from infra.options import stack_options
from infra.template_limits import Place, Template
from tests.infra.aws_calls import reachable
from tests.infra.nag_findings import checked_app, findings
from tests.infra.resolved_template import resolved

NAMED = {
    "bufferQueues": "orders,returns.fifo",
    "bufferAlarms": "checkout-latency",
    "bufferEvents": "shop.campaigns/Sale,shop.campaigns/Campaign Announced,aws.partner/shop.com/1/Order Placed",
}
OWN = "arn:aws:{}:us-east-1:123456789012:{}"


def synthesised(cluster: str = "demo", region: str | None = None, **context: str) -> Template:
    context = {"bundle": "source", "clusterSide": "printed", **context}
    folder = assembly.cached(cluster=cluster, root=assembly.CHECKOUT, context=context, region=region)
    name = resource_names.stack(cluster)
    body = json.loads((folder / f"{name}.template.json").read_text())
    return Template(name=name, body=body, place=Place.of(region, None))


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    return {id_: r["Properties"] for id_, r in template.body["Resources"].items() if r["Type"] == f"AWS::{kind}"}


def rules(template: Template) -> dict[str, dict[str, Any]]:
    """By name, without the cluster's prefix."""
    return {r["Name"].partition(".")[2]: r for r in of_type(template, "Events::Rule").values()}


def granted(template: Template) -> dict[str, dict[str, Any]]:
    """The statements of the function's role, by Sid or first action."""
    statements: dict[str, dict[str, Any]] = {}
    for id_, policy in of_type(template, "IAM::Policy").items():
        if id_.startswith("FunctionsBuffersRole"):
            for statement in policy["PolicyDocument"]["Statement"]:
                first = as_list(statement["Action"])[0]
                statements[statement.get("Sid") or f"{first} {len(statements)}"] = statement
    return statements


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_with_nothing_named_there_is_no_such_function_rule_queue_or_right() -> None:
    template = synthesised()
    assert not [id_ for id_ in template.body["Resources"] if id_.startswith(("FunctionsBuffers", "QueuesBuffers"))]
    assert not [name for name in rules(template) if name.startswith("buffer")]
    assert "cloudwatch:DescribeAlarms" not in json.dumps(template.body)
    assert "tenon-buffers" not in {obj["metadata"]["name"] for obj in cluster_manifests.access()}
    assert stack_options.parse({}, cluster="demo").functions == function_sizes.FUNCTIONS


def test_exactly_the_named_queues_and_alarms_may_be_read() -> None:
    statements = granted(synthesised(**NAMED))
    count = statements["CountMessages"]
    assert set(count["Action"]) == {"sqs:GetQueueAttributes", "sqs:GetQueueUrl"}
    assert [resolved(r) for r in count["Resource"]] == [OWN.format("sqs", "orders"), OWN.format("sqs", "returns.fifo")]
    see = statements["SeeAlarms"]
    assert see["Action"] == "cloudwatch:DescribeAlarms"
    assert resolved(see["Resource"]) == OWN.format("cloudwatch", "alarm:checkout-latency")
    assert not any("*" in str(resolved(r)) for s in statements.values() for r in as_list(s["Resource"]) if s is not see)


def test_the_function_may_call_what_its_code_calls_and_nothing_else() -> None:
    statements = granted(synthesised(**NAMED))
    actions = {action for statement in statements.values() for action in as_list(statement["Action"])}
    of_lambda = {f"sqs:{name}" for name in ("ReceiveMessage", "DeleteMessage")} | {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    }
    assert actions - of_lambda == reachable(function_sizes.BUFFERS)


def test_only_the_rights_of_what_is_named() -> None:
    assert "SeeAlarms" not in granted(synthesised(bufferQueues="orders"))
    assert "CountMessages" not in granted(synthesised(bufferAlarms="a"))
    events_only = synthesised(bufferEvents="shop/Sale")
    assert not {"SeeAlarms", "CountMessages"} & granted(events_only).keys()
    assert not [id_ for id_ in of_type(events_only, "SQS::Queue") if "Delayed" in id_]


def test_each_event_and_alarm_comes_to_the_queue_without_its_detail() -> None:
    by_name = rules(synthesised(**NAMED))
    patterns = {name: rule["EventPattern"] for name, rule in by_name.items() if name.startswith("buffer-")}
    assert patterns == {
        "buffer-alarms": {
            "source": ["aws.cloudwatch"],
            "detail-type": ["CloudWatch Alarm State Change"],
            "detail": {"alarmName": ["checkout-latency"]},
        },
        "buffer-events0": {"source": ["shop.campaigns"], "detail-type": ["Sale", "Campaign Announced"]},
        "buffer-events1": {"source": ["aws.partner/shop.com/1"], "detail-type": ["Order Placed"]},
    }
    for name in patterns:
        (target,) = by_name[name]["Targets"]
        assert target["Arn"]["Fn::GetAtt"][0].startswith("QueuesBuffers")
        assert target["RetryPolicy"]["MaximumRetryAttempts"] >= 1
        assert set(target["InputTransformer"]["InputPathsMap"].values()) == {"$.source", "$.detail-type", "$.time"}
        assert target["DeadLetterConfig"]


def test_queues_and_alarms_are_read_each_minute_and_half_a_minute_later() -> None:
    template = synthesised(**NAMED)
    sweep = rules(template)["buffers-sweep"]
    assert sweep["ScheduleExpression"] == "rate(1 minute)"
    queues = of_type(template, "SQS::Queue")
    delays = [queues[t["Arn"]["Fn::GetAtt"][0]].get("DelaySeconds", 0) for t in sweep["Targets"]]
    assert delays == [0, 30]
    fed = {m["EventSourceArn"]["Fn::GetAtt"][0] for m in of_type(template, "Lambda::EventSourceMapping").values()}
    assert {t["Arn"]["Fn::GetAtt"][0] for t in sweep["Targets"]} <= fed


def test_events_of_a_bus_of_the_users_own_may_come_from_its_rules_only() -> None:
    template = synthesised(bufferEvents="shop/Sale", bufferAlarms="a", bufferEventBus="shop-bus")
    by_name = rules(template)
    assert by_name["buffer-events0"]["EventBusName"] == "shop-bus"
    assert "EventBusName" not in by_name["buffer-alarms"]
    sources: dict[str, list[str]] = {}
    for policy in of_type(template, "SQS::QueuePolicy").values():
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow":
                queue = policy["Queues"][0]["Ref"]
                sources[queue] = as_list(resolved(statement["Condition"]["ArnLike"]["aws:SourceArn"]))
    on_default, on_users = OWN.format("events", "rule/tenon-demo.*"), OWN.format("events", "rule/shop-bus/tenon-demo.*")
    by_purpose = {name: next(arns for id_, arns in sources.items() if id_.startswith(name)) for name in (
        "QueuesBuffersDelayed", "QueuesUndelivered", "QueuesInterruption")}  # fmt: skip
    (buffers,) = (arns for id_, arns in sources.items() if id_.startswith("QueuesBuffers") and "Delayed" not in id_)
    assert buffers == [on_default, on_users]
    assert by_purpose["QueuesBuffersDelayed"] == [on_default]
    assert on_users in by_purpose["QueuesUndelivered"]
    assert on_users not in by_purpose["QueuesInterruption"]


def test_in_the_cluster_it_may_annotate_buffers_and_write_events() -> None:
    objects = cluster_manifests.access(function_sizes.ALL)
    (role,) = (o for o in objects if o["kind"] == "ClusterRole" and o["metadata"]["name"] == "tenon-buffers")
    allowed = {(tuple(r["apiGroups"]), tuple(r["resources"])): set(r["verbs"]) for r in role["rules"]}
    assert allowed == {
        (("",), ("events",)): {"create", "get", "patch"},
        (("autoscaling.x-k8s.io",), ("capacitybuffers",)): {"get", "list", "patch"},
    }


@pytest.mark.parametrize("cluster", ["a", "production_" + "b" * 30, "c" * 100])
@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1"])
def test_every_limit_of_aws_is_held(cluster: str, region: str) -> None:
    template = synthesised(cluster, region, **NAMED, bufferEventBus="b" * 256)
    assert list(template_limits.violations(template)) == []


def test_too_many_names_are_refused_before_the_deployment() -> None:
    alarms = ",".join(f"{'a' * 200}-{n}" for n in range(12))
    with pytest.raises(template_limits.LimitError, match="characters of an event pattern, and AWS allows 2,048"):
        synthesised(bufferAlarms=alarms)


def test_every_finding_of_cdk_nag_is_acknowledged(tmp_path: Path) -> None:
    app = checked_app(tmp_path)
    options = stack_options.parse(NAMED, cluster="demo")
    code = {name: str(path) for name, path in bundling.bundles(assembly.CHECKOUT, mode="source").items()}
    TenonStack(app, options=options, code=code)
    assert not findings(app)


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"bufferQueues": "arn:aws:sqs:us-east-1:1:q"}, "-c bufferQueues=arn:aws:sqs:us-east-1:1:q: must be names"),
        ({"bufferQueues": "orders-*"}, "-c bufferQueues=orders-"),
        ({"bufferAlarms": "a*"}, "without \\* and \\?"),
        ({"bufferEvents": "Sale"}, "-c bufferEvents=Sale: must be SOURCE/DETAIL-TYPE"),
        ({"bufferEvents": "aws.events/Scheduled Event"}, "is a schedule or an alarm"),
        ({"bufferEvents": "aws.cloudwatch/CloudWatch Alarm State Change"}, "name alarms in bufferAlarms"),
        ({"bufferEventBus": "a bus"}, "-c bufferEventBus=a bus: must be the name"),
    ],
)
def test_an_invalid_name_is_refused_with_what_is_allowed(context: Mapping[str, object], why: str) -> None:
    with pytest.raises(stack_options.OptionError, match=why):
        stack_options.parse(context, cluster="demo")

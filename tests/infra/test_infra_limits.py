"""AWS's limits, for names of any length that EKS allows, in every partition."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import assembly, template_limits
from infra.cluster import resource_names
from infra.options import stack_options
from infra.template_limits import Place, Template

NAMES = ("a", "production_" + "b" * 30, "c" * 100)
REGIONS = ("us-east-1", "ap-southeast-2", "cn-north-1", "us-gov-west-1")
ISSUER = "oidc.eks.{region}.amazonaws.com.cn/id/0123456789ABCDEF0123456789ABCDEF"


def synthesised(cluster: str, region: str, **options: str) -> Template:
    """The template as ``make synth ARGS="-c cluster=…"`` writes it in a Region, with further options."""
    # China has no EKS Pod Identity.
    relay = {"relay": "pod", "oidcProvider": ISSUER.format(region=region)} if region.startswith("cn-") else {}
    context = {"bundle": "source", "clusterSide": "printed", **relay, **options}
    folder = assembly.cached(cluster=cluster, root=assembly.CHECKOUT, context=context, region=region)
    name = resource_names.stack(cluster)
    body = json.loads((folder / f"{name}.template.json").read_text())
    return Template(name=name, body=body, place=Place.of(region, None))


@pytest.fixture(scope="module", params=[(c, r) for c in NAMES for r in REGIONS], ids=lambda p: f"{len(p[0])}-{p[1]}")
def template(request: pytest.FixtureRequest) -> Template:
    return synthesised(*request.param)


def test_every_limit_of_aws_is_held(template: Template) -> None:
    assert list(template_limits.violations(template)) == []
    # The check would be of no use if it measured nothing.
    assert max(template_limits.inline_policy_sizes(template).values()) > 4_000
    policies = [r["Properties"]["PolicyDocument"] for r in resources(template, "AWS::SQS::QueuePolicy")]
    assert all(sum(s["Effect"] == "Allow" for s in policy["Statement"]) <= 1 for policy in policies)


def test_every_arn_is_of_the_partition(template: Template) -> None:
    partition = template.place.partition
    text = json.dumps(template.value(template.body["Resources"]))
    partitions = set(re.findall(r"\barn:(aws[a-z-]*):", text))
    assert partitions == {partition}
    principals = set(re.findall(r'"Service": "([^"]+)"', text))
    # IAM maps the global names of services in every partition; only these are documented.
    assert principals == {f"{service}.amazonaws.com" for service in ("ec2", "events", "lambda")}


def test_a_long_name_has_room_for_every_options_resources() -> None:
    template = synthesised(
        "c" * 100,
        "us-east-1",
        bufferAlarms="queue-is-long",
        bufferEvents="my.app/Deploy begins",
        bufferQueues="jobs",
        commitments="on",
        nodeGroups="on",
        observability="full",
        reboot="on",
        standby="on",
        zonalShift="on",
    )
    assert list(template_limits.violations(template)) == []
    rules = [r["Properties"]["Name"] for r in resources(template, "AWS::Events::Rule")]
    assert len(set(rules)) == len(rules) > 20


def resources(template: Template, kind: str) -> list[dict[str, Any]]:
    return [r for r in template.body["Resources"].values() if r["Type"] == kind]


def test_in_china_the_relay_as_a_pod_needs_the_clusters_oidc_issuer() -> None:
    with pytest.raises(stack_options.OptionError, match="cn-north-1 has no EKS Pod Identity: leave -c relay=pod out"):
        stack_options.parse({"relay": "pod"}, cluster="demo", region="cn-north-1")
    template = synthesised("a", "cn-north-1")
    assert not resources(template, "AWS::EKS::PodIdentityAssociation")
    (trust,) = (
        text
        for role in resources(template, "AWS::IAM::Role")
        if "WebIdentity" in (text := json.dumps(template.value(role["Properties"]["AssumeRolePolicyDocument"])))
    )
    assert f'"arn:aws-cn:iam::123456789012:oidc-provider/{ISSUER.format(region="cn-north-1")}"' in trust


@pytest.mark.parametrize("region", REGIONS)
def test_recursion_is_set_only_where_lambda_detects_it(region: str) -> None:
    """CloudFormation can't set it where Lambda's API lacks it; there is nothing to allow there either."""
    functions = resources(synthesised("a", region), "AWS::Lambda::Function")
    allowed = {f["Properties"]["Handler"].split(".")[1] for f in functions if "RecursiveLoop" in f["Properties"]}
    assert allowed == ({"disruption", "termination"} if region in {"us-east-1", "ap-southeast-2"} else set())


def with_resource(kind: str, properties: dict[str, Any]) -> Template:
    return Template(name="tenon-demo", body={"Resources": {"Example": {"Type": kind, "Properties": properties}}})


def statements(count: int, *, sid: str = "") -> dict[str, Any]:
    condition = {"ArnLike": {"aws:SourceArn": "arn:aws:events:eu-west-1:123456789012:rule/x"}}
    statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": "*",
        "Action": "sqs:SendMessage",
        "Resource": "*",
        "Condition": condition,
    }
    return {"Statement": [statement] * count}


@pytest.mark.parametrize(
    ("kind", "properties", "message"),
    [
        ("AWS::SQS::QueuePolicy", {"PolicyDocument": statements(21)}, "21 policy statements, and AWS allows 20"),
        ("AWS::SQS::QueuePolicy", {"PolicyDocument": statements(11)}, "11 policy conditions, and AWS allows 10"),
        (
            "AWS::SQS::QueuePolicy",
            {"PolicyDocument": statements(1, sid="s" * 8_192)},
            "policy bytes, and AWS allows 8,192",
        ),
        ("AWS::Lambda::Function", {"FunctionName": "f" * 65}, 'FunctionName "f+" has 65 characters'),
        ("AWS::SQS::Queue", {"QueueName": "a b"}, 'QueueName "a b" has 3 characters, and must match'),
        ("AWS::Events::Rule", {"Name": "r" * 65, "Targets": []}, 'Name "r+" has 65 characters'),
        ("AWS::Lambda::Function", {"Environment": {"Variables": {"A": "a" * 4096}}}, "bytes of environment"),
    ],
)
def test_a_resource_beyond_a_limit_is_named_with_the_limit(kind: str, properties: dict[str, Any], message: str) -> None:
    with pytest.raises(template_limits.LimitError, match=f"tenon-demo: Example: .*{message}"):
        template_limits.check(with_resource(kind, properties))


def test_the_inline_policies_of_a_role_are_added_up() -> None:
    policy = {"Statement": [{"Effect": "Allow", "Action": "ec2:RunInstances", "Resource": "r" * 5_100}]}
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {}}}
    attached = {"Type": "AWS::IAM::Policy", "Properties": {"PolicyDocument": policy, "Roles": [{"Ref": "Role"}]}}
    alone = Template(name="tenon-demo", body={"Resources": {"Role": role, "First": attached}})
    both = Template(name="tenon-demo", body={"Resources": {"Role": role, "First": attached, "Second": attached}})
    assert list(template_limits.violations(alone)) == []
    (line,) = template_limits.violations(both)
    assert re.fullmatch(r"Role: 10,\d{3} characters of inline policies, and AWS allows 10,240", line)


CLUSTERS = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", fullmatch=True)


@given(CLUSTERS)
def test_names_are_valid_and_readable_for_any_cluster_name(cluster: str) -> None:
    rule = resource_names.rule(cluster, "ReservationInterruption")
    assert re.fullmatch(r"tenon-[0-9A-Za-z_-]+\.reservation-interruption", rule)
    assert len(rule) <= 64
    assert rule.startswith(resource_names.rule_prefix(cluster))
    assert rule[6:].startswith(cluster[:20].partition(".")[0])
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,127}", resource_names.stack(cluster))
    queue = resource_names.queue(cluster, "provisioning-dead-letters", fifo=True)
    assert re.fullmatch(r"tenon-[0-9A-Za-z_-]{1,69}\.fifo", queue)


@given(CLUSTERS, CLUSTERS)
def test_two_clusters_share_no_name(first: str, second: str) -> None:
    if first == second:
        return
    assert not _names(first) & _names(second)


def _names(cluster: str) -> set[str]:
    return {
        resource_names.stack(cluster),
        resource_names.rule(cluster, "Health"),
        resource_names.queue(cluster, "provisioning", fifo=True),
        resource_names.function(cluster, "provisioner"),
        resource_names.name(cluster, "overview", longest=255),
    }


@pytest.mark.parametrize(
    ("first", "second"), [("a_b", "a-b"), ("x" * 99 + "1", "x" * 99 + "2"), ("a", "a-b"), ("a_b_c", "a-b_c")]
)
def test_similar_clusters_share_no_name(first: str, second: str) -> None:
    assert not _names(first) & _names(second)
    assert not resource_names.rule(second, "Health").startswith(resource_names.rule_prefix(first))


def test_names_of_a_deployed_cluster_stay() -> None:
    """Other names would replace queues with messages in them, and a stack's name can't change."""
    assert resource_names.stack("demo") == "tenon-demo"
    assert resource_names.queue("demo", "termination", fifo=False) == "tenon-demo-termination"
    assert resource_names.function("demo", "termination") == "tenon-demo-termination"

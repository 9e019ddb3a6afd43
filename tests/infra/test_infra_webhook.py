"""The admission webhook of ``-c relay=webhook``: its function, its secret path and its configuration in the cluster."""

from __future__ import annotations

import graphlib
import hashlib
import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from infra import assembly, function_sizes
from infra.cluster.kubernetes import cluster_manifests, deployment_access, webhook_configuration
from infra.options import stack_options
from local.kubernetes import kinds
from local.kubernetes.registry import cel_rules
from tests.infra import custom_resource_deployment
from tests.infra.aws_calls import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.infra.custom_resource_deployment import Deployment

Resources = dict[str, dict[str, Any]]
DIGEST = "0" * 64
PRINTED = {"clusterSide": "printed", "webhookDigest": DIGEST}


def resources(**context: str) -> Resources:
    given = {"bundle": "source", "relay": "webhook", **context}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=given)
    template = json.loads((folder / "tenon-demo.template.json").read_text())
    by_id: Resources = template["Resources"]
    return by_id


def of_type(template: Resources, kind: str) -> dict[str, dict[str, Any]]:
    return {id_: r["Properties"] for id_, r in template.items() if r["Type"] == kind}


def function(template: Resources) -> dict[str, Any]:
    named = of_type(template, "AWS::Lambda::Function").values()
    (webhook,) = (f for f in named if f["Handler"] == "functions.webhook.handler.handle")
    return webhook


def referenced(part: Any) -> Iterator[tuple[str, str]]:
    """The logical ids, and the attributes of them, that a part of a template refers to."""
    match part:
        case {"Ref": str(id_)}:
            yield id_, ""
        case {"Fn::GetAtt": [str(id_), str(attribute)]}:
            yield id_, attribute
        case dict():
            for value in part.values():
                yield from referenced(value)
        case list():
            for value in part:
                yield from referenced(value)


def test_the_webhook_takes_the_place_of_the_relay() -> None:
    template = resources(**PRINTED)
    handlers = {f["Handler"].split(".")[1] for f in of_type(template, "AWS::Lambda::Function").values()}
    assert handlers == {*function_sizes.FUNCTIONS, function_sizes.WEBHOOK} - {function_sizes.RELAY}
    assert not [id_ for id_ in template if "Relay" in id_]
    assert not of_type(template, "AWS::EKS::PodIdentityAssociation")
    applied = json.dumps(cluster_manifests.access_of(options(clusterSide="printed", webhookDigest=DIGEST)))
    assert "relay" not in applied


def options(**context: str) -> stack_options.StackOptions:
    return stack_options.parse({"relay": "webhook", **context}, cluster="demo")


def test_anybody_may_call_the_url_but_only_with_few_invocations_at_once() -> None:
    template = resources(**PRINTED)
    (url,) = of_type(template, "AWS::Lambda::Url").values()
    assert url["AuthType"] == "NONE"
    allowed = {
        p["Action"]: (p.get("FunctionUrlAuthType"), p.get("InvokedViaFunctionUrl"))
        for p in of_type(template, "AWS::Lambda::Permission").values()
        if p["Principal"] == "*"
    }
    assert allowed == {"lambda:InvokeFunctionUrl": ("NONE", None), "lambda:InvokeFunction": (None, True)}
    webhook = function(template)
    assert webhook["ReservedConcurrentExecutions"] <= 10
    assert webhook["MemorySize"] <= 256
    assert webhook["Timeout"] <= 5


def test_the_function_may_send_to_the_provisioners_queue_and_nothing_else() -> None:
    template = resources(**PRINTED)
    role = function(template)["Role"]["Fn::GetAtt"][0]
    statements = [
        s
        for policy in of_type(template, "AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for s in policy["PolicyDocument"]["Statement"]
    ]
    assert {s["Sid"]: s["Action"] for s in statements} == {
        "SendToProvisioner": "sqs:SendMessage",
        "WriteLogs": ["logs:CreateLogStream", "logs:PutLogEvents"],
    }
    assert reachable(function_sizes.WEBHOOK) == {"sqs:SendMessage"}
    (queue,) = (s["Resource"]["Fn::GetAtt"][0] for s in statements if s["Sid"] == "SendToProvisioner")
    assert template[queue]["Properties"]["QueueName"] == "tenon-demo-provisioning.fifo"
    principals = [e["PrincipalArn"] for e in of_type(template, "AWS::EKS::AccessEntry").values()]
    assert {"Fn::GetAtt": [role, "Arn"]} not in principals


def test_the_function_stays_outside_of_a_vpc_and_logs_no_line_of_lambdas() -> None:
    webhook = function(resources(**PRINTED, subnets="subnet-1", securityGroups="sg-1"))
    assert "VpcConfig" not in webhook
    assert (webhook["LoggingConfig"]["LogFormat"], webhook["LoggingConfig"]["SystemLogLevel"]) == ("JSON", "WARN")


def test_the_function_knows_the_digest_of_the_path_and_nobody_but_the_configuration_the_path() -> None:
    template = resources()
    (path,) = of_type(template, webhook_configuration.PATH_TYPE)
    assert function(template)["Environment"]["Variables"]["TENON_WEBHOOK_DIGEST"] == {"Fn::GetAtt": [path, "Digest"]}
    knowing = {id_ for id_, resource in template.items() if (path, "Path") in referenced(resource)}
    assert knowing == set(of_type(template, webhook_configuration.CONFIGURATION_TYPE))


def test_no_resource_waits_for_itself() -> None:
    template = resources()
    needs = {
        id_: {name for name, _ in referenced(resource["Properties"]) if name in template}
        | set([on] if isinstance(on := resource.get("DependsOn", []), str) else on)
        for id_, resource in template.items()
    }
    order = list(graphlib.TopologicalSorter(needs).static_order())
    (configuration,) = of_type(template, webhook_configuration.CONFIGURATION_TYPE)
    # Its access is given before, and taken after it is deleted.
    for id_ in ("WebhookEntry", "ClusterSideWebhookAccess"):
        (access,) = (name for name in order if name.startswith(id_))
        assert order.index(access) < order.index(configuration)


def test_the_deployments_function_has_no_code_but_its_own() -> None:
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context={"bundle": "source", "relay": "webhook"})
    (code,) = (path.parents[3] for path in folder.glob("asset.*/infra/cluster/kubernetes/webhook_configuration.py"))
    assert {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()} == {
        "infra/__init__.py",
        "infra/cluster/__init__.py",
        "infra/cluster/kubernetes/__init__.py",
        "infra/cluster/kubernetes/custom_resource.py",
        "infra/cluster/kubernetes/webhook_configuration.py",
        "shared/__init__.py",
        "shared/cluster/__init__.py",
        "shared/cluster/eks_token.py",
    }


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"relay": "webhook", "clusterSide": "printed"}, "-c webhookDigest=: must be a SHA-256 digest"),
        ({"relay": "webhook", "clusterSide": "printed", "webhookDigest": "secret"}, "-c webhookDigest=secret: must be"),
        ({"relay": "webhook", "webhookDigest": DIGEST}, "only with -c relay=webhook and -c clusterSide=printed"),
        ({"clusterSide": "printed", "webhookDigest": DIGEST}, "only with -c relay=webhook and -c clusterSide=printed"),
        ({"relay": "webhook", "relayImage": "x"}, "is for the relay as a pod"),
        ({"relay": "hook"}, "must be function or pod or webhook"),
    ],
)
def test_options_that_contradict_each_other_are_refused(context: dict[str, str], message: str) -> None:
    with pytest.raises(stack_options.OptionError, match=message):
        stack_options.parse(context, cluster="demo")


def test_the_configuration_never_fails_or_delays_a_pod_by_more_than_a_second() -> None:
    (webhook,) = webhook_configuration.configuration("https://example.com/path")["webhooks"]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"], webhook["sideEffects"]) == ("Ignore", 1, "None")
    (rule,) = webhook["rules"]
    assert (rule["operations"], rule["apiGroups"], rule["resources"]) == (["CREATE"], [""], ["pods"])
    assert all(cel_rules.compiles(condition["expression"]) for condition in webhook["matchConditions"])


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with custom_resource_deployment.deployment(
        monkeypatch,
        webhook_configuration.handle,
        access=deployment_access.webhook(),
        group=deployment_access.WEBHOOK_CONFIGURATION,
    ) as running:
        yield running


def configure(deployment: Deployment, kind: str, url: str) -> dict[str, Any]:
    return deployment.request(kind, webhook_configuration.CONFIGURATION_TYPE, Url=url)


def configurations(deployment: Deployment) -> list[dict[str, Any]]:
    return deployment.server.store.list(kinds.VALIDATING_WEBHOOK_CONFIGURATIONS)


def test_each_deployment_has_a_path_of_its_own_that_the_stack_masks(deployment: Deployment) -> None:
    paths = set()
    for kind in ("Create", "Create", "Update"):
        answer = deployment.request(kind, webhook_configuration.PATH_TYPE)
        assert (answer["Status"], answer["NoEcho"]) == ("SUCCESS", True)
        path = answer["Data"]["Path"]
        assert answer["Data"]["Digest"] == hashlib.sha256(path.encode()).hexdigest()
        assert len(path) >= 43  # 256 bits
        assert path not in answer["PhysicalResourceId"]
        paths.add(path)
    assert len(paths) == 3
    assert deployment.request("Delete", webhook_configuration.PATH_TYPE)["Status"] == "SUCCESS"


def test_the_configuration_is_applied_changed_and_deleted(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, url in (("Create", "https://a.example/secret-1"), ("Update", "https://b.example/secret-2")):
        assert configure(deployment, kind, url)["Status"] == "SUCCESS"
        (applied,) = configurations(deployment)
        wanted = webhook_configuration.configuration(url)
        assert (applied["metadata"]["name"], applied["webhooks"]) == ("tenon", wanted["webhooks"])
    for _ in range(2):
        assert configure(deployment, "Delete", "https://b.example/secret-2")["Status"] == "SUCCESS"
        assert configurations(deployment) == []
    assert "secret" not in "".join(capsys.readouterr())


def test_another_configuration_can_not_be_touched(deployment: Deployment) -> None:
    policies = webhook_configuration.configuration("https://policies.example/")
    deployment.server.store.create(
        kinds.VALIDATING_WEBHOOK_CONFIGURATIONS, {**policies, "metadata": {"name": "policies"}}
    )
    for role in deployment.server.store.list(kinds.CLUSTER_ROLES):
        for rule in role["rules"]:
            assert rule.get("resourceNames") == ["tenon"] or rule["verbs"] == ["create"]
    configure(deployment, "Delete", "https://a.example/secret")
    assert [c["metadata"]["name"] for c in configurations(deployment)] == ["policies"]


def test_a_refused_configuration_fails_the_deployment_without_quoting_the_path(deployment: Deployment) -> None:
    for binding in deployment.server.store.list(kinds.CLUSTER_ROLE_BINDINGS):
        deployment.server.store.delete(kinds.CLUSTER_ROLE_BINDINGS, binding["metadata"]["name"])
    answer = configure(deployment, "Create", "https://a.example/secret")
    assert answer["Status"] == "FAILED"
    assert answer["Reason"] == "The webhook's configuration can't be changed (HTTPError 403)"


def test_the_stack_of_a_cluster_that_is_gone_can_be_deleted(deployment: Deployment) -> None:
    boto3.client("eks").delete_cluster(name="demo")
    assert configure(deployment, "Delete", "https://a.example/secret")["Status"] == "SUCCESS"
    answer = configure(deployment, "Update", "https://a.example/secret")
    assert (answer["Status"], answer["Reason"]) == (
        "FAILED",
        "The webhook's configuration can't be changed (ResourceNotFoundException)",
    )

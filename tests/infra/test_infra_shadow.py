"""The stack of shadow mode can only read: its template, its roles and its RBAC."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra import assembly, function_sizes
from infra.cluster.kubernetes import cluster_manifests
from infra.options import stack_options
from tests.infra.resolved_template import resolved

READS = re.compile(r"[a-z0-9-]+:(Describe|Get|List)[A-Za-z]*")
OWN_WRITES = {
    # The catalog and the record, in the stack's own bucket.
    "s3:PutObject": re.compile(r"StateCatalog\w*\.Arn/(\*|shadow/\*)"),
    "logs:CreateLogStream": re.compile(r"Functions(Catalog|Shadow)Logs\w*\.Arn"),
    "logs:PutLogEvents": re.compile(r"Functions(Catalog|Shadow)Logs\w*\.Arn"),
}
"""The only actions that write, and on which resources."""
KINDS = {
    "AWS::CloudWatch::Alarm",
    "AWS::EKS::AccessEntry",
    "AWS::Events::Rule",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::Function",
    "AWS::Lambda::Permission",
    "AWS::Logs::LogGroup",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
}
"""Nothing else is in the stack: no queue, no bus, no node role, no kubectl."""


def synthesised(**context: str) -> dict[str, Any]:
    folder = assembly.cached(
        cluster="demo", root=assembly.CHECKOUT, context={"bundle": "source", "mode": "shadow", **context}
    )
    document: dict[str, Any] = json.loads((folder / "tenon-demo.template.json").read_text())
    return document


@pytest.fixture(scope="module")
def shadow() -> dict[str, Any]:
    return synthesised()


def of_type(template: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in template["Resources"].values() if r["Type"] == kind]


def allowed(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every action that a role of the template may do, with each of its resources."""
    for policy in of_type(template, "AWS::IAM::Policy"):
        for statement in policy["PolicyDocument"]["Statement"]:
            actions, resources = (
                [v] if not isinstance(v, list) else v for v in (statement["Action"], statement["Resource"])
            )
            yield from ((action, str(resolved(resource))) for action in actions for resource in resources)


def test_no_role_can_do_more_than_read_and_write_its_own_record(shadow: dict[str, Any]) -> None:
    writing = {
        (action, resource)
        for action, resource in allowed(shadow)
        if not READS.fullmatch(action) and not (action in OWN_WRITES and OWN_WRITES[action].fullmatch(resource))
    }
    assert writing == set()
    assert {action for action, _ in allowed(shadow)} >= {"ec2:DescribeSubnets", "s3:PutObject"}


def test_no_role_reads_secrets_or_parameters_of_the_account(shadow: dict[str, Any]) -> None:
    read = {
        (action, resource) for action, resource in allowed(shadow) if action.startswith(("ssm:", "secretsmanager:"))
    }
    assert {resource for _, resource in read} == {"arn:aws:ssm:us-east-1::parameter/aws/service/*"}


def test_no_role_has_managed_policies_or_inline_ones(shadow: dict[str, Any]) -> None:
    for role in of_type(shadow, "AWS::IAM::Role"):
        assert not role.get("ManagedPolicyArns")
        assert not role.get("Policies")
        principals = [s["Principal"] for s in role["AssumeRolePolicyDocument"]["Statement"]]
        assert principals == [{"Service": "lambda.amazonaws.com"}]


def test_the_stack_has_nothing_that_acts(shadow: dict[str, Any]) -> None:
    assert {resource["Type"] for resource in shadow["Resources"].values()} == KINDS
    handlers = {properties["Handler"] for properties in of_type(shadow, "AWS::Lambda::Function")}
    assert handlers == {"functions.catalog.handler.handle", "functions.shadow.handler.handle"}


def test_the_access_entry_is_no_administrator_and_names_the_group_of_the_manifests(shadow: dict[str, Any]) -> None:
    (entry,) = of_type(shadow, "AWS::EKS::AccessEntry")
    assert not entry.get("AccessPolicies")
    assert entry["KubernetesGroups"] == ["tenon:shadow"]


def test_rbac_only_reads() -> None:
    objects = cluster_manifests.access([function_sizes.SHADOW])
    roles = [o for o in objects if o["kind"] in {"ClusterRole", "Role"}]
    bindings = [o for o in objects if o["kind"].endswith("Binding")]
    assert {o["kind"] for o in objects} == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    resources = {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}
    assert not {"secrets", "configmaps", "*"} & resources
    assert {subject["name"] for b in bindings for subject in b["subjects"]} == {"tenon:shadow"}


def test_no_option_of_the_deployment_adds_a_right(shadow: dict[str, Any]) -> None:
    everything = synthesised(
        nodeGroups="on", standby="on", clusterSide="applied", bufferQueues="jobs", bufferAlarms="busy", nodeRoles="A"
    )
    assert set(allowed(everything)) == set(allowed(shadow))
    assert {resource["Type"] for resource in everything["Resources"].values()} == KINDS


def test_the_schedule_and_the_pools_follow_the_options(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(json.dumps(POOL) + "\n---\n" + json.dumps(CLASS))
    template = synthesised(shadowInterval="10", shadowPools=str(file))
    rates = {rule["ScheduleExpression"] for rule in of_type(template, "AWS::Events::Rule")}
    assert rates == {"rate(10 minutes)", "rate(12 hours)", "rate(15 minutes)"}
    (environment,) = (
        f["Environment"]["Variables"] for f in of_type(template, "AWS::Lambda::Function") if "shadow" in f["Handler"]
    )
    assert environment["TENON_SHADOW_INTERVAL"] == "10"
    assert environment["TENON_SHADOW_POOLS"]


POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "trial"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "trial"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
            }
        }
    },
}
CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "trial"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": "any",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
    },
}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"mode": "shady"}, "-c mode=shady: must be active or shadow"),
        ({"shadowInterval": "1"}, "-c shadowInterval=1: must be minutes, 2 to 30"),
        ({"shadowPools": "/nowhere.yaml"}, "can't be read"),
    ],
)
def test_invalid_options_are_refused(context: dict[str, str], message: str) -> None:
    with pytest.raises(stack_options.OptionError, match=re.escape(message)):
        stack_options.parse(context, cluster="demo")


def test_a_file_with_an_invalid_pool_is_refused_with_the_field(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    broken = {**POOL, "spec": {"template": {"spec": {"nodeClassRef": {"name": "x"}, "expireAfter": "soon"}}}}
    file.write_text(json.dumps(broken) + "\n---\n" + json.dumps(CLASS))
    with pytest.raises(stack_options.OptionError, match="expireAfter"):
        stack_options.parse({"shadowPools": str(file)}, cluster="demo")


def test_the_catalogs_resources_continue_when_the_whole_stack_is_deployed(
    shadow: dict[str, Any], template: dict[str, Any]
) -> None:
    """CloudFormation keeps what has the same logical id, so the catalog is there when Tenon takes over."""
    common = shadow["Resources"].keys() & template["Resources"].keys()
    kinds = {shadow["Resources"][id_]["Type"] for id_ in common}
    assert {"AWS::S3::Bucket", "AWS::Lambda::Function", "AWS::Events::Rule"} <= kinds
    assert all(shadow["Resources"][id_]["Type"] == template["Resources"][id_]["Type"] for id_ in common)


def test_a_name_that_both_modes_have_belongs_to_the_same_resource(
    shadow: dict[str, Any], template: dict[str, Any]
) -> None:
    """CloudFormation creates before it deletes: a name under another logical id would exist already."""
    keys = ("AlarmName", "FunctionName", "Name", "RoleName", "TableName", "BucketName")

    def named(document: Mapping[str, Any]) -> dict[str, str]:
        resources = document["Resources"].items()
        return {
            r["Properties"][k]: id_ for id_, r in resources for k in keys if isinstance(r["Properties"].get(k), str)
        }

    own, whole = named(shadow), named(template)
    assert len(own.keys() & whole.keys()) >= 4
    assert {name: own[name] for name in own.keys() & whole.keys()} == {
        name: whole[name] for name in own.keys() & whole.keys()
    }

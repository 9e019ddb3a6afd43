"""The IAM permissions of each function's role, and what they don't allow."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cli.preflight import network_checks
from infra import assembly, function_sizes
from infra.cluster import permission_scope
from infra.options import stack_options
from tests.infra.aws_calls import reachable

Select = Callable[[str], dict[str, dict[str, Any]]]
Granted = dict[str, list[dict[str, Any]]]

OWNED = {"aws:ResourceTag/kubernetes.io/cluster/demo": "owned"}
MADE = (":instance/*", ":volume/*", ":fleet/*", ":network-interface/*", ":spot-instances-request/*")
REQUESTED = {"aws:RequestTag/kubernetes.io/cluster/demo": "owned"}


def actions(granted: Granted, function: str) -> set[str]:
    return {action for statement in granted[function] for action in statement["Action"]}


def text(resource: object) -> str:
    """An ARN with its references as their names."""
    if isinstance(resource, str):
        return resource
    assert isinstance(resource, dict)
    if "Fn::Join" in resource:
        return "".join(text(part) for part in resource["Fn::Join"][1])
    return f"<{resource['Ref']}>" if "Ref" in resource else f"<{'.'.join(resource['Fn::GetAtt'])}>"


def test_launching_functions_can_not_terminate(granted: Granted) -> None:
    launching = {name for name in granted if "ec2:RunInstances" in actions(granted, name)}
    assert launching == {function_sizes.PROVISIONER, function_sizes.DISRUPTION, function_sizes.INTERRUPTION}
    assert not {a for name in launching for a in actions(granted, name) if "Terminate" in a or "ec2:Delete" in a}


def test_the_terminating_function_can_not_launch(granted: Granted) -> None:
    terminating = {name for name in granted if "ec2:TerminateInstances" in actions(granted, name)}
    assert terminating == {function_sizes.TERMINATION}
    for name in terminating:
        assert not actions(granted, name) & {"ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateTags", "iam:PassRole"}


def test_only_instances_of_this_clusters_nodepools_can_be_terminated(granted: Granted) -> None:
    (statement,) = (s for s in granted[function_sizes.TERMINATION] if "ec2:TerminateInstances" in s["Action"])
    assert statement["Condition"] == {
        "StringEquals": OWNED,
        "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"},
    }


def test_launched_resources_must_have_the_clusters_tag(granted: Granted) -> None:
    for statement in granted[function_sizes.PROVISIONER]:
        if not {"ec2:RunInstances", "ec2:CreateLaunchTemplate"} & set(statement["Action"]):
            continue
        launched = [r for r in map(text, statement["Resource"]) if r.endswith(MADE)]
        if launched or "ec2:CreateLaunchTemplate" in statement["Action"]:
            assert statement["Condition"]["StringEquals"] == REQUESTED


def test_what_launches_tags_only_what_it_creates(granted: Granted) -> None:
    (tagging,) = [s for s in granted[function_sizes.PROVISIONER] if "ec2:CreateTags" in s["Action"]]
    assert tagging["Condition"]["StringEquals"].items() >= REQUESTED.items()
    assert "ec2:CreateAction" in tagging["Condition"]["StringEquals"]


def test_only_the_nodeclaim_tags_of_own_instances_are_written_after_the_launch(granted: Granted) -> None:
    (tagging,) = [s for s in granted[function_sizes.LIFECYCLE] if "ec2:CreateTags" in s["Action"]]
    assert tagging["Condition"]["StringEquals"] == OWNED
    assert set(tagging["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]) == {"Name", "karpenter.sh/nodeclaim"}


def test_only_the_node_role_is_passed_and_only_to_ec2(granted: Granted, of_type: Select) -> None:
    (profile,) = of_type("AWS::IAM::InstanceProfile").values()
    role = profile["Roles"][0]["Ref"]
    passing = [s for statements in granted.values() for s in statements if "iam:PassRole" in s["Action"]]
    assert passing
    for statement in passing:
        assert [text(r) for r in statement["Resource"]] == [f"<{role}.Arn>"]
        assert set(statement["Condition"]["StringEquals"]["iam:PassedToService"]) == {
            "ec2.amazonaws.com",
            "ec2.amazonaws.com.cn",
        }


def test_only_public_parameters_are_read(granted: Granted) -> None:
    for statements in granted.values():
        for statement in statements:
            if any(action.startswith("ssm:") for action in statement["Action"]):
                assert [text(r).partition("<AWS::Region>")[2] for r in statement["Resource"]] == [
                    "::parameter/aws/service/*"
                ]


def test_every_wildcard_resource_has_a_reason_and_only_reads(granted: Granted) -> None:
    for statements in granted.values():
        for statement in statements:
            if "*" in statement["Resource"]:
                assert permission_scope.WILDCARDS[statement["Sid"]]
                assert all(a.split(":")[1].startswith(("Describe", "Get")) for a in statement["Action"])


def test_reading_ec2_is_limited_to_the_region(granted: Granted) -> None:
    for statements in granted.values():
        for statement in statements:
            if any(action.startswith("ec2:Describe") for action in statement["Action"]):
                assert statement["Condition"] == {"StringEquals": {"aws:RequestedRegion": {"Ref": "AWS::Region"}}}


def test_the_endpoints_of_private_subnets_are_those_of_the_services_that_functions_call(granted: Granted) -> None:
    in_vpc = set(function_sizes.FUNCTIONS) - {function_sizes.CATALOG}
    called = {action.split(":")[0] for name in in_vpc for action in actions(granted, name)}
    # Lambda writes logs by itself; IAM has no endpoint, and only classes with a role need it.
    assert called - {"logs", "iam"} == set(network_checks.SERVICES)
    page = (assembly.CHECKOUT / "docs" / "private-clusters.md").read_text()
    assert [service for service in network_checks.SERVICES if f"| `{service}` |" not in page] == []


def test_no_action_is_a_wildcard(granted: Granted) -> None:
    assert not {a for name in granted for a in actions(granted, name) if "*" in a}


def test_every_function_has_its_own_role(of_type: Select) -> None:
    roles = [f["Role"]["Fn::GetAtt"][0] for f in of_type("AWS::Lambda::Function").values()]
    assert len(roles) == len(set(roles))


@pytest.mark.parametrize(
    ("sender", "source"),
    [
        ("ClusterAccessRelay", "tenon.relay"),
        ("FunctionsRelayRole", "tenon.relay"),
        ("Provisioner", "tenon.functions"),
    ],
)
def test_nobody_can_put_hints_with_anothers_source(
    template: dict[str, Any], with_relay_pod: dict[str, Any], sender: str, source: str
) -> None:
    stack = with_relay_pod if sender == "ClusterAccessRelay" else template
    putting = [
        statement
        for policy in policies(stack)
        if sender in policy["Roles"][0]["Ref"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "events:PutEvents"
    ]
    (condition,) = (statement["Condition"] for statement in putting)
    assert condition == {"ForAllValues:StringEquals": {"events:source": source}, "Null": {"events:source": "false"}}


def policies(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Policy"]


def test_the_relay_function_can_do_nothing_else_on_aws(granted: Granted) -> None:
    # Besides logs, and the queue of failed invocations.
    allowed = {a for a in actions(granted, function_sizes.RELAY) if not a.startswith(("logs:", "sqs:"))}
    assert allowed == {"eks:DescribeCluster", "events:PutEvents"}


def test_the_relay_as_a_pod_can_do_nothing_else_on_aws(with_relay_pod: dict[str, Any]) -> None:
    (policy,) = (p for p in policies(with_relay_pod) if "ClusterAccessRelay" in p["Roles"][0]["Ref"])
    assert [s["Action"] for s in policy["PolicyDocument"]["Statement"]] == ["events:PutEvents"]


def test_the_relays_role_is_for_its_service_account_in_this_cluster_only(with_relay_pod: dict[str, Any]) -> None:
    (role,) = (
        r
        for id_, r in with_relay_pod["Resources"].items()
        if id_.startswith("ClusterAccessRelay") and "Role" in r["Type"]
    )
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    condition = statement["Condition"]["StringEquals"]
    assert text(condition["aws:RequestTag/eks-cluster-arn"]).endswith(":cluster/demo")
    assert condition["aws:RequestTag/kubernetes-namespace"] == "tenon"
    assert condition["aws:RequestTag/kubernetes-service-account"] == "tenon-relay"


_TABLE_ACTIONS = frozenset({"dynamodb:BatchWriteItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"})
_LAUNCH_ACTIONS = frozenset({"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "s3:PutObject"})
_NODE_CLASS_ACTIONS = frozenset(
    {
        "ec2:DescribeCapacityReservations", "ec2:DescribeImages", "ec2:DescribeSecurityGroups", "ec2:DescribeSubnets",
        "iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile", "iam:GetInstanceProfile",
        "iam:ListInstanceProfilesForRole", "s3:GetObject", "ssm:GetParameter", "ssm:GetParameters",
    }
)  # fmt: skip
_GROUPS = frozenset(
    {
        "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities",
        "autoscaling:SetDesiredCapacity", "ec2:DescribeLaunchTemplateVersions", "eks:DescribeNodegroup",
        "eks:ListNodegroups",
    }
)  # fmt: skip
"""Allowed with -c nodeGroups=on only."""
_STANDBY = frozenset({"ec2:StartInstances", "ec2:StopInstances"})
_POWER = _STANDBY | {"ec2:RebootInstances"}
"""Allowed with -c standby=on and -c reboot=on only."""
_SHIFTS = "arc-zonal-shift:GetManagedResource"
"""Allowed with -c zonalShift=on only."""
NOT_CALLED_BY_FUNCTION: dict[str, frozenset[str]] = {
    # They create NodeClaims and launch instances; the termination function terminates them.
    function_sizes.PROVISIONER: _POWER | _GROUPS | {"ec2:TerminateInstances", "s3:PutObject"},
    function_sizes.DISRUPTION: _POWER | {"ec2:TerminateInstances", "s3:PutObject"},
    function_sizes.INTERRUPTION: _POWER | _GROUPS | {"ec2:TerminateInstances", "s3:PutObject"},
    # It lists instances, resolves node classes and remembers failures at boot.
    function_sizes.LIFECYCLE: frozenset(a for a in _LAUNCH_ACTIONS if not a.startswith("dynamodb:"))
    | {"ec2:TerminateInstances", "sqs:ChangeMessageVisibility"}
    | {_SHIFTS}
    | _POWER,
    # Only that of a fleet looks at its clusters (test_infra_fleet.py).
    function_sizes.CATALOG: frozenset({"dynamodb:PutItem", "dynamodb:Scan", "sqs:ReceiveMessage"})
    # With -c commitments=on (test_infra_commitments.py).
    | {"ec2:DescribeInstances", "ec2:DescribeReservedInstances"}
    | {"savingsplans:DescribeSavingsPlanRates", "savingsplans:DescribeSavingsPlans"},
    # It gets, lists and terminates instances, and records deletions.
    function_sizes.TERMINATION: (_TABLE_ACTIONS - {"dynamodb:PutItem", "dynamodb:Query"})
    | _LAUNCH_ACTIONS
    | _NODE_CLASS_ACTIONS
    | _POWER,
}
"""Calls in modules that the function imports for something else: EC2CloudProvider is one class for all functions, and
only the catalog function saves the catalog. The functions run under exactly their policies in
tests/integration/least_privilege."""

NOT_CALLED = {
    "ec2:CreateTags": "required to create instances and launch templates with tags; the lifecycle function calls it",
    "ec2:RunInstances": "required to call CreateFleet",
    "iam:CreateServiceLinkedRole": "required for the first spot launch of an account",
    "iam:PassRole": "required to assign a role to a resource",
    "iam:TagInstanceProfile": "required to create a profile with tags",
    "logs:CreateLogStream": "Lambda's own",
    "logs:PutLogEvents": "Lambda's own",
    "s3:ListBucket": "decides between 404 and 403",
    "sqs:DeleteMessage": "Lambda's poller",
    "sqs:GetQueueAttributes": "Lambda's poller",
    "sqs:GetQueueUrl": "Lambda's failure destination",
    "sqs:ReceiveMessage": "Lambda's poller",
    "sqs:SendMessage": "Lambda's failure destination",
}
"""Actions that are allowed for another reason than a call of the function's own."""


@pytest.mark.parametrize("function", function_sizes.FUNCTIONS)
def test_every_reachable_call_to_aws_is_allowed(function: str, granted: Granted) -> None:
    not_called = NOT_CALLED_BY_FUNCTION.get(function, frozenset())
    assert reachable(function) - actions(granted, function) == not_called


@pytest.mark.parametrize("function", function_sizes.FUNCTIONS)
def test_only_called_actions_are_allowed(function: str, granted: Granted) -> None:
    writing = {a for a in actions(granted, function) if not a.startswith("dynamodb:")}  # the table has one set
    assert writing - reachable(function) - set(NOT_CALLED) == set()


def test_zonal_shifts_need_one_more_right_of_one_function_on_the_cluster_alone(granted: Granted) -> None:
    assert not [name for name in granted if _SHIFTS in actions(granted, name)]
    ((role, statement),) = (
        (resource["Properties"]["Roles"][0]["Ref"], statement)
        for resource in deployed(zonalShift="on")["Resources"].values()
        if resource["Type"] == "AWS::IAM::Policy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        if statement["Action"] == _SHIFTS
    )
    assert role.startswith("FunctionsLifecycleRole")
    ((key, cluster),) = statement["Condition"]["StringEquals"].items()
    assert key == "arc-zonal-shift:ResourceIdentifier"
    assert text(cluster).endswith(":cluster/demo")


def test_only_interruption_reads_the_status_of_instances(granted: Granted) -> None:
    reading = [name for name in granted if "ec2:DescribeInstanceStatus" in actions(granted, name)]
    assert reading == [function_sizes.INTERRUPTION]


def deployed(**options: str) -> dict[str, Any]:
    """The template with these options."""
    context = {"bundle": "source", "clusterSide": "printed", **options}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    template: dict[str, Any] = json.loads((folder / "tenon-demo.template.json").read_text())
    return template


def on_own_nodes(template: dict[str, Any]) -> set[tuple[str, str]]:
    """The optional actions on instances, each with the role that has it on its own NodePools' instances only."""
    return {
        (action, role["Ref"].removeprefix("Functions").rstrip("0123456789ABCDEF"))
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::IAM::Policy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        for role in resource["Properties"]["Roles"]
        if action in _POWER
        and statement["Condition"]
        == {"StringEquals": OWNED, "StringLike": {"aws:ResourceTag/karpenter.sh/nodepool": "*"}}
    }


def test_reboots_need_one_more_right_and_only_where_they_are_asked_for() -> None:
    assert on_own_nodes(deployed(reboot="on")) == {("ec2:RebootInstances", "LifecycleRole")}


def test_standby_nodes_need_two_more_rights_and_only_where_they_are_asked_for(granted: Granted) -> None:
    assert not [name for name in granted if _POWER & actions(granted, name)]
    template = deployed(standby="on")
    assert on_own_nodes(template) == {
        ("ec2:StopInstances", "LifecycleRole"),
        ("ec2:StartInstances", "ProvisionerRole"),
        ("ec2:StartInstances", "InterruptionRole"),
    }
    values = {
        resource["Properties"]["FunctionName"]: resource["Properties"]["Environment"]["Variables"].get("TENON_STANDBY")
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function" and "FunctionName" in resource["Properties"]
    }
    assert {name.removeprefix("tenon-demo-") for name, value in values.items() if value == "on"} == {
        "provisioner",
        "interruption",
        "lifecycle",
    }


def test_launching_functions_may_use_named_kms_keys_through_ec2_only() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1a2b3c4d-aaaa-bbbb-cccc-1234567890ab"
    context = {"bundle": "source", "clusterSide": "printed", "kmsKeys": key}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    template = json.loads((folder / "tenon-demo.template.json").read_text())
    statements = {
        id_: [s for s in resource["Properties"]["PolicyDocument"]["Statement"] if s["Resource"] == key]
        for id_, resource in template["Resources"].items()
        if resource["Type"] == "AWS::IAM::Policy"
    }
    with_keys = {id_: policy for id_, policy in statements.items() if policy}
    assert len(with_keys) == 3
    assert all(any(n in id_ for n in ("Provisioner", "Disruption", "Interruption")) for id_ in with_keys)
    for policy in with_keys.values():
        assert all("kms:ViaService" in s["Condition"]["StringEquals"] for s in policy)
        (grant,) = (s for s in policy if "kms:CreateGrant" in s["Action"])
        assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_a_kms_key_must_be_an_arn() -> None:
    with pytest.raises(stack_options.OptionError, match="kmsKeys"):
        stack_options.parse({"kmsKeys": "alias/ebs"}, cluster="c")

"""With a permissions boundary, every role of every stack has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam

from infra import assembly, synthesis
from infra.construct import StackOptions, Tenon
from infra.options import stack_options
from tests.infra.resolved_template import resolved

if TYPE_CHECKING:
    from pathlib import Path

ARN = "arn:aws:iam::123456789012:policy/team/limits"
EVERYTHING = {
    "relay": "webhook",
    "nodeGroups": "on",
    "standby": "on",
    "bufferQueues": "orders",
    "bufferEvents": "shop/Order placed",
    "subnets": "subnet-0123456789abcdef0",
    "securityGroups": "sg-0123456789abcdef0",
}
"""Options that have a deployment make more roles."""


def roles(folder: Path) -> dict[str, dict[str, Any]]:
    """The properties of the roles of all stacks, by logical id."""
    by_id: dict[str, dict[str, Any]] = {}
    for path in folder.glob("*.template.json"):
        resources = json.loads(path.read_text())["Resources"]
        by_id |= {id_: r["Properties"] for id_, r in resources.items() if r["Type"] == "AWS::IAM::Role"}
    return by_id


def synthesised(**context: str) -> dict[str, dict[str, Any]]:
    options = {"bundle": "source", **context}
    return roles(assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=options))


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"relay": "pod", "relayImage": "registry.example/tenon-relay:1"},
        EVERYTHING,
        {"mode": "shadow"},
    ],
)
def test_all_roles_of_a_cluster_have_it_and_none_without_the_option(context: dict[str, str]) -> None:
    limited = synthesised(**context, permissionsBoundary=ARN)
    assert {role["PermissionsBoundary"] for role in limited.values()} == {ARN}
    plain = synthesised(**context)
    assert plain.keys() == limited.keys()
    assert not any("PermissionsBoundary" in role for role in plain.values())


def test_the_stack_of_a_fleet_has_it_too(tmp_path: Path) -> None:
    context = {"fleet": "shops", "clusters": "north,south", "bundle": "source", "permissionsBoundary": ARN}
    folder = synthesis.make(context=context, out=tmp_path)
    assert len([*folder.glob("*.template.json")]) == 3
    assert {role.get("PermissionsBoundary") for role in roles(folder).values()} == {ARN}


def test_a_name_is_a_policy_of_the_account() -> None:
    for role in synthesised(permissionsBoundary="team/limits").values():
        assert resolved(role["PermissionsBoundary"]) == "arn:aws:iam::123456789012:policy/team/limits"


def test_in_another_stack_the_roles_of_others_keep_theirs(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    stack = Stack(app, "platform")
    iam.Role(stack, "Other", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    Tenon(stack, "Tenon", options=StackOptions(cluster="demo", bundle="source", permissions_boundary=ARN))
    app.synth()
    without = [id_ for id_, role in roles(tmp_path).items() if "PermissionsBoundary" not in role]
    assert [id_[:5] for id_ in without] == ["Other"]


@pytest.mark.parametrize("boundary", ["arn:aws:iam::1:policy/a", "arn:aws:iam::123456789012:role/a", "a b"])
def test_what_is_no_policy_is_refused(boundary: str) -> None:
    with pytest.raises(stack_options.OptionError, match="the name or ARN of a managed policy of IAM"):
        stack_options.parse({"permissionsBoundary": boundary}, cluster="demo")

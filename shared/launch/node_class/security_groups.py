"""Which security groups a class selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.ami_family.families import is_legacy
from shared.api.nodeclass import ResolvedSecurityGroup
from shared.launch.node_class import selector_terms

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from shared.api.nodeclass import EC2NodeClass, SecurityGroupSelectorTerm

_PERMISSION = "ec2:DescribeSecurityGroups"


def select(ec2: EC2Client, node_class: EC2NodeClass) -> tuple[ResolvedSecurityGroup, ...]:
    """The security groups of the class's terms, by id.

    Raises:
        NotFoundError: there is none, or they may not be looked up.
    """
    legacy = is_legacy(node_class.kind)
    field = "spec.securityGroupSelector" if legacy else "spec.securityGroupSelectorTerms"
    terms = node_class.spec.security_group_selector_terms
    if not terms:
        raise selector_terms.NotFoundError(
            "SecurityGroupsNotFound", f"{field} is empty: it must select security groups"
        )
    found: dict[str, ResolvedSecurityGroup] = {}
    for term in terms:
        try:
            for page in ec2.get_paginator("describe_security_groups").paginate(Filters=_filters(term)):
                found |= {
                    g["GroupId"]: ResolvedSecurityGroup(id=g["GroupId"], name=g.get("GroupName", ""))
                    for g in page["SecurityGroups"]
                }
        except ClientError as error:
            selector_terms.denied(error, _PERMISSION, f"{field} can't be looked up")
    if not found:
        described = [_described(t, field, i, legacy=legacy) for i, t in enumerate(terms)]
        raise selector_terms.NotFoundError(
            "SecurityGroupsNotFound", selector_terms.none_matches("security group", described)
        )
    return tuple(found[group] for group in sorted(found))


def _filters(term: SecurityGroupSelectorTerm) -> list[FilterTypeDef]:
    if term.id:
        return [{"Name": "group-id", "Values": [term.id]}]
    named: list[FilterTypeDef] = [{"Name": "group-name", "Values": [term.name]}] if term.name else []
    return named + selector_terms.tag_filters(term.tags)


def _described(term: SecurityGroupSelectorTerm, field: str, index: int, *, legacy: bool) -> str:
    if legacy:
        return f"{field} {selector_terms.quoted({'aws-ids': term.id} if term.id else term.tags)}"
    if term.id:
        return f'{field}[{index}].id "{term.id}"'
    if term.name:
        return f'{field}[{index}].name "{term.name}"'
    return f"{field}[{index}].tags {selector_terms.quoted(term.tags)}"

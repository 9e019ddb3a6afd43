"""The security groups that a node class selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api.nodeclass import ResolvedSecurityGroup
from shared.launch.node_class.selector_terms import (
    NotFoundError,
    no_match_message,
    quoted_tags,
    raise_denied,
    tag_filters,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from shared.api.nodeclass import EC2NodeClass, SecurityGroupSelectorTerm
    from shared.launch.node_class.ec2_descriptions import Ec2Descriptions

_PERMISSION = "ec2:DescribeSecurityGroups"
_TERMS = "securityGroupSelectorTerms"


def select(ec2: Ec2Descriptions, node_class: EC2NodeClass) -> tuple[ResolvedSecurityGroup, ...]:
    """The security groups of the class's terms, by id.

    Raises:
        NotFoundError: the terms select none, or the lookup is denied.
    """
    field = node_class.selector_path(_TERMS)
    terms = node_class.spec.security_group_selector_terms
    if not terms:
        raise NotFoundError("SecurityGroupsNotFound", f"{field} is empty: it must select security groups")
    selected: dict[str, ResolvedSecurityGroup] = {}
    for term in terms:
        try:
            selected |= {
                g["GroupId"]: ResolvedSecurityGroup(id=g["GroupId"], name=g.get("GroupName", ""))
                for g in ec2.security_groups(_filters(term))
            }
        except ClientError as error:
            raise_denied(error, _PERMISSION, f"{field} can't be looked up")
    if not selected:
        described = [_described(node_class, i, t) for i, t in enumerate(terms)]
        raise NotFoundError("SecurityGroupsNotFound", no_match_message("security group", described))
    return tuple(selected[group_id] for group_id in sorted(selected))


def _filters(term: SecurityGroupSelectorTerm) -> list[FilterTypeDef]:
    if term.id:
        return [{"Name": "group-id", "Values": [term.id]}]
    name_filters: list[FilterTypeDef] = [{"Name": "group-name", "Values": [term.name]}] if term.name else []
    return name_filters + tag_filters(term.tags)


def _described(node_class: EC2NodeClass, index: int, term: SecurityGroupSelectorTerm) -> str:
    if term.id:
        return f'{node_class.selector_path(_TERMS, index, "id")} "{term.id}"'
    if term.name:
        return f'{node_class.selector_path(_TERMS, index, "name")} "{term.name}"'
    return f"{node_class.selector_path(_TERMS, index, 'tags')} {quoted_tags(term.tags)}"

"""Which machine images a class selects, newest first, and which instance types each of them is for.

An alias is looked up in Systems Manager, everything else in DescribeImages; either way the image itself is described,
because only it knows its architecture.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.ami_family.families import alias, family_of, is_legacy
from shared.ami_family.ssm_parameters import ARCHES, parameters
from shared.api import labels
from shared.api.nodeclass import AMIRequirement, ResolvedAMI
from shared.launch.node_class import selector_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, ImageTypeDef
    from mypy_boto3_ssm import SSMClient

    from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass

_NAMES_A_CALL = 10
_LATEST = "latest"
_DEFAULT_OWNERS = ("self", "amazon")
_ABSENT_PARAMETER = "ParameterNotFound"

Requirements = tuple[AMIRequirement, ...]


def select(ec2: EC2Client, ssm: SSMClient, node_class: EC2NodeClass, *, version: str) -> tuple[ResolvedAMI, ...]:
    """The images of the class on a cluster of the Kubernetes version, newest first.

    Raises:
        NotFoundError: there is none, or they may not be looked up.
    """
    terms = node_class.spec.ami_selector_terms
    legacy = is_legacy(node_class.kind)
    if not terms or alias(node_class.spec) is not None:
        return _by_alias(ec2, ssm, node_class, version=version, legacy=legacy)
    field = "spec.amiSelector" if legacy else "spec.amiSelectorTerms"
    images = itertools.chain.from_iterable(_by_term(ec2, ssm, term, field) for term in terms)
    found = _resolved((image, arch, ()) for image in images if (arch := ARCHES.get(image.get("Architecture", ""))))
    if not found:
        described = [_described(t, field, i, legacy=legacy) for i, t in enumerate(terms)]
        raise selector_terms.NotFoundError("AMINotFound", selector_terms.none_matches("image", described))
    return found


def _by_alias(
    ec2: EC2Client, ssm: SSMClient, node_class: EC2NodeClass, *, version: str, legacy: bool
) -> tuple[ResolvedAMI, ...]:
    spec = node_class.spec
    family = family_of(spec, legacy=legacy, version=version)
    named = alias(spec)
    release = named[1] if named else _LATEST
    asked = parameters(family, release, version)
    in_terms = named is not None and not legacy
    field = f'spec.amiSelectorTerms[0].alias "{family.name.lower()}@{release}"' if in_terms else "spec.amiFamily"
    if not asked:
        raise selector_terms.NotFoundError(
            "AMINotFound",
            f'{field}: family "{spec.ami_family}" has no images of its own; name them by spec.amiSelectorTerms',
        )
    values = _values(ssm, sorted({p.name for p in asked}), field)
    images = {image["ImageId"]: image for image in _describe(ec2, field, ids=sorted(set(values.values())))}
    found = _resolved(
        (images[values[p.name]], p.arch, p.requirements) for p in asked if p.name in values and values[p.name] in images
    )
    if not found:
        raise selector_terms.NotFoundError(
            "AMINotFound",
            f"{field} names no image: AWS publishes no {family.name} {release} for Kubernetes {version} in this Region",
        )
    return found


def _values(ssm: SSMClient, names: Sequence[str], field: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(names), _NAMES_A_CALL):
        try:
            answer = ssm.get_parameters(Names=list(names[start : start + _NAMES_A_CALL]))
        except ClientError as error:
            selector_terms.denied(error, "ssm:GetParameters on /aws/service/*", f"{field} can't be looked up")
        found |= {p["Name"]: p["Value"] for p in answer["Parameters"]}
    return found


def _by_term(ec2: EC2Client, ssm: SSMClient, term: AMISelectorTerm, field: str) -> list[ImageTypeDef]:
    if term.ssm_parameter:
        try:
            value = ssm.get_parameter(Name=term.ssm_parameter)["Parameter"]["Value"]
        except ClientError as error:
            if selector_terms.code(error) == _ABSENT_PARAMETER:
                return []
            selector_terms.denied(error, "ssm:GetParameter", f"{field} can't be looked up")
        return _describe(ec2, field, ids=[value])
    if term.id:
        return _describe(ec2, field, ids=[term.id])
    filters = selector_terms.tag_filters(term.tags)
    if term.name:
        filters.append({"Name": "name", "Values": [term.name]})
    owners = [term.owner] if term.owner else list(_DEFAULT_OWNERS)
    return _describe(ec2, field, filters=filters, owners=owners)


def _describe(
    ec2: EC2Client,
    field: str,
    *,
    ids: Sequence[str] = (),
    filters: Sequence[FilterTypeDef] = (),
    owners: Sequence[str] = (),
) -> list[ImageTypeDef]:
    by_id: list[FilterTypeDef] = [{"Name": "image-id", "Values": list(ids)}] if ids else []
    if not ids and not filters and not owners:
        return []
    try:
        pages = ec2.get_paginator("describe_images").paginate(
            Filters=[*by_id, *filters, {"Name": "state", "Values": ["available"]}], Owners=list(owners)
        )
        return [image for page in pages for image in page["Images"]]
    except ClientError as error:
        selector_terms.denied(error, "ec2:DescribeImages", f"{field} can't be looked up")


def _resolved(found: Iterable[tuple[ImageTypeDef, str, Requirements]]) -> tuple[ResolvedAMI, ...]:
    """Newest first; of several for the same types only the newest, since no other would ever be launched."""
    newest = sorted(found, key=lambda one: (one[0].get("CreationDate", ""), one[0]["ImageId"]), reverse=True)
    chosen: list[ResolvedAMI] = []
    for image, arch, requirements in newest:
        all_of = [AMIRequirement(key=labels.ARCH, operator="In", values=[arch]), *requirements]
        if all(all_of != ami.requirements for ami in chosen):
            chosen.append(ResolvedAMI(id=image["ImageId"], name=image.get("Name", ""), requirements=all_of))
    return tuple(chosen)


def _described(term: AMISelectorTerm, field: str, index: int, *, legacy: bool) -> str:
    place = field if legacy else f"{field}[{index}]"
    if term.ssm_parameter:
        return f'{place}.ssmParameter "{term.ssm_parameter}"'
    if term.id:
        return f'{place}.id "{term.id}"'
    owner = f' of owner "{term.owner}"' if term.owner else ""
    if term.name:
        return f'{place}.name "{term.name}"{owner}'
    return f"{place}.tags {selector_terms.quoted(term.tags)}{owner}"

"""The AMIs that a node class selects, newest first, and which instance types each of them is for.

The AMIs of an alias or a family are looked up in Systems Manager, others with DescribeImages. All are described,
because only the AMI itself knows its architecture. Those that their owner has deprecated are launched only where terms
select no others: EC2 hides them from descriptions, but launches them.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.ami_family.families import alias, family_of
from shared.ami_family.ssm_parameters import ARCHES, ssm_parameters
from shared.api import labels
from shared.api.nodeclass import AMIRequirement, ResolvedAMI
from shared.base.aws import error_code
from shared.launch.node_class.selector_terms import (
    NotFoundError,
    no_match_message,
    quoted_tags,
    raise_denied,
    tag_filters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mypy_boto3_ec2.type_defs import FilterTypeDef, ImageTypeDef
    from mypy_boto3_ssm import SSMClient

    from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass
    from shared.launch.node_class.ec2_descriptions import Ec2Descriptions

_TERMS = "amiSelectorTerms"
_MAX_PARAMETERS_A_CALL = 10
_LATEST = "latest"
_DEFAULT_OWNERS = ("self", "amazon")
_PARAMETER_NOT_FOUND = "ParameterNotFound"

Requirements = tuple[AMIRequirement, ...]


def select(
    ec2: Ec2Descriptions, ssm: SSMClient, node_class: EC2NodeClass, *, version: str, now: datetime
) -> tuple[ResolvedAMI, ...]:
    """The AMIs of the class on a cluster of the Kubernetes version, newest first.

    Raises:
        NotFoundError: the terms select none, or the lookup is denied.
    """
    terms = node_class.spec.ami_selector_terms
    if not terms or alias(node_class.spec) is not None:
        return _by_family(ec2, ssm, node_class, version=version, now=now)
    field = node_class.selector_path(_TERMS)
    images = itertools.chain.from_iterable(_by_term(ec2, ssm, term, field) for term in terms)
    known = ((image, arch, ()) for image in images if (arch := ARCHES.get(image.get("Architecture", ""))))
    selected = _resolved(known, now)
    if not selected:
        described = [_described(node_class, i, t) for i, t in enumerate(terms)]
        raise NotFoundError("AMINotFound", no_match_message("image", described))
    return selected


def _by_family(
    ec2: Ec2Descriptions, ssm: SSMClient, node_class: EC2NodeClass, *, version: str, now: datetime
) -> tuple[ResolvedAMI, ...]:
    """The AMIs that AWS publishes for the class's family, of the release that its alias names.

    An AMI in use that EC2 no longer describes stays selected next to others while its parameter names it. Otherwise its
    nodes would drift to whatever the AMIs of other variants fit, such as machines with GPUs.
    """
    spec = node_class.spec
    family = family_of(node_class, version=version)
    named = alias(spec)
    release = named[1] if named else _LATEST
    parameters = ssm_parameters(family, release, version)
    path = node_class.selector_path(_TERMS, 0, "alias")
    has_alias = named is not None and path.endswith(".alias")
    field = f'{path} "{family.name.lower()}@{release}"' if has_alias else "spec.amiFamily"
    if not parameters:
        raise NotFoundError(
            "AMINotFound",
            f'{field}: AWS publishes no images of family "{spec.ami_family}"; select them by spec.amiSelectorTerms',
        )
    values = _parameter_values(ssm, sorted({p.name for p in parameters}), field)
    images = {image["ImageId"]: image for image in _describe(ec2, field, ids=sorted(set(values.values())))}
    images |= _in_use(node_class, values.values(), images) if images else {}
    published = (p for p in parameters if p.name in values and values[p.name] in images)
    selected = _resolved(((images[values[p.name]], p.arch, p.requirements) for p in published), now)
    if not selected:
        raise NotFoundError(
            "AMINotFound",
            f"{field} names no image: AWS publishes no {family.name} {release} for Kubernetes {version} in this Region",
        )
    return _as_before(node_class, selected)


def _in_use(
    node_class: EC2NodeClass, ids: Iterable[str], images: Mapping[str, ImageTypeDef]
) -> dict[str, ImageTypeDef]:
    """The AMIs of the class's status that have one of the ids and aren't among the images."""
    names = {ami.id: ami.name for ami in node_class.status.amis if ami.id not in images}
    return {id_: {"ImageId": id_, "Name": names[id_]} for id_ in ids if id_ in names}


def _as_before(node_class: EC2NodeClass, selected: tuple[ResolvedAMI, ...]) -> tuple[ResolvedAMI, ...]:
    """The AMIs in the order of the class's status if they are the same: EC2 didn't tell the age of each."""
    places = {ami.id: place for place, ami in enumerate(node_class.status.amis)}
    if places.keys() != {ami.id for ami in selected}:
        return selected
    return tuple(sorted(selected, key=lambda ami: places[ami.id]))


def _parameter_values(ssm: SSMClient, names: Sequence[str], field: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for start in range(0, len(names), _MAX_PARAMETERS_A_CALL):
        try:
            response = ssm.get_parameters(Names=list(names[start : start + _MAX_PARAMETERS_A_CALL]))
        except ClientError as error:
            raise_denied(error, "ssm:GetParameters on /aws/service/*", f"{field} can't be looked up")
        values |= {p["Name"]: p["Value"] for p in response["Parameters"]}
    return values


def _by_term(ec2: Ec2Descriptions, ssm: SSMClient, term: AMISelectorTerm, field: str) -> list[ImageTypeDef]:
    if term.ssm_parameter:
        try:
            value = ssm.get_parameter(Name=term.ssm_parameter)["Parameter"]["Value"]
        except ClientError as error:
            if error_code(error) == _PARAMETER_NOT_FOUND:
                return []
            raise_denied(error, "ssm:GetParameter", f"{field} can't be looked up")
        return _describe(ec2, field, ids=[value])
    if term.id:
        return _describe(ec2, field, ids=[term.id])
    filters = tag_filters(term.tags)
    if term.name:
        filters.append({"Name": "name", "Values": [term.name]})
    owners = [term.owner] if term.owner else list(_DEFAULT_OWNERS)
    return _describe(ec2, field, filters=filters, owners=owners)


def _describe(
    ec2: Ec2Descriptions,
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
        return ec2.images([*by_id, *filters, {"Name": "state", "Values": ["available"]}], list(owners))
    except ClientError as error:
        raise_denied(error, "ec2:DescribeImages", f"{field} can't be looked up")


def _is_deprecated(image: ImageTypeDef, now: datetime) -> bool:
    """Whether the time at which the image's owner deprecates it has come."""
    stated = image.get("DeprecationTime", "")
    try:
        return bool(stated) and datetime.fromisoformat(stated) <= now
    except ValueError:
        return False


def _resolved(images: Iterable[tuple[ImageTypeDef, str, Requirements]], now: datetime) -> tuple[ResolvedAMI, ...]:
    """Newest first, deprecated ones last. Of several AMIs for the same instance types only the first is launched."""

    def rank(entry: tuple[ImageTypeDef, str, Requirements]) -> tuple[bool, str, str]:
        image = entry[0]
        return not _is_deprecated(image, now), image.get("CreationDate", ""), image["ImageId"]

    newest = sorted(images, key=rank, reverse=True)
    selected: list[ResolvedAMI] = []
    for image, arch, requirements in newest:
        all_requirements = [AMIRequirement(key=labels.ARCH, operator="In", values=[arch]), *requirements]
        if all(all_requirements != ami.requirements for ami in selected):
            selected.append(ResolvedAMI(id=image["ImageId"], name=image.get("Name", ""), requirements=all_requirements))
    return tuple(selected)


def _described(node_class: EC2NodeClass, index: int, term: AMISelectorTerm) -> str:
    if term.ssm_parameter:
        return f'{node_class.selector_path(_TERMS, index, "ssmParameter")} "{term.ssm_parameter}"'
    if term.id:
        return f'{node_class.selector_path(_TERMS, index, "id")} "{term.id}"'
    owner = f' of owner "{term.owner}"' if term.owner else ""
    if term.name:
        return f'{node_class.selector_path(_TERMS, index, "name")} "{term.name}"{owner}'
    return f"{node_class.selector_path(_TERMS, index, 'tags')} {quoted_tags(term.tags)}{owner}"

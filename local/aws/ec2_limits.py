"""What EC2 refuses of the form of a request, and moto takes.

Filters may have 200 values in total (error FilterLimitExceeded). EC2 throttles unpaginated lists of many resources, or
lets them time out ("Pagination in the Amazon EC2 API"); to functions they are refused here at any number, so that every
test notices. User data has 16 KB at most, before it is encoded in base64 ("Run commands when you launch an EC2 instance
with user data input", EC2 User Guide). Page sizes, ids of a call, names and tags have the limits of the API reference;
botocore doesn't check the upper ones. A CreateFleet request that is too large is an InvalidInput
(github.com/aws/karpenter-provider-aws/issues/5776); from which size on isn't documented, here from 128 KB on.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from local.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_FILTER_VALUES = 200
_MAX_USER_DATA = 16_384
_USER_DATA = "LaunchTemplateData.UserData"
_MAX_FLEET_REQUEST = 131_072
_TEMPLATE_NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
_TEMPLATE_NAME_MESSAGE = (
    "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following "
    "characters: - ( ) . / _."
)
_FILTER_VALUE = re.compile(r"Filter\.\d+\.Value\.\d+")
_ID = re.compile(r"(Instance|Subnet|Image|Group|LaunchTemplate|SecurityGroup|CapacityReservation)(Id|Name)\.\d+")
_NARROW_FILTERS = frozenset({"instance-id", "subnet-id", "image-id", "group-id", "capacity-reservation-id"})
_PAGE_SIZES = {
    "DescribeCapacityReservations": (1, 1000),
    "DescribeInstanceStatus": (5, 1000),
    "DescribeInstanceTypeOfferings": (5, 1000),
    "DescribeInstanceTypes": (5, 100),
    "DescribeInstances": (5, 1000),
    "DescribeLaunchTemplates": (1, 200),
    "DescribeSecurityGroups": (5, 1000),
    "DescribeSpotInstanceRequests": (5, 1000),
    "DescribeSubnets": (5, 1000),
}
"""The least and the most of MaxResults."""
_ALL_IDS_OR_PAGES = frozenset({"DescribeInstances", "DescribeInstanceStatus"})
"""Ids and MaxResults exclude each other."""
_MAX_IDS = {
    "CreateTags": ("ResourceId", 1000),
    "DescribeInstanceStatus": ("InstanceId", 100),
    "DescribeInstanceTypes": ("InstanceType", 100),
    "TerminateInstances": ("InstanceId", 1000),
}
_MAX_TAGS, _MAX_TAG_KEY, _MAX_TAG_VALUE = 50, 128, 256
_TAG = re.compile(r"(?P<set>.*\.)?Tag\.\d+\.(?P<field>Key|Value)")
_LISTS = frozenset(
    {
        "DescribeCapacityReservations",
        "DescribeImages",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeLaunchTemplates",
        "DescribeSecurityGroups",
        "DescribeSpotPriceHistory",
        "DescribeSubnets",
    }
)
"""Those that grow with the cluster, the account or the Region."""


def request_error(operation: str, body: bytes, *, caller: str) -> Fault | None:
    """EC2's error for the request; None if its form is right. ``caller`` is the function, "" for others."""
    parameters = dict(parse_qsl(body.decode()))
    values = sum(bool(_FILTER_VALUE.fullmatch(name)) for name in parameters)
    if values > _MAX_FILTER_VALUES:
        message = f"The maximum number of filter values specified on a single call is {_MAX_FILTER_VALUES}"
        return Fault(code="FilterLimitExceeded", message=message)
    if len(base64.b64decode(parameters.get(_USER_DATA, ""))) > _MAX_USER_DATA:
        return Fault(code="InvalidParameterValue", message=f"User data is limited to {_MAX_USER_DATA} bytes.")
    if operation == "CreateFleet" and len(body) > _MAX_FLEET_REQUEST:
        message = "The request failed because the payload for the body of the request is too large."
        return Fault(code="InvalidInput", message=message)
    if operation == "CreateLaunchTemplate" and not _TEMPLATE_NAME.fullmatch(parameters.get("LaunchTemplateName", "")):
        return Fault(code="InvalidLaunchTemplateName.MalformedException", message=_TEMPLATE_NAME_MESSAGE)
    if caller and operation in _LISTS and _is_unpaginated(parameters):
        return Fault(code="RequestLimitExceeded", message=f"Request limit exceeded: {operation} without MaxResults")
    return _page_error(operation, parameters) or _ids_error(operation, parameters) or _tags_error(parameters)


def _page_error(operation: str, parameters: Mapping[str, str]) -> Fault | None:
    if "MaxResults" not in parameters:
        return None
    least, most = _PAGE_SIZES.get(operation, (1, int(parameters["MaxResults"])))
    if not least <= int(parameters["MaxResults"]) <= most:
        message = (
            f"Value ( {parameters['MaxResults']} ) for parameter maxResults is invalid. Expecting {least} to {most}."
        )
        return Fault(code="InvalidParameterValue", message=message)
    if operation in _ALL_IDS_OR_PAGES and _ids(parameters, "InstanceId"):
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        return Fault(code="InvalidParameterCombination", message=message)
    return None


def _ids_error(operation: str, parameters: Mapping[str, str]) -> Fault | None:
    name, most = _MAX_IDS.get(operation, ("", 0))
    if name and _ids(parameters, name) > most:
        return Fault(code="InvalidParameterValue", message=f"{operation} takes at most {most} of {name}.")
    return None


def _ids(parameters: Mapping[str, str], name: str) -> int:
    return sum(key.startswith(f"{name}.") for key in parameters)


def _tags_error(parameters: Mapping[str, str]) -> Fault | None:
    tags: Counter[str] = Counter()
    for name, value in parameters.items():
        if (match := _TAG.fullmatch(name)) is None:
            continue
        is_key = match["field"] == "Key"
        if len(value) > (_MAX_TAG_KEY if is_key else _MAX_TAG_VALUE):
            longest = f"{_MAX_TAG_KEY} characters" if is_key else f"{_MAX_TAG_VALUE} characters"
            return Fault(code="InvalidParameterValue", message=f"Tag {match['field']} exceeds {longest}.")
        if is_key and value.startswith("aws:"):
            return Fault(code="InvalidParameterValue", message="Tag keys starting with 'aws:' are reserved.")
        tags[match["set"] or ""] += is_key
    if any(count > _MAX_TAGS for count in tags.values()):
        return Fault(code="TagLimitExceeded", message=f"The maximum number of tags of a resource is {_MAX_TAGS}.")
    return None


def _is_unpaginated(parameters: Mapping[str, str]) -> bool:
    """Whether the list has no page size, and nothing names what it should have."""
    is_narrow = any(
        _ID.fullmatch(name) or (name.startswith("Filter.") and name.endswith(".Name") and value in _NARROW_FILTERS)
        for name, value in parameters.items()
    )
    return "MaxResults" not in parameters and not is_narrow

"""What EC2 refuses of the form of a request, and moto takes.

Filters may have 200 values in total (error FilterLimitExceeded). EC2 throttles unpaginated lists of many resources, or
lets them time out ("Pagination in the Amazon EC2 API"); to functions they are refused here at any number, so that every
test notices. User data has 16 KB at most, before it is encoded in base64 ("Run commands when you launch an EC2 instance
with user data input", EC2 User Guide).
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from local.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_FILTER_VALUES = 200
_MAX_USER_DATA = 16_384
_USER_DATA = "LaunchTemplateData.UserData"
_FILTER_VALUE = re.compile(r"Filter\.\d+\.Value\.\d+")
_ID = re.compile(r"(Instance|Subnet|Image|Group|LaunchTemplate|SecurityGroup|CapacityReservation)(Id|Name)\.\d+")
_NARROW_FILTERS = frozenset({"instance-id", "subnet-id", "image-id", "group-id", "capacity-reservation-id"})
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
    if caller and operation in _LISTS and _is_unpaginated(parameters):
        return Fault(code="RequestLimitExceeded", message=f"Request limit exceeded: {operation} without MaxResults")
    return None


def _is_unpaginated(parameters: Mapping[str, str]) -> bool:
    """Whether the list has no page size, and nothing names what it should have."""
    is_narrow = any(
        _ID.fullmatch(name) or (name.startswith("Filter.") and name.endswith(".Name") and value in _NARROW_FILTERS)
        for name, value in parameters.items()
    )
    return "MaxResults" not in parameters and not is_narrow

"""EC2's descriptions of what selector terms select, merged over the times that a question was asked.

An answer of EC2 may lag or leave resources out (EC2 Developer Guide, "Eventual consistency in the Amazon EC2 API").
Whoever asks again with the same object gets every resource that any of the answers had.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shared.base.aws import PAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import (
        CapacityReservationTypeDef,
        FilterTypeDef,
        ImageTypeDef,
        SecurityGroupTypeDef,
        SubnetTypeDef,
    )

T = TypeVar("T")


class Ec2Descriptions:
    """Answers of EC2's Describe calls by filters. Each method raises ClientError if EC2 returned an error."""

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2
        self._answers: dict[str, dict[str, Any]] = {}

    def subnets(self, filters: Sequence[FilterTypeDef]) -> list[SubnetTypeDef]:
        """The subnets that match the filters."""
        pages = self._ec2.get_paginator("describe_subnets").paginate(Filters=filters, PaginationConfig=PAGES)
        return self._merged(["subnets", filters], {s["SubnetId"]: s for page in pages for s in page["Subnets"]})

    def security_groups(self, filters: Sequence[FilterTypeDef]) -> list[SecurityGroupTypeDef]:
        """The security groups that match the filters."""
        pages = self._ec2.get_paginator("describe_security_groups").paginate(Filters=filters, PaginationConfig=PAGES)
        groups = {g["GroupId"]: g for page in pages for g in page["SecurityGroups"]}
        return self._merged(["security-groups", filters], groups)

    def images(self, filters: Sequence[FilterTypeDef], owners: Sequence[str]) -> list[ImageTypeDef]:
        """The images of these owners (none: of all) that match the filters, also those that their owner deprecated."""
        pages = self._ec2.get_paginator("describe_images").paginate(
            Filters=filters, Owners=owners, IncludeDeprecated=True, PaginationConfig=PAGES
        )
        images = {i["ImageId"]: i for page in pages for i in page["Images"]}
        return self._merged(["images", filters, owners], images)

    def capacity_reservations(self, filters: Sequence[FilterTypeDef]) -> list[CapacityReservationTypeDef]:
        """The capacity reservations that match the filters."""
        pages = self._ec2.get_paginator("describe_capacity_reservations").paginate(
            Filters=filters, PaginationConfig=PAGES
        )
        reservations = {r["CapacityReservationId"]: r for page in pages for r in page["CapacityReservations"]}
        return self._merged(["capacity-reservations", filters], reservations)

    def _merged(self, question: Sequence[object], answer: Mapping[str, T]) -> list[T]:
        """The resources of all answers to the question, as the last answer with each described it."""
        answers = self._answers.setdefault(json.dumps(question), {})
        answers |= answer
        return cast("list[T]", list(answers.values()))

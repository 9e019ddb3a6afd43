"""Launch templates that nothing launches from any more.

A template's name follows from its content, so a changed class, image or cluster leaves its old ones behind. One that is
still wanted and deleted here is made again by the next launch, so age alone may decide.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws
from shared.api import labels
from shared.launch.finding import code

if TYPE_CHECKING:
    from datetime import datetime

KEPT = timedelta(days=7)
MOST = 25
"""Templates deleted in one run; the rest waits for the next."""

_GONE = frozenset({"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"})


def collect(cluster: str, *, now: datetime, kept: timedelta = KEPT) -> tuple[str, ...]:
    """Delete the cluster's templates that are older than ``kept``, oldest first; returns their names.

    Raises:
        ClientError: EC2 refused; what is left is collected by the next run.
    """
    ec2 = aws.ec2()
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        Filters=[{"Name": f"tag:{labels.CLUSTER_TAG.format(cluster=cluster)}", "Values": ["owned"]}]
    )
    found = [
        (template["CreateTime"], template["LaunchTemplateName"], template["LaunchTemplateId"])
        for page in pages
        for template in page["LaunchTemplates"]
    ]
    old = sorted(one for one in found if now - one[0] > kept and one[1].startswith(f"tenon-{cluster}-"))
    deleted = []
    for _, name, template_id in old[:MOST]:
        try:
            ec2.delete_launch_template(LaunchTemplateId=template_id)
        except ClientError as error:
            if code(error) not in _GONE:
                raise
        deleted.append(name)
    return tuple(deleted)

"""What costs nothing but clutters: launch templates that nothing comes from any more, leases of nodes that are gone.

Looked at once an hour by each process. A template that is deleted and wanted again is made again by the next launch.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared import aws, runtime
from shared.api import labels as names
from shared.cluster import listing, resources, writes
from shared.cluster.lease import LeaseObject
from shared.termination import garbage
from shared.termination.garbage import LaunchTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.cluster.client import Client
    from shared.launch.instances import Instance
    from shared.snapshot import Snapshot

EVERY = timedelta(hours=1)
NODE_LEASES = "kube-node-lease"
_MOST = 25
"""Templates deleted in one run; the rest waits for the next."""
_NOT_FOUND = frozenset({"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"})


def clear(client: Client, cluster: str, snapshot: Snapshot, instances: Iterable[Instance]) -> None:
    """Delete what is left over, unless this process has looked within the hour.

    Raises:
        ApiError, ClientError: what is left is found by the next look.
    """
    now = snapshot.taken_at
    looked: dict[str, datetime] = runtime.current().cached("lifecycle:leftovers", dict)
    if "at" in looked and now - looked["at"] < EVERY:
        return
    looked["at"] = now
    for template in garbage.unused_templates(_templates(cluster), instances, now=now)[:_MOST]:
        _delete(template)
    leases = listing.list_objects(client, resources.LEASES, LeaseObject, namespace=NODE_LEASES).objects
    for lease in garbage.leftover_leases(leases, snapshot.nodes, now=now):
        writes.delete(client, resources.LEASES, lease)


def _templates(cluster: str) -> list[LaunchTemplate]:
    """The launch templates that carry the cluster's tag and a name of ours, oldest first."""
    pages = (
        aws.ec2()
        .get_paginator("describe_launch_templates")
        .paginate(Filters=[{"Name": f"tag:{names.CLUSTER_TAG.format(cluster=cluster)}", "Values": ["owned"]}])
    )
    found = [
        LaunchTemplate(
            id=one["LaunchTemplateId"],
            name=one["LaunchTemplateName"],
            created_at=one["CreateTime"],
        )
        for page in pages
        for one in page["LaunchTemplates"]
        if one["LaunchTemplateName"].startswith(f"tenon-{cluster}-")
    ]
    return sorted(found, key=lambda t: (t.created_at, t.name))


def _delete(template: LaunchTemplate) -> None:
    try:
        aws.ec2().delete_launch_template(LaunchTemplateId=template.id)
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NOT_FOUND:
            raise

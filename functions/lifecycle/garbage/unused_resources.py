"""Deletes unused launch templates, and leases of nodes that are gone.

They cost nothing, so each process looks for them once an hour. A launch template that is needed again is created again
by the next launch. ``unused_launch_templates`` and ``leases_without_node`` are pure.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shared.api import labels as names
from shared.base.struct import MutableStruct, Struct
from shared.cluster import listing, resources, writes
from shared.cluster.lease import LeaseObject, is_recent

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client

    from functions.lifecycle.compared_instances import ComparedInstances
    from functions.lifecycle.context import ReconcileContext
    from shared.api.kubernetes import Node
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

UNUSED_AFTER = timedelta(hours=1)
"""Age of an unused launch template, or of a lease's last renewal, at which it is deleted."""
COLLECTION_INTERVAL = timedelta(hours=1)
NODE_LEASE_NAMESPACE = "kube-node-lease"
_MAX_TEMPLATES_PER_RUN = 25
_TEMPLATES_PER_PAGE = 200
"""The most that EC2 allows."""
_NOT_FOUND = frozenset({"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"})
_TEMPLATE_TAG = "aws:ec2launchtemplate:id"
"""EC2's own tag on an instance: the launch template that it was launched from."""


class LaunchTemplate(Struct, kw_only=True):
    """A launch template of the cluster."""

    id: str
    name: str
    created_at: datetime


class RecentLaunches(MutableStruct, kw_only=True):
    """What a process knows of the launches of the last hour: the instances of all portions, once it has seen them."""

    portions: dict[tuple[int, int], tuple[Instance, ...]] = {}
    """By the portion's number and count."""
    deleted_at: datetime | None = None

    def add(self, compared: ComparedInstances, *, now: datetime) -> tuple[Instance, ...] | None:
        """The instances that were launched in the last hour; None while a portion is missing."""
        portion = compared.portion
        recent = tuple(i for i in compared.instances if now - i.launched_at < UNUSED_AFTER)
        self.portions = {key: known for key, known in self.portions.items() if key[1] == portion.count}
        self.portions[portion.number, portion.count] = recent
        if len(self.portions) < portion.count:
            return None
        return tuple(instance for known in self.portions.values() for instance in known)


def delete_unused(context: ReconcileContext, snapshot: Snapshot, compared: ComparedInstances) -> None:
    """Delete unused launch templates and leases, unless this process did so within the hour."""
    launches = context.runtime.cached("lifecycle:recent-launches", RecentLaunches)
    recent = launches.add(compared, now=snapshot.taken_at)
    is_due = launches.deleted_at is None or snapshot.taken_at - launches.deleted_at >= COLLECTION_INTERVAL
    if recent is not None and is_due:
        launches.deleted_at = snapshot.taken_at
        context.attempt("unused resources", partial(_delete_unused, context, snapshot, recent))


def unused_launch_templates(
    templates: Iterable[LaunchTemplate], instances: Iterable[Instance], *, now: datetime
) -> tuple[LaunchTemplate, ...]:
    """Launch templates older than an hour from which no instance was launched in the last hour."""
    recently_used = {i.tags.get(_TEMPLATE_TAG, "") for i in instances if now - i.launched_at < UNUSED_AFTER}
    return tuple(t for t in templates if now - t.created_at >= UNUSED_AFTER and t.id not in recently_used)


def leases_without_node(
    leases: Iterable[LeaseObject], nodes: Iterable[Node], *, now: datetime
) -> tuple[LeaseObject, ...]:
    """Node leases without an owner and a node that were not renewed for an hour, or that say they will be.

    A lease with an owner reference is deleted with its owner by Kubernetes' garbage collector.
    """
    node_names = {n.metadata.name for n in nodes}
    return tuple(
        lease
        for lease in leases
        if not lease.metadata.owner_references
        and lease.metadata.name not in node_names
        and not is_recent(
            lease.spec.renew_time or lease.metadata.creation_timestamp or now, now=now, within=UNUSED_AFTER
        )
    )


def _delete_unused(context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
    now = snapshot.taken_at
    ec2 = context.aws.ec2()
    existing = _cluster_launch_templates(ec2, context.settings.cluster_name)
    for template in unused_launch_templates(existing, instances, now=now)[:_MAX_TEMPLATES_PER_RUN]:
        _delete_launch_template(ec2, template)
    leases = listing.list_objects(context.client, resources.LEASES, LeaseObject, namespace=NODE_LEASE_NAMESPACE).objects
    for lease in leases_without_node(leases, snapshot.nodes, now=now):
        writes.delete(context.client, resources.LEASES, lease)


def _cluster_launch_templates(ec2: EC2Client, cluster: str) -> list[LaunchTemplate]:
    """The launch templates with the cluster's tag and a name of Tenon's, oldest first."""
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        Filters=[{"Name": f"tag:{names.CLUSTER_TAG.format(cluster=cluster)}", "Values": ["owned"]}],
        PaginationConfig={"PageSize": _TEMPLATES_PER_PAGE},
    )
    templates = [
        LaunchTemplate(
            id=template["LaunchTemplateId"],
            name=template["LaunchTemplateName"],
            created_at=template["CreateTime"],
        )
        for page in pages
        for template in page["LaunchTemplates"]
        if template["LaunchTemplateName"].startswith(f"tenon-{cluster}-")
    ]
    return sorted(templates, key=lambda t: (t.created_at, t.name))


def _delete_launch_template(ec2: EC2Client, template: LaunchTemplate) -> None:
    try:
        ec2.delete_launch_template(LaunchTemplateId=template.id)
    except ClientError as error:
        if error.response["Error"]["Code"] not in _NOT_FOUND:
            raise

"""Removes everything that runs have made, by its label or tag: of this run at its end, and of runs that died.

Tenon removes its own nodes: the pods go, then the NodePool and NodeClaims. What it hasn't removed in time, because a
deployment that fails its verification may not do that, is terminated here, and then loses its finalizers.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from cli.verify import interruption, objects
from cli.verify.protection import unprotect
from shared.api import labels
from shared.base.aws import error_code
from shared.base.struct import Struct
from shared.cluster import resources
from shared.cluster.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.verify.objects import Obj
    from cli.verify.verification import Verification
    from shared.cluster.resources import Resource

ALIVE_FOR = timedelta(seconds=60)
"""How long after it was last seen alive a run counts as alive."""
_TENON_LIMIT = timedelta(minutes=6)
"""How long Tenon may take to remove its nodes."""
_EC2_LIMIT = timedelta(minutes=3)
_IN_CLUSTER = (resources.NODE_POOLS, resources.NODE_CLAIMS, resources.NODES)
"""Kinds whose objects are removed before the node class and the namespace, which they need."""
_GONE = frozenset({"shutting-down", "terminated"})


class LeftOver(Struct, kw_only=True):
    """What runs have left: a kind and a name each."""

    identities: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """Kind and name of each, for people."""
        return [f"{kind} {name}" for kind, name in self.identities]


def find(run: Verification) -> LeftOver:
    """Everything that runs of this cluster have left, in the cluster and in the account.

    Raises:
        ApiError, ClientError: it can't be read.
    """
    return LeftOver(identities=tuple(_resources_of_runs(run)))


def _resources_of_runs(run: Verification) -> Iterator[tuple[str, str]]:
    for resource in (resources.NAMESPACES, *_IN_CLUSTER, resources.NODE_CLASSES):
        yield from ((resource.kind, obj["metadata"]["name"]) for obj in _labelled(run, resource))
    yield from (("instance", i["InstanceId"]) for i in _instances(run))
    yield from (("launch template", name) for name in _templates(run))
    yield from (("experiment template", id_) for id_ in _experiments(run))


def living_run(run: Verification) -> tuple[str, datetime] | None:
    """The name of the namespace of a run that may be alive, and when it was last seen; None if there is none."""
    for namespace in _labelled(run, resources.NAMESPACES):
        seen = namespace["metadata"].get("annotations", {}).get(objects.RENEWED, "")
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(seen)
            if run.now() - moment < ALIVE_FOR:
                return namespace["metadata"]["name"], moment
    return None


def remove(run: Verification) -> LeftOver:
    """Remove everything; what couldn't be removed.

    Each part is tried, whatever became of the others.
    """
    parts = (_delete_experiments, _unprotect, _delete_pods, _remove_nodes, _delete_templates, _delete_the_rest)
    for part in parts:
        with contextlib.suppress(ApiError, BotoCoreError, ClientError):
            part(run)
    run.wait(lambda: not find(run).identities, limit=_EC2_LIMIT)
    return find(run)


def _delete_experiments(run: Verification) -> None:
    for id_ in _experiments(run):
        run.aws("fis").delete_experiment_template(id=id_)


def _unprotect(run: Verification) -> None:
    for instance in _instances(run):
        with contextlib.suppress(ClientError):  # one that is shutting down
            unprotect(run, instance["InstanceId"])


def _delete_pods(run: Verification) -> None:
    for resource in (resources.POD_DISRUPTION_BUDGETS, resources.PODS):
        for obj in _labelled(run, resource):
            name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
            run.delete(resource, name, namespace=namespace, grace=0 if resource is resources.PODS else None)


def _remove_nodes(run: Verification) -> None:
    """Delete NodePools and NodeClaims, and terminate what is no node; what Tenon leaves is forced."""
    for resource in (resources.NODE_POOLS, resources.NODE_CLAIMS):
        for obj in _labelled(run, resource):
            run.delete(resource, obj["metadata"]["name"])
    claimed = {_instance(claim) for claim in _labelled(run, resources.NODE_CLAIMS)}
    _terminate(run, [i for i in _instances(run) if i["InstanceId"] not in claimed])
    if run.wait(lambda: not any(_labelled(run, r) for r in _IN_CLUSTER), limit=_TENON_LIMIT):
        return
    _terminate(run, _instances(run))
    run.wait(lambda: not _instances(run), limit=_EC2_LIMIT)
    for resource in _IN_CLUSTER:
        for obj in _labelled(run, resource):
            _without_finalizers(run, resource, obj)


def _delete_templates(run: Verification) -> None:
    for name in _templates(run):
        run.aws("ec2").delete_launch_template(LaunchTemplateName=name)


def _delete_the_rest(run: Verification) -> None:
    for resource in (resources.NODE_CLASSES, resources.NAMESPACES):
        for obj in _labelled(run, resource):
            run.delete(resource, obj["metadata"]["name"])


def _terminate(run: Verification, instances: list[dict[str, Any]]) -> None:
    """One by one, so that one which can't be terminated keeps no other."""
    for instance in instances:
        if instance["State"]["Name"] not in _GONE:
            with contextlib.suppress(ClientError):
                run.aws("ec2").terminate_instances(InstanceIds=[instance["InstanceId"]])


def _without_finalizers(run: Verification, resource: Resource, obj: Obj) -> None:
    path = resource.path(obj["metadata"]["name"])
    with contextlib.suppress(NotFoundError):
        run.client.patch(path, {"metadata": {"finalizers": None}})
        run.client.delete(path)


def _labelled(run: Verification, resource: Resource) -> list[Obj]:
    return run.list_objects(resource, labels=objects.LABEL)


def _instance(claim: Obj) -> str:
    provider_id: str = claim.get("status", {}).get("providerID", "")
    return provider_id.rpartition("/")[2]


def _instances(run: Verification) -> list[dict[str, Any]]:
    """The instances of runs of this cluster that aren't ended, by their tags."""
    tagged = run.instances(("tag-key", objects.TAG), (f"tag:{labels.CLUSTER_NAME_TAG}", run.cluster))
    return [i for i in tagged if i["State"]["Name"] not in _GONE]


def _experiments(run: Verification) -> list[str]:
    """The experiment templates of FIS; none for users who may not list them, as they can't have made any."""
    try:
        return interruption.experiment_templates(run)
    except (BotoCoreError, ClientError):
        return []


def _templates(run: Verification) -> list[str]:
    filters = [
        {"Name": "tag-key", "Values": [objects.TAG]},
        {"Name": f"tag:{labels.CLUSTER_NAME_TAG}", "Values": [run.cluster]},
    ]
    try:
        pages = list(
            run.aws("ec2")
            .get_paginator("describe_launch_templates")
            .paginate(Filters=filters, PaginationConfig={"PageSize": 200})
        )
    except ClientError as error:
        if "NotFound" in error_code(error):
            return []
        raise
    return [str(t["LaunchTemplateName"]) for page in pages for t in page["LaunchTemplates"]]

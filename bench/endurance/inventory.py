"""What Tenon keeps, counted: everything that could grow from day to day.

An inventory is taken at the same hour of each day, so two of them are equal unless something grows. What AWS and the
API server delete by themselves isn't counted: rows after their ``expires``, events an hour after their last writing.
"""

from __future__ import annotations

import gc
import json
from datetime import datetime, timedelta
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

from local.aws import backends
from local.kubernetes import kinds
from local.kubernetes.objects import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local.kubernetes.objects import Obj
    from local.world import World

EVENT_LIFETIME = timedelta(hours=1)
"""kube-apiserver's --event-ttl, by default; EKS doesn't change it."""
_OWN_KINDS = (
    ("karpenter.sh/v1", "NodePool"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
)
_NOT_FOLLOWED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_FOLLOWED_MODULES = ("shared", "functions", "builtins", "datetime", "collections", "numpy", "types")
"""Of other modules are clients, through which the whole local world could be reached."""


def take(world: World) -> dict[str, int]:
    """What there is now, by name."""
    now, store, region = world.clock.now(), world.store, world.region
    with world.aws.lock:
        ec2 = backends.ec2(region)
        counts = {
            "instances": len(world.instances()),
            "launch templates": len(ec2.launch_templates),
            "volumes": len(ec2.volumes),
            "instance profiles": len(backends.iam().instance_profiles),
        }
    own = _own_objects(world)
    return {
        **counts,
        **_rows(now),
        **_s3_objects(),
        "NodeClaims": len(world.claims()),
        "nodes": len(world.nodes()),
        "node leases": len(store.list(kinds.LEASES, namespace="kube-node-lease")),
        "Tenon's leases": len([o for o in own if o["kind"] == "Lease"]),
        "bytes of Tenon's longest object": max(len(json.dumps(o)) for o in own),
        "events of the last hour": sum(1 for e in store.list(kinds.EVENTS) if not is_expired(e, now)),
        "messages in queues": _messages(world) - len(world.dead_letters()),
        "dead letters": len(world.dead_letters()),
    }


def is_expired(event: Obj, now: datetime) -> bool:
    """Whether a real API server has deleted the event."""
    written = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
    return now - parse_timestamp(written) >= EVENT_LIFETIME


def expire_events(world: World) -> None:
    """Delete the events that a real API server deletes; the local one keeps them."""
    now = world.clock.now()
    for event in world.store.list(kinds.EVENTS):
        if is_expired(event, now):
            meta = event["metadata"]
            world.store.delete(kinds.EVENTS, meta["name"], namespace=meta["namespace"])


def warm_objects(world: World) -> dict[str, int]:
    """How many objects the cache of a warm execution environment holds: of each function, the largest.

    Clients aren't followed, nor is what all local worlds share.
    """
    shared, functions = {id(value) for value in world.options.shared_cache.values()}, world.aws.functions
    idle = sorted(functions._idle.items())  # noqa: SLF001 (what the local Lambda tells nobody)
    return {
        functions.named(name).short_name: max(len(reachable(e.warm, besides=shared)) for e in environments)
        for name, environments in idle
        if environments
    }


def reachable(root: object, *, besides: Iterable[int] = ()) -> Mapping[int, object]:
    """The objects that can be reached from this one, by id."""
    seen: dict[int, object] = {}
    skipped = set(besides)
    queue: list[object] = [root]
    while queue:
        obj = queue.pop()
        if id(obj) in seen or id(obj) in skipped or isinstance(obj, _NOT_FOLLOWED):
            continue
        if type(obj).__module__.partition(".")[0] not in _FOLLOWED_MODULES:
            continue
        seen[id(obj)] = obj
        queue.extend(gc.get_referents(obj))
    return seen


def _rows(now: datetime) -> dict[str, int]:
    dynamodb = backends.client("dynamodb")
    rows = [
        row
        for table in dynamodb.list_tables()["TableNames"]
        for page in dynamodb.get_paginator("scan").paginate(TableName=table)
        for row in page["Items"]
    ]
    expiring = [int(row["expires"]["N"]) for row in rows if "expires" in row]
    return {
        "rows": sum(1 for expires in expiring if expires > now.timestamp()),
        "rows that never expire": len(rows) - len(expiring),
    }


def _s3_objects() -> dict[str, int]:
    """The versions of objects, and their bytes, in buckets other than the CDK's."""
    s3 = backends.client("s3")
    names = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"] if not bucket["Name"].startswith("cdk-")]
    pages = [page for name in names for page in s3.get_paginator("list_object_versions").paginate(Bucket=name)]
    versions = [version for page in pages for version in page.get("Versions", ())]
    return {"S3 objects": len(versions), "S3 bytes": sum(version["Size"] for version in versions)}


def _messages(world: World) -> int:
    return sum(len(world.aws.queues.messages(name)) for name in backends.sqs(world.region).queues)


def _own_objects(world: World) -> list[Obj]:
    leases = world.store.list(kinds.LEASES, namespace="kube-system")
    own = [{**lease, "kind": "Lease"} for lease in leases if "tenon" in lease["metadata"]["name"]]
    for api_version, kind in _OWN_KINDS:
        own += [{**obj, "kind": kind} for obj in world.store.list(world.store.kind(api_version, kind))]
    return own

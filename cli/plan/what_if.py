"""The cluster as it might be: other replica counts, other pools, capacity that is gone.

Each question changes the snapshot and nothing else, so the plan that follows is made as for a cluster that is so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cli.cluster import manifest_reader, offerings
from cli.cluster.observed_cluster import Workload, offering_of, with_snapshot
from cli.errors import UsageError
from shared.api.kubernetes import Pod, PodStatus
from shared.api.meta import Condition, ObjectMeta, OwnerReference
from shared.api.pods import controller, is_reschedulable
from shared.cluster import conversion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cli.cluster.observed_cluster import Facts
    from shared.snapshot import Snapshot

_KINDS = {
    "deployment": "deployment", "deploy": "deployment", "deployments": "deployment",
    "statefulset": "statefulset", "sts": "statefulset", "statefulsets": "statefulset",
    "replicaset": "replicaset", "rs": "replicaset", "replicasets": "replicaset",
}  # fmt: skip
_HASH = re.compile(r"-[a-z0-9]{5,10}$")
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")
_FORMS = "deployment/NAME=REPLICAS, statefulset/NAME=REPLICAS (NAME may be NAMESPACE/NAME) or nodepool=FILE"


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A workload with another number of replicas."""

    kind: str
    namespace: str
    name: str
    replicas: int


@dataclass(frozen=True, kw_only=True)
class Applied:
    """NodePools and node classes of a file, as if they were applied."""

    path: Path


Change = Scaled | Applied


def parse(text: str, *, namespace: str) -> Change:
    """``deployment/web=50`` or ``nodepool=FILE``.

    Raises:
        UsageError: of neither form.
    """
    what, equals, value = text.partition("=")
    if equals and what.lower() in {"nodepool", "provisioner"} and value:
        return Applied(path=Path(value))
    kind, _, name = what.partition("/")
    if equals and name and kind.lower() in _KINDS and value.isdigit():
        space, slash, bare = name.rpartition("/")
        return Scaled(
            kind=_KINDS[kind.lower()], namespace=space if slash else namespace, name=bare, replicas=int(value)
        )
    raise UsageError(f'--what-if "{text}" is not of the form {_FORMS}')


def apply(facts: Facts, changes: Iterable[Change]) -> Facts:
    """The facts with every change made.

    Raises:
        UsageError: there is no such workload, or a file has no usable pool.
    """
    for change in changes:
        facts = _scaled(facts, change) if isinstance(change, Scaled) else _applied(facts, change)
    return facts


def nodes_of(snapshot: Snapshot, what: Collection[str]) -> tuple[str, ...]:
    """The nodes that are lost when these capacity types, zones, types or families are."""
    return tuple(n.metadata.name for n in snapshot.nodes if offerings.is_named(what, *offering_of(n.metadata.labels)))


def _scaled(facts: Facts, change: Scaled) -> Facts:
    own = [p for p in facts.snapshot.pods if _is_of(p, change) and is_reschedulable(p)]
    others = [p for p in facts.snapshot.pods if not (_is_of(p, change) and is_reschedulable(p))]
    if len(own) >= change.replicas:
        kept = sorted(own, key=_last_to_go)[: change.replicas]
        return with_snapshot(facts, replace(facts.snapshot, pods=(*others, *kept)))
    pattern = _pattern(facts, change, own)
    added = [_another(pattern, change, i) for i in range(change.replicas - len(own))]
    return with_snapshot(facts, replace(facts.snapshot, pods=(*others, *own, *added)))


def _is_of(pod: Pod, change: Scaled) -> bool:
    owner = controller(pod.metadata)
    if owner is None or (pod.metadata.namespace or "default") != change.namespace:
        return False
    if change.kind == "deployment":
        found = _HASH.search(owner.name)
        return owner.kind == "ReplicaSet" and found is not None and owner.name[: found.start()] == change.name
    return owner.kind.lower() == change.kind and owner.name == change.name


def _last_to_go(pod: Pod) -> tuple[bool, float, str]:
    """Those without a node go first, then the youngest, as a ReplicaSet chooses."""
    made = pod.metadata.creation_timestamp
    return not pod.spec.node_name, made.timestamp() if made is not None else 0.0, pod.key


def _pattern(facts: Facts, change: Scaled, own: list[Pod]) -> Pod:
    if own:
        return own[0]
    workload = facts.workloads.get((change.kind, change.namespace, change.name))
    if workload is None or workload.template is None:
        raise UsageError(
            f"there is no {change.kind} {change.namespace}/{change.name}, and no pod of it to go by"
            f"{_near(facts, change)}; files need its pods, or the {change.kind} itself"
        )
    return _first(workload)


def _near(facts: Facts, change: Scaled) -> str:
    there = sorted({f"{space}/{name}" for kind, space, name in facts.workloads if kind == change.kind})
    return f" (there: {', '.join(there[:5])}{', …' if len(there) > 5 else ''})" if there else ""  # noqa: PLR2004 (some)


def _first(workload: Workload) -> Pod:
    template = workload.template
    assert template is not None
    suffix = "-00000" if workload.kind == "Deployment" else ""
    kind = "ReplicaSet" if workload.kind == "Deployment" else workload.kind
    name = f"{workload.name}{suffix}"
    owner = OwnerReference(api_version="apps/v1", kind=kind, name=name, uid=f"what-if/{name}", controller=True)
    metadata = msgspec.structs.replace(
        template.metadata, name=workload.name, namespace=workload.namespace, owner_references=[owner]
    )
    return Pod(metadata=metadata, spec=template.spec)


def _another(pattern: Pod, change: Scaled, number: int) -> Pod:
    """A pod like the pattern that has just been made, and has no node."""
    name = f"{change.name}-what-if-{number}"
    old = pattern.metadata
    metadata = ObjectMeta(
        name=name,
        namespace=change.namespace,
        uid=f"what-if/{change.namespace}/{name}",
        labels=old.labels,
        annotations=old.annotations,
        owner_references=old.owner_references,
    )
    return Pod(
        metadata=metadata,
        spec=msgspec.structs.replace(pattern.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=[_UNSCHEDULABLE]),
    )


def _applied(facts: Facts, change: Applied) -> Facts:
    found = manifest_reader.objects(change.path)
    new_pools, bad_pools = conversion.node_pools(manifest_reader.plain(found, "NodePool", "Provisioner"))
    classes, bad_classes = conversion.node_classes(manifest_reader.plain(found, "EC2NodeClass", "AWSNodeTemplate"))
    bad = (*bad_pools, *bad_classes)
    if bad:
        raise UsageError(f"{change.path}: {bad[0].ref}: {bad[0].problems[0]}")
    if not new_pools and not classes:
        raise UsageError(f"{change.path}: holds no NodePool, Provisioner, EC2NodeClass or AWSNodeTemplate")
    snapshot = facts.snapshot
    replaced = {p.name for p in new_pools}
    statuses = {c.name: c.status for c in snapshot.node_classes}
    redone = {c.name for c in classes}
    return with_snapshot(
        facts,
        replace(
            snapshot,
            node_pools=(*(p for p in snapshot.node_pools if p.name not in replaced), *new_pools),
            node_classes=(
                *(c for c in snapshot.node_classes if c.name not in redone),
                *(msgspec.structs.replace(c, status=statuses.get(c.name, c.status)) for c in classes),
            ),
        ),
    )

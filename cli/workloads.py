"""Workloads with their pod templates, and pending pods of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.kubernetes import Pod, PodStatus, PodTemplate
from shared.api.meta import ApiStruct, Condition, ObjectMeta, OwnerReference
from shared.api.pods import controller
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("Deployment", "StatefulSet", "ReplicaSet")
_CONTROLLERS = {"Deployment": ("apps/v1", "ReplicaSet"), "CronJob": ("batch/v1", "Job"), "Job": ("batch/v1", "Job")}
"""The controllers of a workload's pods, where they aren't the workload, or of another API group."""
_POD_TEMPLATE_HASH = re.compile(r"-[a-z0-9]{5,10}$")
_UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


class Workload(Struct, kw_only=True):
    """A Deployment, ReplicaSet, StatefulSet, Job or CronJob with its pod template.

    ``is_live``: it was read from a cluster. ``first_ordinal`` is the number of a StatefulSet's first pod.
    """

    kind: str
    namespace: str
    name: str
    template: PodTemplate | None = None
    is_live: bool = False
    first_ordinal: int = 0


class Spec(ApiStruct):
    """The part of a workload's spec that is read."""

    template: PodTemplate = PodTemplate()


class Owner(ApiStruct):
    """A Deployment, StatefulSet or ReplicaSet, reduced to its pod template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def by_name(kind: str, owners: Iterable[Owner]) -> dict[tuple[str, str, str], Workload]:
    """The workloads by kind in lower case, namespace and name."""
    return {
        (kind.lower(), o.metadata.namespace or "default", o.metadata.name): Workload(
            kind=kind,
            namespace=o.metadata.namespace or "default",
            name=o.metadata.name,
            template=o.spec.template,
        )
        for o in owners
    }


def controls(kind: str, namespace: str, name: str, pod: Pod) -> bool:
    """Whether the pod belongs to the workload of that kind (in any case): a Deployment's by its ReplicaSet's name."""
    owner = controller(pod.metadata)
    if owner is None or (pod.metadata.namespace or "default") != namespace:
        return False
    if kind.lower() == "deployment":
        template_hash = _POD_TEMPLATE_HASH.search(owner.name)
        return owner.kind == "ReplicaSet" and template_hash is not None and owner.name[: template_hash.start()] == name
    return owner.kind.lower() == kind.lower() and owner.name == name


def pod_of(workload: Workload) -> Pod:
    """A pod like those of the workload, of its template, whose controller is that of its pods."""
    template = workload.template or PodTemplate()
    api_version, kind = _CONTROLLERS.get(workload.kind, ("apps/v1", workload.kind))
    name = workload.name if kind == workload.kind else f"{workload.name}-00000"
    owner = OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"assumed/{name}", controller=True)
    metadata = with_fields(
        template.metadata, name=workload.name, namespace=workload.namespace, owner_references=[owner]
    )
    return Pod(metadata=metadata, spec=template.spec)


def pending_pod(template: Pod, namespace: str, name: str) -> Pod:
    """A pending pod like the template."""
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"assumed/{namespace}/{name}",
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=template.metadata.owner_references,
    )
    return Pod(
        metadata=metadata,
        spec=with_fields(template.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=[_UNSCHEDULABLE]),
    )

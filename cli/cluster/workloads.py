"""Deployments, StatefulSets and ReplicaSets with their pod templates, which `--what-if` adds pods from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.observed_cluster import Workload
from shared.api.kubernetes import PodTemplate
from shared.api.meta import ObjectMeta, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("Deployment", "StatefulSet", "ReplicaSet")


class Spec(Struct):
    """The part of a workload's spec that is read."""

    template: PodTemplate = PodTemplate()


class Owner(Struct):
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

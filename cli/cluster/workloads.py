"""The workloads that own pods, as far as a changed replica count needs them: whose they are, and their template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.cluster.observed_cluster import Workload
from shared.api.kubernetes import PodTemplate
from shared.api.meta import ObjectMeta, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("Deployment", "StatefulSet", "ReplicaSet")


class Spec(Struct):
    """What a workload's pods look like."""

    template: PodTemplate = PodTemplate()


class Owner(Struct):
    """A Deployment, StatefulSet or ReplicaSet, cut down to its template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def named(kind: str, owners: Iterable[Owner]) -> dict[tuple[str, str, str], Workload]:
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

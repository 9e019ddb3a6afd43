"""PodGroups: pods that start all together or not at all.

Three kinds say the same in different words: Kubernetes' own (``scheduling.k8s.io``, from 1.37), that of the
coscheduling plugin (``scheduling.x-k8s.io``) and Volcano's. Whatever its kind, a PodGroup has a least number of pods,
its minimum, and may ask for one topology domain.

Sources: k8s.io/api/scheduling/v1beta1 of 1.37; kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1;
volcano-sh/apis, pkg/apis/scheduling/v1beta1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.api.meta import ApiStruct, ObjectMeta
from shared.api.pod_references import PodGroupKey
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


class PodGroup(Struct, kw_only=True):
    """What a PodGroup asks for: ``minimum`` pods at once, all in one domain of each ``topology`` key.

    ``disrupted_together``: its pods may be disrupted all at once only. ``problem`` says why it can't be served; "" if
    it can.
    """

    key: PodGroupKey
    minimum: int = 1
    topology: tuple[str, ...] = ()
    created: datetime | None = None
    disrupted_together: bool = False
    problem: str = ""


class _Gang(ApiStruct):
    min_count: int = 1


class _SchedulingPolicy(ApiStruct):
    gang: _Gang | None = None


class _TopologyConstraint(ApiStruct):
    key: str = ""


class _SchedulingConstraints(ApiStruct):
    topology: list[_TopologyConstraint] = []


class _DisruptionMode(ApiStruct):
    all: dict[str, Any] | None = None


class _NetworkTopology(ApiStruct):
    mode: str = ""


class PodGroupSpec(ApiStruct):
    """The fields of all three kinds that say what the pods need."""

    min_member: int = 1
    network_topology: _NetworkTopology | None = None
    scheduling_policy: _SchedulingPolicy | None = None
    scheduling_constraints: _SchedulingConstraints | None = None
    disruption_mode: _DisruptionMode | None = None
    parent_composite_pod_group_name: str = ""
    resource_claims: list[dict[str, Any]] = []


class StoredPodGroup(ApiStruct):
    """A PodGroup of any of the three kinds, as it is stored."""

    api_version: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    def pod_group(self) -> PodGroup:
        """What it asks for; fields that aren't supported are its problem."""
        spec, metadata = self.spec, self.metadata
        policy, constraints = spec.scheduling_policy, spec.scheduling_constraints
        gang = policy.gang if policy is not None else None
        minimum = gang.min_count if gang is not None else spec.min_member
        fields = ", ".join(_unsupported(spec))
        return PodGroup(
            key=PodGroupKey(self.api_version.partition("/")[0], metadata.namespace or "default", metadata.name),
            minimum=max(1, minimum),
            topology=tuple(c.key for c in constraints.topology) if constraints is not None else (),
            created=metadata.creation_timestamp,
            disrupted_together=spec.disruption_mode is not None and spec.disruption_mode.all is not None,
            problem=fields and f"not supported: {fields}",
        )


def _unsupported(spec: PodGroupSpec) -> Iterator[str]:
    if spec.parent_composite_pod_group_name:
        yield "spec.parentCompositePodGroupName"
    if spec.resource_claims:
        yield "spec.resourceClaims"
    if spec.network_topology is not None and spec.network_topology.mode == "hard":
        yield "spec.networkTopology (hard)"


def missing(key: PodGroupKey, why: str) -> PodGroup:
    """A PodGroup that can't be read: nothing is launched for its pods."""
    return PodGroup(key=key, problem=why)

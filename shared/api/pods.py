"""A pod: its requests, its fields that aren't supported, and its state: pending, reschedulable, protected.

Requests are summed exactly as in kube-scheduler (``k8s.io/component-helpers/resource``), because a node that is one
milli-core too small is launched for nothing. Provisioning, draining and disruption share these rules.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api import labels
from shared.api.duration import DurationError, parse_duration
from shared.api.meta import condition
from shared.api.pod_references import (
    COSCHEDULING,
    COSCHEDULING_LABEL,
    KUBERNETES,
    PROVISIONING_REQUEST,
    REQUEST_MARK,
    VOLCANO,
    VOLCANO_ANNOTATIONS,
    PodGroupKey,
)
from shared.api.quantity import CPU, MEMORY, PODS, QuantityError, Resources, add, largest, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from shared.api.containers import Container, ResourceRequirements
    from shared.api.kubernetes import Pod, PodDisruptionBudget, PodSpec, Volume
    from shared.api.meta import ObjectMeta, OwnerReference, RawQuantities

FOREVER = timedelta.max
"""How long ``karpenter.sh/do-not-disrupt: "true"`` protects."""

_PROTECTING = (labels.DO_NOT_DISRUPT, *labels.LEGACY_DO_NOT_DISRUPT)
_HUGE_PAGES = "hugepages-"


def requests(pod: Pod) -> Resources:
    """What the pod takes of a node: exact integers, with ``pods: 1``.

    Raises:
        QuantityError: a request or limit is no quantity; the message names its field.
    """
    return spec_requests(pod.spec)


def spec_requests(spec: PodSpec) -> Resources:
    """What a pod of this spec takes of a node, for pods that don't exist yet (a DaemonSet's, a template's).

    The larger of what runs while starting and what runs afterwards, plus overhead. Restartable init containers
    (sidecars) run on from where they stand in the list. Pod-level resources, where given, replace the containers'
    sum for cpu, memory and huge pages. A limit without a request is the request.

    >>> from shared.api.containers import Container, ResourceRequirements
    >>> from shared.api.kubernetes import PodSpec
    >>> web = Container(name="web", resources=ResourceRequirements(requests={"cpu": "250m"}))
    >>> setup = Container(name="setup", resources=ResourceRequirements(requests={"cpu": "1"}))
    >>> spec_requests(PodSpec(containers=[web, web], init_containers=[setup]))
    {'cpu': 1000, 'pods': 1}

    Raises:
        QuantityError: a request or limit is no quantity; the message names its field.
    """
    running = add(*(_effective(c.resources, f"spec.containers[{i}]") for i, c in enumerate(spec.containers)))
    if spec.init_containers:
        running = _with_init(running, spec.init_containers)
    if spec.resources is not None:
        running = _with_pod_level(running, spec.resources)
    if spec.overhead:
        running = add(running, _parsed(spec.overhead, "spec.overhead"))
    return {**running, PODS: 1}


def _with_init(running: Resources, init_containers: Sequence[Container]) -> Resources:
    """The peak over the start: each init container with the sidecars before it; then the containers with all."""
    sidecars: Resources = {}
    starting: Resources = {}
    for i, container in enumerate(init_containers):
        own = _effective(container.resources, f"spec.initContainers[{i}]")
        if container.restart_policy == "Always":
            sidecars = add(sidecars, own)
            starting = largest(starting, sidecars)
        else:
            starting = largest(starting, add(sidecars, own))
    return largest(add(running, sidecars), starting)


def _with_pod_level(running: Resources, resources: ResourceRequirements) -> Resources:
    """The pod's own requests where it states them; a limit alone counts only for what no container asks for."""
    requests = _parsed(resources.requests, "spec.resources.requests")
    limits = _parsed(resources.limits, "spec.resources.limits")
    defaulted = {name: amount for name, amount in limits.items() if name not in running or name.startswith(_HUGE_PAGES)}
    return {**running, **{name: amount for name, amount in {**defaulted, **requests}.items() if _is_pod_level(name)}}


def _is_pod_level(name: str) -> bool:
    return name in {CPU, MEMORY} or name.startswith(_HUGE_PAGES)


def _effective(resources: ResourceRequirements, path: str) -> Resources:
    if not resources.limits:
        return _parsed(resources.requests, f"{path}.resources.requests")
    limits = _parsed(resources.limits, f"{path}.resources.limits")
    return {**limits, **_parsed(resources.requests, f"{path}.resources.requests")}


def _parsed(raw: RawQuantities, path: str) -> Resources:
    parsed: Resources = {}
    for name, value in raw.items():
        try:
            parsed[name] = parse_quantity(name, value)
        except QuantityError as error:
            raise QuantityError(f"{path}.{name}: {error}") from error
    return parsed


def controller(metadata: ObjectMeta) -> OwnerReference | None:
    """The owner that manages the object, if one says so."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)


def mounts_claims(spec: PodSpec) -> bool:
    """Whether the pod mounts PersistentVolumeClaims, its own or those made for its ephemeral volumes."""
    return any(v.persistent_volume_claim is not None or v.ephemeral is not None for v in spec.volumes)


def _is_owned_by(metadata: ObjectMeta, kind: str, group: str) -> bool:
    return any(o.kind == kind and o.api_version.rpartition("/")[0] == group for o in metadata.owner_references)


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod: it goes where its node goes."""
    return _is_owned_by(pod.metadata, "DaemonSet", "apps")


def is_mirror(pod: Pod) -> bool:
    """Whether the pod only shows a static pod of a kubelet, which nobody else can move."""
    return labels.MIRROR_POD in pod.metadata.annotations


def is_owned_by_node(pod: Pod) -> bool:
    """Whether a Node owns the pod: a static pod, bound to that node for good."""
    return _is_owned_by(pod.metadata, "Node", "")


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended, well or not, and takes no room any more."""
    return pod.status.phase in {"Succeeded", "Failed"}


def is_terminating(pod: Pod) -> bool:
    """Whether the pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_reschedulable(pod: Pod) -> bool:
    """Whether the pod needs a place elsewhere when its node goes: it runs on, and no DaemonSet or node brings it."""
    return not (is_terminal(pod) or is_terminating(pod) or is_daemon(pod) or is_owned_by_node(pod) or is_mirror(pod))


def is_pending(pod: Pod) -> bool:
    """Whether the pod waits for a node, whether or not a scheduler has looked yet; gated pods don't."""
    return not pod.spec.node_name and not pod.spec.scheduling_gates and is_reschedulable(pod)


def is_provisionable(pod: Pod) -> bool:
    """Whether a new node is wanted for the pod: pending, and the scheduler has said Unschedulable.

    A pod that preempts others (``nominatedNodeName``) gets their place. Source: docs/facts/karpenter.md, section 3.
    """
    return is_unschedulable(pod) and not pod.status.nominated_node_name


def is_unschedulable(pod: Pod) -> bool:
    """Whether the pod is pending, and the scheduler has said Unschedulable; it may be nominated for a node.

    Of a PodGroup's pods, kube-scheduler 1.37.2 says SchedulerError where the cluster has no node, as a plugin lacks its
    state then (PodGroupPostFilter in pkg/scheduler/framework/plugins/dynamicresources): these are unschedulable too.
    """
    if not is_pending(pod):
        return False
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False":
        return False
    is_in_group = pod.spec.scheduling_group is not None
    return scheduled.reason == "Unschedulable" or (is_in_group and scheduled.reason == "SchedulerError")


def waited(pod: Pod, *, now: datetime) -> float:
    """For how many seconds the scheduler has found no place for the pod; 0 where it doesn't say since when."""
    scheduled = condition(pod.status.conditions, "PodScheduled")
    since = scheduled.last_transition_time if scheduled is not None and scheduled.status == "False" else None
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0


def do_not_disrupt(annotations: Mapping[str, str]) -> timedelta | None:
    """How long the object's annotations protect it from voluntary disruption; None: not at all.

    :data:`FOREVER` for "true", else the duration, counted from the pod's start or the node's creation. The old
    ``do-not-evict`` and ``do-not-consolidate`` count for "true". Other texts protect nothing, as in Karpenter.

    >>> do_not_disrupt({"karpenter.sh/do-not-disrupt": "30m"})
    datetime.timedelta(seconds=1800)
    >>> do_not_disrupt({"karpenter.sh/do-not-disrupt": "false"}) is None
    True
    """
    for key in _PROTECTING:
        value = annotations.get(key)
        if value == "true":
            return FOREVER
        if value is not None and key == labels.DO_NOT_DISRUPT:
            try:
                duration = parse_duration(value)
            except DurationError:
                continue
            if duration:
                return duration
    return None


def is_protected(annotations: Mapping[str, str], *, since: datetime | None, now: datetime) -> bool:
    """Whether the annotations protect the object now; ``since`` None (not started yet) counts as now."""
    duration = do_not_disrupt(annotations)
    if duration is None:
        return False
    return duration == FOREVER or since is None or now - since < duration


def claim_of(pod: Pod, volume: Volume) -> str:
    """The claim of a pod's volume ("namespace/name"), also of a generic ephemeral one; "" for other volumes."""
    namespace = pod.metadata.namespace or "default"
    if volume.persistent_volume_claim is not None:
        return f"{namespace}/{volume.persistent_volume_claim.claim_name}"
    return f"{namespace}/{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def pod_group_key(pod: Pod) -> PodGroupKey | None:
    """The PodGroup that the pod belongs to; None if it belongs to none.

    Sources: scheduler-plugins' label (apis/scheduling of kubernetes-sigs/scheduler-plugins), Volcano's annotations
    (pkg/apis/scheduling of volcano-sh/apis).

    >>> from shared.api.kubernetes import Pod
    >>> from shared.api.meta import ObjectMeta
    >>> str(pod_group_key(Pod(metadata=ObjectMeta(namespace="ml", labels={COSCHEDULING_LABEL: "train"}))))
    'PodGroup ml/train'
    """
    metadata, group = pod.metadata, pod.spec.scheduling_group
    namespace = metadata.namespace or "default"
    if group is not None and group.pod_group_name.startswith(REQUEST_MARK):
        return PodGroupKey(PROVISIONING_REQUEST, namespace, group.pod_group_name.removeprefix(REQUEST_MARK))
    if group is not None and group.pod_group_name:
        return PodGroupKey(KUBERNETES, namespace, group.pod_group_name)
    if name := metadata.labels.get(COSCHEDULING_LABEL):
        return PodGroupKey(COSCHEDULING, namespace, name)
    for annotation in VOLCANO_ANNOTATIONS:
        if name := metadata.annotations.get(annotation):
            return PodGroupKey(VOLCANO, namespace, name)
    return None


def unsupported_fields(spec: PodSpec) -> tuple[str, ...]:
    """The paths of the fields that the spec uses and scheduling doesn't support, in order.

    >>> from shared.api.kubernetes import PodSpec
    >>> from shared.api.pod_references import PodResourceClaim
    >>> unsupported_fields(PodSpec(resource_claims=[PodResourceClaim(name="gpu")]))
    ('spec.resourceClaims',)
    """
    return tuple(_unsupported_fields(spec))


def _unsupported_fields(spec: PodSpec) -> Iterator[str]:
    if spec.resource_claims:
        yield "spec.resourceClaims"
    if spec.resources is not None and spec.resources.claims:
        yield "spec.resources.claims"
    for name, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for i, container in enumerate(containers):
            # Without the pod's own list, which the API server requires, the message has to lead to the container.
            if container.resources.claims and not spec.resource_claims:
                yield f"spec.{name}[{i}].resources.claims"
    if spec.workload_ref is not None:
        yield "spec.workloadRef"


def disruptions_allowed(budget: PodDisruptionBudget) -> int:
    """How many pods of the budget may be evicted now: none before its last change is evaluated, as the API decides."""
    is_evaluated = budget.status.observed_generation >= budget.metadata.generation
    return budget.status.disruptions_allowed if is_evaluated else 0

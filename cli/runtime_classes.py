"""What the API server adds to pods of files by their RuntimeClass: overhead, node selector and tolerations.

Pods that were read from a cluster, which their UID shows, have it already. Source: the RuntimeClass admission plugin
(plugin/pkg/admission/runtimeclass of k8s.io/kubernetes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import with_fields
from shared.scheduling.decision import UnschedulableReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

    from shared.api.daemon_set import DaemonSet
    from shared.api.kubernetes import Pod, PodSpec
    from shared.api.runtime_class import RuntimeClass

ASSUMED = "assumed/"
"""The beginning of the UIDs of pods that no API server has seen."""


class AdmissionError(ValueError):
    """The API server refuses the pod; the text says why."""


def admitted_pods(
    pods: Iterable[Pod], classes: Iterable[RuntimeClass], refused: MutableMapping[str, UnschedulableReason]
) -> tuple[Pod, ...]:
    """The pods with what their RuntimeClasses add; those that the API server refuses are added to ``refused``."""
    by_name = {c.metadata.name: c for c in classes}
    admitted: list[Pod] = []
    for pod in pods:
        uid = pod.metadata.uid
        if not pod.spec.runtime_class_name or pod.spec.node_name or (uid and not uid.startswith(ASSUMED)):
            admitted.append(pod)
            continue
        try:
            admitted.append(with_fields(pod, spec=_with_runtime_class(pod.spec, by_name)))
        except AdmissionError as error:
            refused[pod.key] = UnschedulableReason(message=f"the API server refuses the pod: {error}")
    return tuple(admitted)


def with_runtime_classes(daemon_sets: Iterable[DaemonSet], classes: Iterable[RuntimeClass]) -> tuple[DaemonSet, ...]:
    """The DaemonSets whose pods have what their RuntimeClasses add; without those whose pods are refused.

    One of a cluster, which its UID shows, runs there: it stays as it is if the files don't have its RuntimeClass.
    """
    by_name = {c.metadata.name: c for c in classes}
    result: list[DaemonSet] = []
    for daemon_set in daemon_sets:
        template = daemon_set.spec.template
        try:
            spec = _with_runtime_class(template.spec, by_name)
        except AdmissionError:
            if daemon_set.metadata.uid:
                result.append(daemon_set)
            continue
        template = with_fields(template, spec=spec)
        result.append(with_fields(daemon_set, spec=with_fields(daemon_set.spec, template=template)))
    return tuple(result)


def _with_runtime_class(spec: PodSpec, classes: Mapping[str, RuntimeClass]) -> PodSpec:
    if not spec.runtime_class_name:
        return spec
    runtime_class = classes.get(spec.runtime_class_name)
    if runtime_class is None:
        raise AdmissionError(f'RuntimeClass "{spec.runtime_class_name}" not found')
    if runtime_class.overhead is not None:
        spec = with_fields(spec, overhead=runtime_class.overhead.pod_fixed)
    if runtime_class.scheduling is None:
        return spec
    selector = runtime_class.scheduling.node_selector
    for key, value in selector.items():
        own = spec.node_selector.get(key, value)
        if own != value:
            raise AdmissionError(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            )
    return with_fields(
        spec,
        node_selector={**spec.node_selector, **selector},
        tolerations=[*spec.tolerations, *runtime_class.scheduling.tolerations],
    )

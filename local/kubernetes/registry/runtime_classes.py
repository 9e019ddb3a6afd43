"""The RuntimeClass admission plugin: a new pod gets the overhead, the node selector and the tolerations of its class.

Source: kubernetes ``plugin/pkg/admission/runtimeclass``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes import errors, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.objects import Obj


def admit(pod: Obj, runtime_classes: Iterable[Obj]) -> None:
    """Fill in what the RuntimeClass says that the pod names, in place.

    Raises:
        ApiError: 403, there is no such class, or the pod contradicts it.
    """
    name = pod["spec"]["runtimeClassName"]
    runtime_class = next((c for c in runtime_classes if c["metadata"]["name"] == name), None)
    if runtime_class is None:
        raise _rejected(pod, f'RuntimeClass "{name}" not found')
    _set_overhead(pod, (runtime_class.get("overhead") or {}).get("podFixed") or {})
    _set_scheduling(pod, runtime_class.get("scheduling") or {})


def _set_overhead(pod: Obj, overhead: Obj) -> None:
    spec = pod["spec"]
    if spec.get("overhead") and spec["overhead"] != overhead:
        raise _rejected(pod, "Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if overhead:
        spec["overhead"] = dict(overhead)
    elif not spec.get("overhead"):
        spec.pop("overhead", None)


def _set_scheduling(pod: Obj, scheduling: Obj) -> None:
    spec = pod["spec"]
    selector, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in selector.items():
        if own.get(key, value) != value:
            raise _rejected(pod, f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}")
    if selector:
        spec["nodeSelector"] = {**own, **selector}
    added = [t for t in scheduling.get("tolerations") or () if t not in (spec.get("tolerations") or ())]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def check_overhead(pod: Obj) -> None:
    """Refuse a valid pod with an overhead that no class gave it.

    Raises:
        ApiError: 403.
    """
    if "overhead" in pod["spec"] and "runtimeClassName" not in pod["spec"]:
        raise _rejected(pod, "Pod Overhead set without corresponding RuntimeClass defined Overhead")


def _rejected(pod: Obj, why: str) -> errors.ApiError:
    return errors.forbidden(kinds.PODS, pod["metadata"]["name"], f"pod rejected: {why}")

"""The LimitRanger admission plugin: the requests and limits of new pods' containers that state none.

Source: kubernetes ``plugin/pkg/admission/limitranger`` and the defaults of LimitRange in ``pkg/apis/core/v1``. Bounds
(``max``, ``min``, ``maxLimitRequestRatio``) only serve as defaults here; they refuse nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.registry import pod_strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.objects import Obj


def default_limit_range(limit_range: Obj) -> None:
    """Fill in the defaults of a LimitRange's items for containers, in place."""
    for item in (limit_range.get("spec") or {}).get("limits") or []:
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item.update({"default": limits} if limits else {}, **({"defaultRequest": requests} if requests else {}))


def admit(pod: Obj, limit_ranges: Iterable[Obj]) -> None:
    """Fill in the requests and limits of a new pod's containers from the LimitRanges of its namespace, in place."""
    for limit_range in limit_ranges:
        requests: Obj = {}
        limits: Obj = {}
        for item in limit_range["spec"].get("limits") or []:
            if item.get("type") == "Container":
                requests |= item.get("defaultRequest") or {}
                limits |= item.get("default") or {}
        for container in pod_strategy.containers(pod["spec"]):
            resources = container["resources"]
            for name, defaults in (("limits", limits), ("requests", requests)):
                if defaults:
                    resources[name] = {**defaults, **(resources.get(name) or {})}

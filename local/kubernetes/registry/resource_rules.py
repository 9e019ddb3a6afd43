"""The errors of requests and limits. Source: kubernetes ``pkg/apis/core/validation`` and ``pkg/apis/core/helper``."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from local.kubernetes.registry import field_rules as rules
from local.kubernetes.registry.quantities import INT64_MAX
from shared.api.quantity import QuantityError, exact_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.field_rules import Causes

_OF_CONTAINERS = frozenset(("cpu", "memory", "ephemeral-storage"))
_OF_PODS = frozenset(("cpu", "memory"))
_COUNTED = frozenset((
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims",
    "services.nodeports", "services.loadbalancers",
))  # fmt: skip
_STANDARD = (
    _OF_CONTAINERS
    | _COUNTED
    | {"storage", "requests.storage"}
    | {f"{part}.{name}" for part in ("requests", "limits") for name in _OF_CONTAINERS}
)
HUGE_PAGES = "hugepages-"
_OWN_GROUP = "kubernetes.io/"


def container_resources(resources: Obj, path: str) -> Causes:
    """The errors of a container's resources."""
    return _resources(resources, path, _container_name)


def pod_resources(spec: Obj, path: str) -> Causes:
    """The errors of a pod's own resources."""
    resources = spec.get("resources") or {}
    yield from _resources(resources, path, _pod_name)
    requests = resources.get("requests") or {}
    for name, total in aggregated(spec, "requests").items() if requests else ():
        if name in requests and total > exact_quantity(requests[name]):
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield rules.invalid(f"{path}.requests[{name}]", requests[name], text)
    limits = resources.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or () if limits else ()):
        for name, limit in _amounts(container, "limits").items():
            if name in limits and limit > exact_quantity(limits[name]):
                at = f"{path}.containers[{index}][{name}].limits"
                yield rules.invalid(at, str(limit), f"must be less than or equal to pod limits of {limits[name]}")


def aggregated(spec: Obj, part: str) -> dict[str, Fraction]:
    """The requests or limits of a pod's containers: sidecars with all that follow, init containers one by one."""
    running, peak = Counter[str](), Counter[str]()
    for container in spec.get("initContainers") or ():
        own = _amounts(container, part)
        peak |= running + own
        if container.get("restartPolicy") == "Always":
            running += own
    for container in spec.get("containers") or ():
        running.update(_amounts(container, part))
    return {name: Fraction(amount) for name, amount in {**peak, **running, **(running | peak)}.items()}


def _amounts(container: Obj, part: str) -> Counter[str]:
    quantities = (container.get("resources") or {}).get(part) or {}
    exact: dict[str, Any] = {name: exact_quantity(quantity) for name, quantity in quantities.items()}
    return Counter(exact)


def amounts(quantities: Obj, path: str) -> Causes:
    """The errors of a node's capacity, and of other maps from a resource to a quantity."""
    for name, quantity in quantities.items():
        yield from amount(name, quantity, f"{path}[{name}]")


def amount(name: str, quantity: str, path: str) -> Causes:
    """The errors of the quantity of a resource: negative ones, and fractions of what is counted."""
    exact = exact_quantity(quantity)
    if exact < 0:
        yield rules.invalid(path, quantity, "must be greater than or equal to 0")
    if (name in _COUNTED or _is_extended(name)) and not _is_whole(exact, quantity):
        yield rules.invalid(path, quantity, "must be an integer")
    if _is_huge_pages(name) and not _is_divisible(exact, name.removeprefix(HUGE_PAGES)):
        yield rules.invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}")


def resource_name(name: str, path: str) -> Causes:
    """The error of a name that no resource can have."""
    if not rules.is_qualified_name(name):
        yield rules.invalid(path, name, "name part must consist of alphanumeric characters, '-', '_' or '.'")
    elif "/" not in name and name not in _STANDARD and not _is_huge_pages(name.removeprefix("requests.")):
        yield rules.invalid(path, name, "must be a standard resource type or fully qualified")


def _resources(resources: Obj, path: str, of_name: Callable[[str, str], Causes]) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, quantity in limits.items():
        yield from of_name(name, f"{path}.limits[{name}]")
        yield from amount(name, quantity, f"{path}.limits[{name}]")
    for name, quantity in requests.items():
        yield from of_name(name, f"{path}.requests[{name}]")
        yield from amount(name, quantity, f"{path}.requests[{name}]")
        yield from _against_limit(name, quantity, limits.get(name), path)
    names = {*limits, *requests}
    if any(map(_is_huge_pages, names)) and not names & _OF_PODS:
        yield rules.forbidden(path, "HugePages require cpu or memory")


def _against_limit(name: str, request: str, limit: str | None, path: str) -> Causes:
    may_overcommit = _is_native(name) and not _is_huge_pages(name)
    if limit is None:
        if not may_overcommit:
            yield rules.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    requested, allowed = exact_quantity(request), exact_quantity(limit)
    if requested != allowed and not may_overcommit:
        yield rules.invalid(f"{path}.requests", request, f"must be equal to {name} limit of {limit}")
    elif requested > allowed:
        yield rules.invalid(f"{path}.requests", request, f"must be less than or equal to {name} limit of {limit}")


def _container_name(name: str, path: str) -> Causes:
    yield from resource_name(name, path)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not _is_huge_pages(name):
            yield rules.invalid(path, name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        yield rules.invalid(path, name, "doesn't follow extended resource name standard")


def _pod_name(name: str, path: str) -> Causes:
    causes = list(resource_name(name, path))
    yield from causes
    if not causes and name not in _OF_PODS and not _is_huge_pages(name):
        yield rules.not_supported(path, name, (*_OF_PODS, HUGE_PAGES))


def _is_native(name: str) -> bool:
    return "/" not in name or _OWN_GROUP in name


def _is_extended(name: str) -> bool:
    if _is_native(name) or name.startswith("requests."):
        return False
    return rules.is_qualified_name(f"requests.{name}")


def _is_whole(exact: Fraction, quantity: str) -> bool:
    """Whether the quantity has no fraction. A binary one of more thousandths than an int64 holds counts as broken."""
    thousandths = math.ceil(exact * 1000)
    return thousandths % 1000 == 0 and (thousandths <= INT64_MAX or not quantity.endswith("i"))


def _is_divisible(exact: Fraction, page_size: str) -> bool:
    """Whether the quantity is a multiple of the size of a huge page."""
    try:
        size = math.ceil(exact_quantity(page_size))
    except QuantityError:
        return False
    return size > 0 and (exact > INT64_MAX or math.ceil(exact) % size == 0)


def _is_huge_pages(name: str) -> bool:
    return name.startswith(HUGE_PAGES)

"""The requests that a namespace's LimitRanges give to the containers of new pods.

Only pods that don't exist yet need it: the API server writes the defaults into each pod that it admits. Source:
kubernetes ``plugin/pkg/admission/limitranger`` and the defaults of LimitRange in ``pkg/apis/core/v1/defaults.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.containers import ResourceRequirements
from shared.api.quantity import parse_quantity
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from shared.api.containers import Container
    from shared.api.kubernetes import PodSpec
    from shared.api.limit_range import LimitRange
    from shared.api.meta import RawQuantities


def container_defaults(limit_ranges: Iterable[LimitRange]) -> ResourceRequirements:
    """The requests and limits that the LimitRanges of one namespace give to a container that states none.

    Of several that default the same resource, the API server takes any; the largest is assumed.

    Raises:
        QuantityError: a default is no quantity.
    """
    requests: RawQuantities = {}
    limits: RawQuantities = {}
    for limit_range in limit_ranges:
        own = _defaults_of(limit_range)
        requests, limits = _largest(requests, own.requests), _largest(limits, own.limits)
    return ResourceRequirements(requests=requests, limits=limits)


def admitted(spec: PodSpec, defaults: ResourceRequirements) -> PodSpec:
    """The spec of a new pod, its containers' requests and limits completed by the defaults of its namespace."""
    return with_fields(
        spec,
        containers=[_completed(c, defaults) for c in spec.containers],
        init_containers=[_completed(c, defaults) for c in spec.init_containers],
    )


def _completed(container: Container, defaults: ResourceRequirements) -> Container:
    """The container with the defaults of resources that it doesn't state; its limit is a request before they apply."""
    stated = container.resources
    resources = ResourceRequirements(
        requests={**defaults.requests, **stated.limits, **stated.requests}, limits={**defaults.limits, **stated.limits}
    )
    return with_fields(container, resources=resources)


def _defaults_of(limit_range: LimitRange) -> ResourceRequirements:
    """What one LimitRange defaults.

    As the API server stores it, a limit without a default is the most that is allowed, and a request without a default
    is the limit, or else the least that is allowed.
    """
    requests: RawQuantities = {}
    limits: RawQuantities = {}
    for item in limit_range.spec.limits:
        if item.type == "Container":
            item_limits = {**item.max, **item.default}
            limits |= item_limits
            requests |= {**item.min, **item_limits, **item.default_request}
    return ResourceRequirements(requests=requests, limits=limits)


def _largest(before: Mapping[str, str | int | float], added: RawQuantities) -> RawQuantities:
    largest = dict(before)
    for name, amount in added.items():
        if name not in largest or parse_quantity(name, amount) > parse_quantity(name, largest[name]):
            largest[name] = amount
    return largest

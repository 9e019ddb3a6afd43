"""Containers, and what each counts for while it is resized in place.

A node has room for what a container asks for, for what the kubelet has allocated to it, and for what it still has: the
most of the three. A resize that the node can never hold is not counted. Source: kube-scheduler, whose sum of a pod's
requests says the same up to 1.36, and never more from 1.37 on, where the pod's three sums are compared
(``k8s.io/component-helpers/resource``, docs/facts/kubernetes.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.meta import ApiStruct, RawQuantities
from shared.api.pod_references import ResourceClaimUse
from shared.api.quantity import QuantityError, parse_quantity
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class ContainerPort(ApiStruct):
    """A port; scheduling reads ``host_port`` only."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")
    container_port: int = 0


class ResourceRequirements(ApiStruct):
    """Requests and limits; a limit without a request is the request."""

    requests: RawQuantities = {}
    limits: RawQuantities = {}
    claims: list[ResourceClaimUse] = []


class Container(ApiStruct):
    """The fields of a container that scheduling reads."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str = ""


class ContainerStatus(ApiStruct):
    """What the kubelet has allocated to a container, and what the container has: they differ during a resize."""

    name: str = ""
    allocated_resources: RawQuantities = {}
    resources: ResourceRequirements | None = None


def are_as_requested(containers: list[Container], statuses: Sequence[ContainerStatus]) -> bool:
    """Whether each container has what it requests; False where names or order don't say which status is whose."""
    if len(statuses) != len(containers):
        return not statuses
    for container, status in zip(containers, statuses, strict=True):
        wanted, allocated = container.resources.requests, status.allocated_resources
        actual = status.resources.requests if status.resources is not None else {}
        if container.name != status.name or (
            (allocated or actual) and (actual != wanted or allocated not in ({}, wanted))
        ):
            return False
    return True


def counted_containers(
    containers: list[Container], statuses: Sequence[ContainerStatus], *, is_infeasible: bool
) -> list[Container]:
    """The containers with the requests that count for their node; the same list if none is being resized."""
    status_by_name = {
        status.name: status
        for status in statuses
        if status.allocated_resources or (status.resources is not None and status.resources.requests)
    }
    counted = [
        _counted_container(container, status_by_name[container.name], is_infeasible=is_infeasible)
        if container.name in status_by_name
        else container
        for container in containers
    ]
    return containers if all(a is b for a, b in zip(counted, containers, strict=True)) else counted


def counted_pod_resources(
    wanted: ResourceRequirements, actual: ResourceRequirements, allocated: RawQuantities, *, is_infeasible: bool
) -> ResourceRequirements:
    """The pod's own resources with the requests that count for its node; the same object if they aren't resized.

    Only what the pod itself requests is compared: the rest is its containers'.
    """
    candidates = [actual.requests, allocated] if is_infeasible else [wanted.requests, actual.requests, allocated]
    largest = _largest(candidates)
    requests = {name: largest.get(name, amount) for name, amount in wanted.requests.items()}
    return wanted if requests == wanted.requests else with_fields(wanted, requests=requests)


def _counted_container(container: Container, status: ContainerStatus, *, is_infeasible: bool) -> Container:
    actual = status.resources.requests if status.resources is not None else {}
    wanted = container.resources.requests
    if wanted == actual and status.allocated_resources in ({}, wanted):
        return container
    known = {**status.allocated_resources, **actual}
    candidates = [actual, status.allocated_resources]
    if is_infeasible:
        candidates.append({name: amount for name, amount in wanted.items() if name not in known})
    else:
        candidates.append({**container.resources.limits, **wanted})
    requests = _largest(candidates)
    if requests == wanted:
        return container
    return with_fields(container, resources=with_fields(container.resources, requests=requests))


def _largest(candidates: Iterable[RawQuantities]) -> RawQuantities:
    """The largest quantity of each resource; one that can't be read is left to the checks of the spec."""
    largest: RawQuantities = {}
    for quantities in candidates:
        for name, amount in quantities.items():
            try:
                if name not in largest or parse_quantity(name, amount) > parse_quantity(name, largest[name]):
                    largest[name] = amount
            except QuantityError:
                largest[name] = amount
    return largest

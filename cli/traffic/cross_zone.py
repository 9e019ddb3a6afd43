"""The share of each Service's traffic that crosses availability zones, and what AWS charges for it.

Traffic isn't measured. The share is that of clients which are spread over zones as the cluster's pods are, and which
call endpoints as kube-proxy chooses them. Endpoints are the ready pods that a Service selects. EndpointSlices aren't
read: they don't have the pods that a plan moves or starts, and one kind less has to be readable.

Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from cli.traffic.service import Routing
from shared.base.struct import MutableStruct, Struct, WireStruct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cli.traffic.placed_pods import PlacedPod
    from cli.traffic.service import Service

USD_PER_GB_EACH_WAY = 0.01
"""AWS charges a GB that crosses zones twice: out of the sender's zone and into the receiver's.
(https://aws.amazon.com/ec2/pricing/on-demand/, "Data Transfer within the same AWS Region".)"""
GB_PER_TB = 1000
USD_PER_CROSSING_TB = 2 * USD_PER_GB_EACH_WAY * GB_PER_TB
_OVERLOAD_THRESHOLD = 0.2
"""How much busier an endpoint may get before the EndpointSlice controller gives up hints
(k8s.io/endpointslice/topologycache)."""


class ServiceTraffic(WireStruct, kw_only=True):
    """``share`` of a Service's traffic crosses zones, 0 to 1.

    ``same_zone_share`` is that with trafficDistribution PreferSameZone, and ``same_zone_load`` how busy the busiest
    endpoint would then be: 1 is as busy as without it.
    """

    service: str
    routing: Routing
    endpoints: int
    share: float
    same_zone_share: float
    same_zone_load: float

    @property
    def avoidable_share(self) -> float:
        """The share that PreferSameZone would keep in its zone."""
        return max(0.0, self.share - self.same_zone_share)

    @property
    def usd_per_tb(self) -> float:
        """USD per 1000 GB of the Service's traffic."""
        return USD_PER_CROSSING_TB * self.share


class Traffic(Struct, kw_only=True):
    """The traffic of the Services that have endpoints."""

    services: tuple[ServiceTraffic, ...] = ()

    @property
    def share(self) -> float | None:
        """The share of all traffic that crosses zones if every endpoint gets as much; None without endpoints."""
        endpoints = sum(s.endpoints for s in self.services)
        if not endpoints:
            return None
        return min(1.0, sum(s.share * s.endpoints for s in self.services) / endpoints)


class _PodGroup(MutableStruct):
    """The pods of a namespace with the same labels: how many each zone has."""

    labels: frozenset[tuple[str, str]]
    ready: Counter[str] = msgspec.field(default_factory=Counter)
    unready: Counter[str] = msgspec.field(default_factory=Counter)


def cross_zone_traffic(services: Iterable[Service], pods: Sequence[PlacedPod]) -> Traffic:
    """The traffic of each Service that kube-proxy balances and that has endpoints, by name."""
    clients = Counter(p.zone for p in pods if p.is_client)
    groups = _groups_by_label(pods)
    counted = (s for s in services if s.is_balanced)
    traffic = (_service_traffic(s, clients, _endpoints(s, groups)) for s in sorted(counted, key=lambda s: s.key))
    return Traffic(services=tuple(t for t in traffic if t is not None))


def crossing_share(routing: Routing, clients: Mapping[str, int], endpoints: Mapping[str, int]) -> float:
    """The share of the traffic from clients to endpoints that crosses zones, both counted by zone.

    Raises:
        ZeroDivisionError: there are no clients or no endpoints.
    """
    local = _local_shares(routing, clients, endpoints)
    return sum(count * (1 - local.get(zone, 0.0)) for zone, count in clients.items()) / sum(clients.values())


def _local_shares(routing: Routing, clients: Mapping[str, int], endpoints: Mapping[str, int]) -> Mapping[str, float]:
    """By zone: the share of its clients' traffic that stays in it."""
    total = sum(endpoints.values())
    match routing:
        case "NodeLocal":
            return dict.fromkeys(clients, 1.0)
        case "SameZone":
            return dict.fromkeys(endpoints, 1.0)
        case "TopologyHints" if least := _allotted_endpoints(clients, total):
            return {zone: min(1.0, endpoints.get(zone, 0) / count) for zone, count in least.items()}
    return {zone: count / total for zone, count in endpoints.items()}


def _allotted_endpoints(clients: Mapping[str, int], endpoints: int) -> dict[str, int]:
    """The least number of endpoints that topology hints allot to each zone; empty where no hints are given.

    The EndpointSlice controller weighs zones by their nodes' CPU, for which their share of pods stands here.
    """
    total = sum(clients.values())
    least = {z: math.ceil(count / total * endpoints / (1 + _OVERLOAD_THRESHOLD)) for z, count in clients.items()}
    return least if len(least) <= endpoints and sum(least.values()) <= endpoints else {}


def _service_traffic(
    service: Service, clients: Mapping[str, int], endpoints: Mapping[str, int]
) -> ServiceTraffic | None:
    if not clients or not endpoints:
        return None
    total, all_clients = sum(endpoints.values()), sum(clients.values())
    same_zone = crossing_share("SameZone", clients, endpoints)
    # Clients of zones without an endpoint call all endpoints alike.
    load = max(clients.get(z, 0) / all_clients * total / count for z, count in endpoints.items()) + same_zone
    return ServiceTraffic(
        service=service.key,
        routing=service.routing,
        endpoints=total,
        share=crossing_share(service.routing, clients, endpoints),
        same_zone_share=same_zone,
        same_zone_load=load,
    )


def _groups_by_label(pods: Iterable[PlacedPod]) -> dict[tuple[str, str, str], list[_PodGroup]]:
    """Pods of the same labels by namespace and each of their labels, because there may be many pods and Services."""
    groups: dict[tuple[str, frozenset[tuple[str, str]]], _PodGroup] = {}
    for pod in pods:
        labels = frozenset(pod.labels.items())
        group = groups.setdefault((pod.namespace, labels), _PodGroup(labels))
        (group.ready if pod.is_ready else group.unready)[pod.zone] += 1
    by_label: defaultdict[tuple[str, str, str], list[_PodGroup]] = defaultdict(list)
    for (namespace, labels), group in groups.items():
        for name, value in labels:
            by_label[namespace, name, value].append(group)
    return by_label


def _endpoints(service: Service, groups: Mapping[tuple[str, str, str], list[_PodGroup]]) -> Counter[str]:
    """The Service's endpoints by zone."""
    endpoints: Counter[str] = Counter()
    for group in _selected(service, groups):
        endpoints += group.ready
        if service.spec.publish_not_ready_addresses:
            endpoints += group.unready
    return endpoints


def _selected(service: Service, groups: Mapping[tuple[str, str, str], list[_PodGroup]]) -> Iterator[_PodGroup]:
    selector = service.spec.selector.items()
    candidates = min((groups.get((service.namespace, name, value), []) for name, value in selector), key=len)
    yield from (group for group in candidates if selector <= group.labels)

"""A Service, reduced to what decides which of its endpoints a client reaches."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.api.meta import ApiStruct, ObjectMeta, namespaced_key

TOPOLOGY_MODES = ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints")
"""The annotation, and its name before Kubernetes 1.27."""
SAME_ZONE_PREFERENCES = frozenset({"PreferClose", "PreferSameZone", "PreferSameNode"})
"""Values of trafficDistribution; PreferSameNode falls back to the client's zone, then to all endpoints (KEP-3015)."""
_EXTERNAL_NAME = "ExternalName"
_HEADLESS = "None"
_LOCAL = "Local"


Routing = Literal["Even", "SameZone", "TopologyHints", "NodeLocal"]
"""Which endpoints a client's requests go to.

``Even``: all alike, kube-proxy's default. ``SameZone``: those of the client's zone, or all where it has none.
``TopologyHints``: those that the EndpointSlice controller allots to the client's zone, or all where it can't allot them
evenly. ``NodeLocal``: only those of the client's node.
"""


class ServiceSpec(ApiStruct):
    """The fields of a Service that decide where its traffic goes."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    selector: dict[str, str] = {}
    publish_not_ready_addresses: bool = False
    internal_traffic_policy: str = "Cluster"
    traffic_distribution: str = ""


class Service(ApiStruct):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return namespaced_key(self.metadata)

    @property
    def namespace(self) -> str:
        """The namespace of the Service and its pods."""
        return self.metadata.namespace or "default"

    @property
    def is_balanced(self) -> bool:
        """Whether kube-proxy chooses among pods that the Service selects.

        Clients of a headless Service choose by themselves, an ExternalName is outside the cluster, and endpoints of a
        Service without a selector are not known from pods.
        """
        spec = self.spec
        return bool(spec.selector) and spec.type != _EXTERNAL_NAME and spec.cluster_ip != _HEADLESS

    @property
    def routing(self) -> Routing:
        """Which endpoints clients reach. The annotation takes precedence over trafficDistribution, as in Kubernetes."""
        if self.spec.internal_traffic_policy == _LOCAL:
            return "NodeLocal"
        if any(self.metadata.annotations.get(name, "").lower() == "auto" for name in TOPOLOGY_MODES):
            return "TopologyHints"
        return "SameZone" if self.spec.traffic_distribution in SAME_ZONE_PREFERENCES else "Even"

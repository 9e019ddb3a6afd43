"""The host ports that a pod takes, and whether they conflict. Source: kube-scheduler's NodePorts plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import PodSpec

    HostPort = tuple[str, str, int]


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The host ports of a pod as (protocol, address, port); address "" stands for all addresses."""
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 (compared with, never bound to)
    return frozenset(
        (port.protocol or "TCP", "" if port.host_ip in wildcards else port.host_ip, port.host_port)
        for container in (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
        for port in container.ports
        if port.host_port
    )


def ports_conflict(a: Iterable[HostPort], b: Iterable[HostPort]) -> bool:
    """Whether two pods with these host ports can't share a host."""
    ports = list(b)
    return any(
        protocol == protocol_b and port == port_b and (not address or not address_b or address == address_b)
        for protocol, address, port in a
        for protocol_b, address_b, port_b in ports
    )

"""The host ports that a pod takes, and whether they conflict. Source: kube-scheduler's NodePorts plugin.

On the host network every container port is a host port. The API server writes it into pods, but since Kubernetes 1.28
not into pod templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import PodSpec

    HostPort = tuple[str, str, int]


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The host ports of a pod, or of a template's pods, as (protocol, address, port); "" stands for all addresses."""
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 (compared with, never bound to)
    return frozenset(
        (port.protocol or "TCP", "" if port.host_ip in wildcards else port.host_ip, number)
        for container in (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )


def ports_conflict(a: Iterable[HostPort], b: Iterable[HostPort]) -> bool:
    """Whether two pods with these host ports can't share a host.

    >>> ports_conflict({("TCP", "", 80)}, {("TCP", "10.0.0.9", 80)})
    True
    >>> ports_conflict({("TCP", "10.0.0.8", 80)}, {("TCP", "10.0.0.9", 80), ("UDP", "", 80)})
    False
    """
    ports = list(b)
    return any(
        protocol == protocol_b and port == port_b and (not address or not address_b or address == address_b)
        for protocol, address, port in a
        for protocol_b, address_b, port_b in ports
    )


def format_ports(ports: Iterable[HostPort]) -> str:
    """The ports for messages.

    >>> format_ports({("TCP", "", 8080), ("UDP", "10.0.0.9", 53)})
    '53/UDP of 10.0.0.9, 8080/TCP'
    """
    ordered = sorted((number, protocol, address) for protocol, address, number in ports)
    return ", ".join(
        f"{number}/{protocol}{f' of {address}' if address else ''}" for number, protocol, address in ordered
    )

"""The host ports that a pod takes, and which of them conflict. Source: kube-scheduler's NodePorts plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import PodSpec

    HostPort = tuple[str, str, int]


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The host's ports that a pod takes: (protocol, address, port), the address "" for all."""
    everywhere = {"", "0.0.0.0", "::"}  # noqa: S104 (compared with, never bound to)
    return frozenset(
        (p.protocol or "TCP", "" if p.host_ip in everywhere else p.host_ip, p.host_port)
        for c in (*spec.containers, *(i for i in spec.init_containers if i.restart_policy == "Always"))
        for p in c.ports
        if p.host_port
    )


def ports_conflict(a: Iterable[HostPort], b: Iterable[HostPort]) -> bool:
    """Whether two pods can't share a host."""
    others = list(b)
    return any(p == q and n == m and (not x or not y or x == y) for p, x, n in a for q, y, m in others)

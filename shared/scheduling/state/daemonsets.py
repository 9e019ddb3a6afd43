"""The pods that DaemonSets run on every node, which take their share of it before other pods do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.api.pods import spec_requests
from shared.api.quantity import QuantityError, Resources
from shared.scheduling.rules.host_ports import host_ports
from shared.scheduling.rules.node_affinity import required_alternatives
from shared.scheduling.rules.requirements import RequirementError, Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.api.kubernetes import DaemonSet, Toleration
    from shared.scheduling.rules.host_ports import HostPort


@dataclass(frozen=True, kw_only=True)
class DaemonSetPod:
    """What one DaemonSet asks of a node, and which nodes it goes to."""

    requests: Resources
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[HostPort]
    uid: str


def daemon_set_pods(daemon_sets: Iterable[DaemonSet]) -> tuple[DaemonSetPod, ...]:
    """What DaemonSets ask for; one whose numbers or selectors mean nothing has no pods, and is left out."""
    found: list[DaemonSetPod] = []
    for daemon_set in sorted(daemon_sets, key=lambda d: (d.metadata.namespace, d.metadata.name)):
        spec = daemon_set.spec.template.spec
        try:
            found.append(
                DaemonSetPod(
                    requests=spec_requests(spec),
                    alternatives=required_alternatives(spec),
                    tolerations=tuple(spec.tolerations),
                    ports=host_ports(spec),
                    uid=daemon_set.metadata.uid,
                )
            )
        except (QuantityError, RequirementError):
            continue
    return tuple(found)

"""How many pods may share a host if they only prefer different ones.

kube-scheduler scores nodes by such a preference, but fills the first node that is there. Nodes that were bought for the
preference alone would stay empty, one for each replica. So it is met by two hosts: none runs more than half of the pods
that the preference counts, unless maxSkew allows more. More hosts are used where they cost no more (``strict``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.scheduling.solver.fit import pod_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.topology.domain_counts import HostCounts
    from shared.scheduling.topology.pod_groups import PodGroup, SizedPods
    from shared.scheduling.topology.topology import Topology

    Ints = NDArray[np.int64]

_HOSTS = 2
"""This many hosts meet a preference for different hosts."""


class PreferredHosts:
    """The limits of a run. ``strict``: as many hosts as preferences name; ``shares_hosts``: whether that differs."""

    def __init__(
        self,
        topology: Topology,
        launch_options: LaunchOptions,
        host_counts: HostCounts,
        groups: Sequence[tuple[PodGroup, list[SizedPods]]],
        *,
        strict: bool,
    ) -> None:
        self.shares_hosts = False
        self._topology = topology
        self._launch_options = launch_options
        self._host_counts = host_counts
        self._groups = groups
        self._strict = strict
        self._counts: dict[int, int] | None = None

    def limits(self, wanted: Mapping[int, int], match: Mapping[int, int], sizes: Sequence[Ints]) -> dict[int, int]:
        """The limits by host term, of those that the preferences name for pods of these sizes that match ``match``."""
        limits: dict[int, int] = {}
        for term, limit in wanted.items():
            shared = max(limit, -(-self._count(term) // _HOSTS)) if term in match else limit
            self.shares_hosts |= shared > limit
            if self._strict or shared == limit:
                limits[term] = limit
            elif any(self._most_on_a_host(requests) > shared for requests in sizes):
                limits[term] = shared
        return limits

    def _most_on_a_host(self, requests: Ints) -> int:
        """How many pods of this size the largest launch option holds."""
        return int(pod_count(requests, self._launch_options.free).max(initial=0))

    def _count(self, term: int) -> int:
        """How many pods, scheduled before or pending, the term selects."""
        if self._counts is None:
            self._counts = {t: int(present.sum()) for t, present in self._host_counts.present.items()}
            for group, sizes in self._groups:
                pods = sum(len(sized.pods) for sized in sizes)
                for matched in self._topology.host_terms.matching(group.namespace, group.labels):
                    self._counts[matched] = self._counts.get(matched, 0) + pods
        return self._counts.get(term, 0)

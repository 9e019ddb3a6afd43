"""What commitments pay of a cluster's own nodes, and what is left for its next ones. Pure.

A cluster may use what the instances of others leave. Of what is unused now it takes its share, so that several clusters
don't fill the same gap at once: a configured share, or that of its instances among those of all clusters.

Which of the nodes is covered is AWS's business and changes nothing in the bill. Here it is those that are the hardest
to do without, so that the price of each other node is what really is saved without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct
from shared.commitments.balance import Balance, bill

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from shared.commitments.balance import Bill
    from shared.commitments.commitment import Commitments, InstanceKind


class OwnCoverage(Struct, kw_only=True):
    """The coverage of a cluster's on-demand nodes.

    ``unused`` is what its next nodes may use. ``uncovered_shares`` are by node: the share of it that no commitment
    pays. ``available`` is what all of its nodes may use together, ``kinds`` are the nodes in the order in which they
    are covered, and ``commitments`` are all of the account's, with the instances of others.
    """

    unused: Balance
    uncovered_shares: Mapping[str, float]
    available: Balance
    kinds: Mapping[str, InstanceKind]
    commitments: Commitments
    cluster: str

    def without(self, nodes: Collection[str]) -> Balance:
        """What is unused once these nodes are gone."""
        if not any(self.uncovered_shares.get(node, 1.0) < 1 for node in nodes):
            return self.unused
        balance = self.available.copy()
        for node, kind in self.kinds.items():
            if node not in nodes:
                balance.take(kind)
        return balance

    def bill(
        self, on_demand: Mapping[str, float], *, without: Collection[str] = (), more: Iterable[InstanceKind] = ()
    ) -> Bill:
        """The account's bill for on-demand instances, without these nodes of the cluster and with more of some kinds.

        ``on_demand`` are prices in USD per hour by instance type.
        """
        running = [kind for node, kind in self.kinds.items() if node not in without]
        usage: dict[InstanceKind, float] = {}
        for kind in (*running, *more):
            usage[kind] = usage.get(kind, 0.0) + 1
        for foreign in self.commitments.usage.keys() - {self.cluster}:
            for kind, count in self.commitments.usage_of(foreign).items():
                usage[kind] = usage.get(kind, 0.0) + count
        return bill(self.commitments, usage, on_demand)


def own_coverage(
    commitments: Commitments,
    nodes: Sequence[tuple[str, InstanceKind]],
    *,
    cluster: str,
    share: float | None = None,
) -> OwnCoverage:
    """The coverage of these on-demand nodes of the cluster: names and kinds, those to cover first in front.

    ``share`` of what is unused is the cluster's; None: by running instances.
    """
    available = Balance.of(commitments)
    for foreign in sorted(commitments.usage.keys() - {cluster}):
        for kind, count in sorted(commitments.usage_of(foreign).items()):
            available.take(kind, count)
    left = available.copy()
    uncovered = {name: left.take(kind) for name, kind in nodes}
    unused = left.times(_share(commitments, len(nodes), cluster) if share is None else share)
    not_mine = left.minus(unused)
    return OwnCoverage(
        unused=unused,
        uncovered_shares=uncovered,
        available=available.minus(not_mine),
        kinds=dict(nodes),
        commitments=commitments,
        cluster=cluster,
    )


def _share(commitments: Commitments, nodes: int, cluster: str) -> float:
    """The cluster's share of all clusters' instances; each counts one more, so that an empty one has a share."""
    clusters = {name for name in commitments.usage if name} | {cluster}
    foreign = sum(sum(commitments.usage_of(name).values()) for name in clusters - {cluster})
    return (nodes + 1) / (nodes + foreign + len(clusters))

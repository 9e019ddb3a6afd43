"""What the limits over all NodePools still allow to launch, in addition to what each NodePool's own limits allow.

As with a NodePool's own limits, a NodeClaim counts with the largest of its instance types, so a decision can't exceed
them, whatever EC2 launches. Node groups have maximum sizes of their own and don't count.

Imported only in clusters that have such limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.nodepool import node_group_of
from shared.api.quantity import NODES
from shared.scheduling.state.cluster_usage import used_by_pools
from shared.scheduling.state.node_pool_limits import NEAR_NODES, UNLIMITED, NodePoolLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.api.quantity import Resources
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import StateNodes

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]


class ClusterLimits(NodePoolLimits):
    """The limits of each NodePool and those over all of them; see :class:`NodePoolLimits`.

    ``cluster_left`` is what the limits over all NodePools leave: resources, then nodes.
    """

    def __init__(self, launch_options: LaunchOptions, state_nodes: StateNodes) -> None:
        super().__init__(launch_options, state_nodes)
        self.cluster_left = _left(launch_options, used_by_pools(state_nodes.usage, state_nodes.node_counts))
        self._in_cluster = np.array([not node_group_of(t.node_pool) for t in launch_options.templates], np.bool_)
        limited = self.cluster_left < UNLIMITED
        self._cluster_limited = limited.astype(np.int64)
        # a resource that only the cluster limits is counted for the NodePool too, whose own amount stays unlimited
        self._limited = self._limited | (self._in_cluster[:, None] & limited).astype(np.int64)
        self._has_limits = [bool(row.any()) for row in self._limited]
        self._initially_left = np.where(
            self._in_cluster[:, None], np.minimum(self._initially_left, self.cluster_left), self._initially_left
        )
        largest_option = self._size[self._in_cluster[self._template_of]].max(0, initial=0)
        self._cluster_margin = largest_option * NEAR_NODES * self._cluster_limited
        self._cluster_near = bool((self.cluster_left < self._cluster_margin).any())
        self._allowed_in_cluster: tuple[int, Bools] | None = None

    # --- nodes planned as one launch option ---

    def allowed_options(self) -> Bools:
        """The launch options of which all limits allow at least one node."""
        allowed = super().allowed_options()
        if not self._cluster_near:
            return allowed
        if self._allowed_in_cluster is None or self._allowed_in_cluster[0] != self.version:
            fits = (self._size <= self.cluster_left).all(1) | ~self._in_cluster[self._template_of]
            self._allowed_in_cluster = (self.version, allowed & fits)
        return self._allowed_in_cluster[1]

    def max_count(self, option: int) -> int:
        """How many nodes of a launch option all limits allow."""
        count = super().max_count(option)
        if not self._in_cluster[self._template_of[option]]:
            return count
        needed = self._size[option] > 0
        return min(count, int((self.cluster_left[needed] // self._size[option][needed]).min()))

    def allows_all(self, options: list[int]) -> bool:
        """Whether all limits allow one node of each of these launch options, together."""
        total = self._size[[o for o in options if self._in_cluster[self._template_of[o]]]].sum(0)
        return super().allows_all(options) and bool((total * self._cluster_limited <= self.cluster_left).all())

    def _count(self, option: int, sign: int) -> None:
        super()._count(option, sign)
        self._count_in_cluster(int(self._template_of[option]), sign * self._size[option])

    def _count_in_cluster(self, template: int, size: Ints) -> None:
        if self._in_cluster[template]:
            self.cluster_left = self.cluster_left + size * self._cluster_limited
            self._cluster_near = self._cluster_near or bool((self.cluster_left < self._cluster_margin).any())
            self.version += self._cluster_near

    # --- nodes that may become any of several launch options: they count with a size (resources, then nodes) ---

    def allows(self, template: int, options: Ints) -> Bools:
        """Which of these launch options of a template all limits allow."""
        allowed = super().allows(template, options)
        if self._in_cluster[template]:
            allowed &= (self._size[options] <= self.cluster_left).all(1)
        return allowed

    def allows_size(self, template: int, size: Ints) -> bool:
        """Whether all limits allow a node of this size."""
        return super().allows_size(template, size) and (
            not self._in_cluster[template] or bool((size * self._cluster_limited <= self.cluster_left).all())
        )

    def exceeded_by(self, sizes: Mapping[int, Ints]) -> set[int]:
        """The templates whose limits these sizes exceed; all, if together they exceed those over all NodePools."""
        counted = {t: size for t, size in sizes.items() if self._in_cluster[t]}
        total = sum(counted.values(), np.zeros_like(self.cluster_left))
        exceeds = bool((total * self._cluster_limited > self.cluster_left).any())
        return super().exceeded_by(sizes) | (counted.keys() if exceeds else set())

    def reserve(self, template: int, size: Ints) -> None:
        """Counts a node of this size."""
        super().reserve(template, size)
        self._count_in_cluster(template, -size)

    def release(self, template: int, size: Ints) -> None:
        """Reverts :meth:`reserve`."""
        super().release(template, size)
        self._count_in_cluster(template, size)

    # --- which NodePools have limits ---

    def is_near(self, template: int) -> bool:
        """Whether a limit of the template's NodePool, or one over all NodePools, is near."""
        return super().is_near(template) or (self._cluster_near and bool(self._in_cluster[template]))

    def is_near_for(self, option: int) -> bool:
        """Whether a limit is near for a launch option's NodePool."""
        return self.is_near(int(self._template_of[option]))


def _left(launch_options: LaunchOptions, used: Resources) -> Ints:
    left = np.full(len(launch_options.resources) + 1, UNLIMITED, np.int64)
    columns = {**{r: i for i, r in enumerate(launch_options.resources)}, NODES: -1}
    for name, amount in launch_options.cluster_limits.items():
        if name in columns:
            left[columns[name]] = amount - used.get(name, 0)
    return left

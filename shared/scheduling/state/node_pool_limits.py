"""What the limits of NodePools still allow to launch.

Limits count the capacity of a NodePool's nodes, whatever instance types they turn out to be. So a NodeClaim counts with
the largest of its instance types, and near a limit larger types are left out of the claim rather than pods out of the
cluster, as in Karpenter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.api.quantity import NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.state_nodes import StateNodes

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

UNLIMITED = 1 << 62
"""What is left of a resource without a limit."""
NEAR_NODES = 100
"""A limit is near once it leaves fewer than this many of the NodePool's largest nodes; until then it is only
counted."""


class NodePoolLimits:
    """What limits leave, by template of the launch options; nodes are subtracted as they are planned.

    ``left`` is templates x (resources, then nodes), ``cluster_left`` what all NodePools together may still have.
    ``version`` changes whenever what is allowed may have changed.
    """

    def __init__(self, launch_options: LaunchOptions, state_nodes: StateNodes) -> None:
        self._template_of = launch_options.template_of
        templates, resources = launch_options.templates, launch_options.resources
        self.version = 0
        self.left = np.full((len(templates), len(resources) + 1), UNLIMITED, np.int64)
        for i, template in enumerate(templates):
            usage = state_nodes.usage.get(template.node_pool, {})
            for name, amount in template.limits.items():
                if name == NODES:
                    self.left[i, -1] = amount - state_nodes.node_counts.get(template.node_pool, 0)
                elif name in resources:
                    self.left[i, resources.index(name)] = amount - usage.get(name, 0)
        self.cluster_left = np.full(len(resources) + 1, UNLIMITED, np.int64)
        self._initially_left = self.left.copy()
        self._size = np.hstack([launch_options.capacity, np.ones((len(launch_options.capacity), 1), np.int64)])
        self._limited = (self.left < UNLIMITED).astype(np.int64)
        self._has_limits = [bool(limited.any()) for limited in self._limited]
        largest = [self._size[t.options].max(0, initial=0) for t in templates]
        self._near_margin = np.array(largest, np.int64).reshape(self.left.shape) * NEAR_NODES
        self._near: Bools = np.logical_or.reduce(self.left < self._near_margin, axis=1)
        self._allowed: tuple[int, Bools] | None = None
        self._all_options = np.ones(len(self._size), np.bool_)

    # --- nodes planned as one launch option ---

    def allowed_options(self) -> Bools:
        """The launch options of which limits allow at least one node."""
        if not self._near.any():
            return self._all_options
        if self._allowed is None or self._allowed[0] != self.version:
            self._allowed = (self.version, np.logical_and.reduce(self._size <= self.left[self._template_of], axis=1))
        return self._allowed[1]

    def max_count(self, option: int) -> int:
        """How many nodes of a launch option limits allow."""
        left, size = self.left[self._template_of[option]], self._size[option]
        needed = size > 0
        return int((left[needed] // size[needed]).min())

    def allows_all(self, options: list[int]) -> bool:
        """Whether limits allow one node of each of these launch options, together."""
        sizes: dict[int, Ints] = {}
        for option in options:
            template = int(self._template_of[option])
            sizes[template] = sizes.get(template, 0) + self._size[option]
        return all(self.allows_size(template, size) for template, size in sizes.items())

    def add(self, option: int) -> None:
        """Counts a node of a launch option."""
        self._count(option, -1)

    def remove(self, option: int) -> None:
        """Reverts :meth:`add`."""
        self._count(option, 1)

    def _count(self, option: int, sign: int) -> None:
        template = int(self._template_of[option])
        if self._has_limits[template]:
            self.left[template] += sign * self._size[option] * self._limited[template]
            if self._near[template]:
                self.version += 1
            elif (self.left[template] < self._near_margin[template]).any():
                self._near[template] = True
                self.version += 1

    # --- nodes that may become any of several launch options: they count with a size (resources, then nodes) ---

    def allows(self, template: int, options: Ints) -> Bools:
        """Which of these launch options of a template limits allow."""
        allowed: Bools = (self._size[options] <= self.left[template]).all(1)
        return allowed

    def allows_size(self, template: int, size: Ints) -> bool:
        """Whether limits allow a node of this size."""
        return bool((size * self._limited[template] <= self.left[template]).all())

    def exceeded_by(self, sizes: Mapping[int, Ints]) -> set[int]:
        """The templates whose limits don't allow nodes of these sizes."""
        return {template for template, size in sizes.items() if not self.allows_size(template, size)}

    def largest_size(self, options: Ints) -> Ints:
        """What a node counts with that may become any of these launch options."""
        size: Ints = self._size[options].max(0)
        return size

    def within_size(self, options: Ints, size: Ints) -> Bools:
        """Which of these launch options of one template count with no more than a size, in resources with a limit."""
        unlimited = self._limited[self._template_of[options]] == 0
        within: Bools = ((self._size[options] <= size) | unlimited).all(1)
        return within

    def share(self, template: int, options: Ints) -> NDArray[np.float64]:
        """The largest share of what a limit left initially that each of these launch options takes."""
        limited = self._limited[template].astype(np.bool_)
        initially_left = np.maximum(self._initially_left[template][limited], 1).astype(np.float64)
        share: NDArray[np.float64] = (self._size[options][:, limited] / initially_left).max(1)
        return share

    def reserve(self, template: int, size: Ints) -> None:
        """Counts a node of this size."""
        self.left[template] -= size * self._limited[template]
        self.version += 1

    def release(self, template: int, size: Ints) -> None:
        """Reverts :meth:`reserve`."""
        self.left[template] += size * self._limited[template]
        self.version += 1

    # --- which NodePools have limits ---

    def has_any(self) -> bool:
        """Whether any NodePool has limits."""
        return any(self._has_limits)

    def has_limits(self, template: int) -> bool:
        """Whether the template's NodePool has limits."""
        return self._has_limits[template]

    def is_near(self, template: int) -> bool:
        """Whether a limit of the template's NodePool is near."""
        return bool(self._near[template])

    def is_near_for(self, option: int) -> bool:
        """Whether a limit is near for a launch option's NodePool."""
        return bool(self._near[self._template_of[option]])

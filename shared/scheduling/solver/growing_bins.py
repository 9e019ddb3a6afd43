"""Bins that grow pod by pod, for first fit.

A growing bin may become any of several launch options; each pod narrows them. There are two ways to count it against
NodePool limits. Counted with its largest launch option from the start (``reserve_largest``), as in Karpenter, it never
needs more. Counted with the smallest that holds its pods, it leaves more capacity to others, but may stop growing.
Source: docs/facts/karpenter.md, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shared.base.struct import MutableStruct
from shared.scheduling.solver.bins import Bin
from shared.scheduling.solver.fit import Item, holds
from shared.scheduling.state.min_values import satisfies_min_values
from shared.scheduling.topology.domain_counts import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bins
    from shared.scheduling.solver.domain_assignment import DomainChoice
    from shared.scheduling.solver.pending_groups import PendingGroup
    from shared.scheduling.topology.domain_counts import HostRules

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class GrowingBin(MutableStruct):
    """A bin with the launch options that it may become, and what its pods have fixed.

    ``present`` and ``caps`` are its pods' host rules by term. ``full`` remembers the feasibilities and sizes it can't
    take any more.
    """

    bin: Bin
    template: int
    options: Ints
    where: dict[str, str] = msgspec.field(default_factory=dict)
    pod_count: int = 0
    present: dict[int, int] = msgspec.field(default_factory=dict)
    caps: dict[int, int] = msgspec.field(default_factory=dict)
    full: set[tuple[int, bytes]] = msgspec.field(default_factory=set)
    reserved: Ints | None = None

    def allows(self, rules: HostRules) -> bool:
        """Whether host rules allow a pod with these rules next to the bin's pods."""
        for term, weight in rules.match.items():
            cap = min(self.caps.get(term, NO_CAP), rules.own.get(term, NO_CAP))
            if self.present.get(term, 0) + weight > cap:
                return False
        return all(self.present.get(t, 0) <= cap for t, cap in rules.own.items() if t not in rules.match)

    def put(self, group: PendingGroup, choice: DomainChoice, requests: Ints, pod: str) -> None:
        """Adds a pod to the content."""
        for item, pods in self.bin.content:
            if item.owner is group and item.feasibility is choice.feasibility and item.requests is requests:
                pods.append(pod)
                break
        else:
            item = Item(choice.feasibility, requests, [], owner=group, where=choice.where)
            self.bin.content.append((item, [pod]))
        self.where.update(choice.where)
        self.pod_count += 1
        for term, n in group.host.match.items():
            self.present[term] = self.present.get(term, 0) + n
        for term, cap in group.host.cap.items():
            self.caps[term] = min(self.caps.get(term, cap), cap)


class GrowingBins:
    """All growing bins of a plan."""

    def __init__(self, bins: Bins, *, reserve_largest: bool) -> None:
        self._bins = bins
        self._launch_options = bins.launch_options
        self._limits = bins.limits
        self._reserve_largest = reserve_largest
        self.all: list[GrowingBin] = []

    def by_pod_count(self) -> list[GrowingBin]:
        """The bins with the fewest pods first, as in Karpenter."""
        return sorted(self.all, key=lambda b: b.pod_count)

    def add_pod(self, growing: GrowingBin, group: PendingGroup, choice: DomainChoice, requests: Ints, pod: str) -> bool:
        """Adds a pod if a launch option holds it with the others; whether it was added."""
        feasibility, bin_ = choice.feasibility, growing.bin
        offerings = bin_.offerings & feasibility.offerings
        if not offerings.any():
            return False
        options = growing.options[feasibility.options[growing.options]]
        own_custom = feasibility.custom[options]
        custom = bin_.custom or int(own_custom.max(initial=0))
        options = options[(own_custom == 0) | (own_custom == custom)]
        if custom != bin_.custom and any(f.custom[options].any() for f in bin_.feasibilities):
            return False
        used = bin_.used + requests
        options = options[holds(self._launch_options.free[options], used)]
        options = options[np.isfinite(self._launch_options.price[options][:, offerings]).any(1)]
        if not len(options) or not self._reserve(growing, options, offerings):
            return False
        growing.options, bin_.used, bin_.offerings, bin_.custom = options, used, offerings, custom
        growing.put(group, choice, requests, pod)
        return True

    def open(self, group: PendingGroup, choice: DomainChoice, requests: Ints, pod: str, weight_options: Bools) -> bool:
        """Opens a bin for a pod in the cheapest NodePool whose limits and minValues allow it; whether it did."""
        feasibility = choice.feasibility
        if not _EMPTY.allows(group.host):
            return False
        for template, options in self._cheapest_templates(choice, requests, weight_options):
            custom = int(feasibility.custom[options[0]])
            options_of_custom = options[feasibility.custom[options] == custom]
            bin_ = Bin(int(options[0]), feasibility.offerings, custom, requests.copy())
            growing = GrowingBin(bin_, template, options_of_custom)
            if not self._reserve(growing, options_of_custom, feasibility.offerings):
                continue
            if self._reserve_largest and growing.reserved is not None:
                growing.options = options_of_custom[self._limits.within_size(options_of_custom, growing.reserved)]
            self._bins.opened.append(bin_)
            self.all.append(growing)
            growing.put(group, choice, requests, pod)
            return True
        return False

    def _cheapest_templates(
        self, choice: DomainChoice, requests: Ints, weight_options: Bools
    ) -> Iterator[tuple[int, Ints]]:
        """The templates with the launch options that hold the pod, that with the cheapest option first."""
        launch_options = self._launch_options
        options = np.flatnonzero(choice.feasibility.options & weight_options)
        options = options[holds(launch_options.free[options], requests)]
        if not len(options):
            return
        price = launch_options.price[options][:, choice.feasibility.offerings].min(1)
        options, price = options[np.isfinite(price)], price[np.isfinite(price)]
        template_of = launch_options.template_of[options]
        cheapest: dict[int, float] = {}
        for template, cost in zip(template_of.tolist(), price.tolist(), strict=True):
            cheapest[template] = min(cost, cheapest.get(template, cost))
        for template in sorted(cheapest, key=lambda t: (cheapest[t], t)):
            yield template, options[template_of == template]

    def _reserve(self, growing: GrowingBin, options: Ints, offerings: Bools) -> bool:
        """Counts the bin with what it may become, if limits and minValues allow that."""
        if not self._limits.has_limits(growing.template):
            return self._keeps_min_values(growing.template, options, offerings)
        if self._reserve_largest and growing.reserved is not None:
            return self._keeps_min_values(growing.template, options, offerings)
        if growing.reserved is not None:
            self._limits.release(growing.template, growing.reserved)
        size = self._size_to_reserve(growing.template, options, offerings)
        if size is not None:
            growing.reserved = size
        if growing.reserved is not None:
            self._limits.reserve(growing.template, growing.reserved)
        return size is not None

    def _size_to_reserve(self, template: int, options: Ints, offerings: Bools) -> Ints | None:
        """The size to count a bin with; None if limits and minValues allow none."""
        limits = self._limits
        options = options[limits.allows(template, options)]
        if not len(options):
            return None
        if self._reserve_largest:
            return limits.largest_size(options) if self._keeps_min_values(template, options, offerings) else None
        price = self._launch_options.price[options][:, offerings].min(1)
        by_share = options[np.lexsort((options, price, limits.share(template, options)))]
        if not self._needs_min_values(template):
            return limits.largest_size(by_share[:1])
        for n in range(1, len(by_share) + 1):
            size = limits.largest_size(by_share[:n])
            if not limits.allows_size(template, size):
                return None
            if self._keeps_min_values(template, options[limits.within_size(options, size)], offerings):
                return size
        return None

    def _needs_min_values(self, template: int) -> bool:
        return self._bins.strict and bool(self._launch_options.templates[template].min_values)

    def _keeps_min_values(self, template: int, options: Ints, offerings: Bools) -> bool:
        return not self._needs_min_values(template) or satisfies_min_values(
            self._launch_options, self._launch_options.templates[template], options, offerings
        )

    def settle(self) -> None:
        """Makes each bin the cheapest launch option that it may become."""
        for growing in self.all:
            options, bin_ = growing.options, growing.bin
            if growing.reserved is not None:
                bin_.reserved = growing.reserved
                options = options[self._limits.within_size(options, growing.reserved)]
            else:
                self._limits.add(int(options[0]))
            price = self._launch_options.price[options][:, bin_.offerings].min(1)
            bin_.option = int(options[np.lexsort((options, price))[0]])


_EMPTY = GrowingBin(Bin(0, np.zeros(0, np.bool_), 0, np.zeros(0, np.int64)), 0, np.zeros(0, np.int64))

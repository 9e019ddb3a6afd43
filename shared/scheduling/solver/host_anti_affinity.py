"""New nodes for pods that limit how many of their replicas share a host: anti-affinity, spread over hosts, host ports.

The number of replicas sets the number of nodes, however small they are. Pods of different rules share these nodes, as
each node pays for its DaemonSets and its kubelet once. Each node then becomes the cheapest launch option that holds its
pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shared.base.struct import Struct
from shared.scheduling.solver.fit import holds, holds_each, pod_count
from shared.scheduling.state.instance_type_arrays import undominated
from shared.scheduling.topology.domain_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Content
    from shared.scheduling.solver.fit import Lot
    from shared.scheduling.state.launch_options import LaunchOptions
    from shared.scheduling.state.node_pool_limits import NodePoolLimits
    from shared.scheduling.topology.feasibility import Feasibility

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_HOSTS_COMPARED = 256
"""How many hosts are compared with launch options at once."""
_HOSTS_COMPARED_MIN = 16
_MAX_SHARING_COST = 1.05
"""Pods share a host only if the price per unit of capacity grows by no more than this for any of them."""


class _HostClass(Struct, eq=False):
    """Feasibilities that share hosts: the undominated launch options that suit all of them, and their prices."""

    number: int
    feasibilities: tuple[Feasibility, ...]
    options: Ints
    price: NDArray[np.float64]
    free: Ints
    custom: int

    def unit_price(self) -> float:
        """The least price of a unit of the resource that the launch options have most of, to compare classes."""
        size = self.free[:, self.free.sum(0).argmax()].astype(np.float64)
        return float((self.price / np.maximum(size, 1.0)).min())


class HostAntiAffinity:
    """Assigns pods to new hosts. Hosts are numbered; each has a class, which its pods narrow.

    ``cheapest_per_pod``: as many replicas share a host as make a pod cheapest; else as many as may. ``shares_hosts``:
    those that only prefer different hosts share one as is cheapest in any case.
    ``replica_count_matters`` says whether that makes a difference.
    """

    def __init__(
        self,
        launch_options: LaunchOptions,
        limits: NodePoolLimits,
        options: Bools,
        *,
        cheapest_per_pod: bool,
        shares_hosts: bool,
    ) -> None:
        self._launch_options = launch_options
        self._limits = limits
        self._options = options
        self._cheapest_per_pod = cheapest_per_pod
        self._shares_hosts = shares_hosts
        self.replica_count_matters = False
        self._classes: list[_HostClass] = []
        self._joined: dict[tuple[int, int], _HostClass | None] = {}
        self._contents: list[Content] = []

    def assign(self, lots: Sequence[Lot], open_bin: Callable[[int, int, Content], object]) -> None:
        """Assigns the pods of these lots and opens a bin for each host: (launch option, custom labels, content)."""
        size = sum(lot.count for lot in lots)
        if not size:
            return
        self._used = np.zeros((size, len(self._launch_options.resources)), np.int64)
        self._class_of = np.full(size, -1)
        self._hosts = HostCounts(size)
        replicas: dict[int, int] = {}
        for lot in lots:
            for term in lot.feasibility.host.own:
                replicas[term] = replicas.get(term, 0) + lot.count
        for lot in sorted(lots, key=lambda x: (-max(replicas[t] for t in x.feasibility.host.own), -x.worth)):
            self._assign_lot(lot)
        self._open(open_bin)

    def _assign_lot(self, lot: Lot) -> None:
        """Assigns a lot to hosts of other pods, emptiest first, where that is cheap; the rest to hosts of its own."""
        count = len(self._contents)
        joined = [self._join(i, lot) for i in range(len(self._classes))]
        fits = np.zeros(count, np.int64)
        for i, host_class in enumerate(joined):
            if host_class is not None:
                of_class = np.flatnonzero(self._class_of[:count] == i)
                fits[of_class] = holds(host_class.free.max(0) - self._used[of_class], lot.requests)
        hosts = np.flatnonzero(fits)
        caps = fits[hosts]
        self._hosts.restrict(caps, lot.feasibility.host, hosts)
        hosts, caps = hosts[caps > 0], caps[caps > 0]
        order = np.lexsort((hosts, self._used[hosts].sum(1)))
        while len(order) and lot.count:
            # no more hosts at once than there are pods, as most hosts take one
            chunk, order = np.split(order, [min(max(lot.count, _HOSTS_COMPARED_MIN), _HOSTS_COMPARED)])
            self._share(lot, hosts[chunk], caps[chunk], joined)
        own = self._own_class(lot) if lot.count else None
        if own is not None:
            self._assign_own_hosts(lot, own)

    def _assign_own_hosts(self, lot: Lot, own: _HostClass) -> None:
        per_host = self._replicas_per_host(own, lot)
        if not per_host:
            return
        count, added = len(self._contents), -(-lot.count // per_host)
        replicas = np.full(added, per_host)
        replicas[-1] = lot.count - per_host * (added - 1)
        hosts = np.arange(count, count + added)
        self._contents += [[] for _ in range(added)]
        self._class_of[hosts] = own.number
        self._put(lot, hosts, replicas)

    def _replicas_per_host(self, own: _HostClass, lot: Lot) -> int:
        """How many pods of the lot share a host: as many as may, or as many as make a pod cheapest.

        As many as may can need a large node at a high price. Fewer need more nodes, which fewer other pods share.
        """
        rules = lot.feasibility.host
        cap = min(rules.own[t] // weight for t, weight in rules.match.items() if t in rules.own)
        replicas = np.minimum(pod_count(lot.requests, own.free), cap)
        most = int(replicas.max())
        if most <= 1:
            return most
        replicas = np.minimum(replicas, lot.count)
        cost = np.where(replicas > 0, own.price / np.maximum(replicas, 1), np.inf)
        cheapest = int(replicas[np.lexsort((-replicas, cost))[0]])
        if cheapest == min(most, lot.count):
            return most
        self.replica_count_matters = True
        shares = self._shares_hosts and not any(t in rules.cap for t in rules.match)
        return cheapest if shares or self._cheapest_per_pod else most

    def _share(self, lot: Lot, hosts: Ints, caps: Ints, joined: Sequence[_HostClass | None]) -> None:
        """Puts pods of a lot on these hosts, first host first; each takes at most its cap."""
        class_of = self._class_of[hosts]
        room = np.zeros(len(hosts), np.int64)
        for i in np.unique(class_of).tolist():
            host_class = joined[i]
            if host_class is not None:
                of_class = np.flatnonzero(class_of == i)
                used = self._used[hosts[of_class]]
                if caps[of_class].max() == 1:
                    room[of_class] = holds_each(host_class.free, used + lot.requests).any(1)
                else:
                    free = host_class.free[None, :, :] - used[:, None, :]
                    fits = pod_count(lot.requests, free.reshape(-1, free.shape[2]))
                    room[of_class] = fits.reshape(len(of_class), -1).max(1)
        room = np.minimum(room, caps)
        counts = np.minimum(room, lot.count - (np.cumsum(room) - room))
        used_hosts = np.flatnonzero(counts > 0)
        for at in used_hosts.tolist():
            host_class = joined[class_of[at]]
            if host_class is not None:
                self._class_of[hosts[at]] = host_class.number
        self._put(lot, hosts[used_hosts], counts[used_hosts])

    def _put(self, lot: Lot, hosts: Ints, counts: Ints) -> None:
        self._used[hosts] += counts[:, None] * lot.requests
        self._hosts.add(hosts, counts, lot.feasibility.host)
        for host, n in zip(hosts.tolist(), counts.tolist(), strict=True):
            self._contents[host] += lot.take(n)

    # --- classes of hosts ---

    def _own_class(self, lot: Lot) -> _HostClass | None:
        """The class of hosts for this lot alone; None if no launch option holds a pod."""
        key = (-1, lot.feasibility.mask_key)
        if key not in self._joined:
            self._joined[key] = self._new_class((lot.feasibility,))
        own = self._joined[key]
        return own if own is not None and (own.free >= lot.requests).all(1).any() else None

    def _join(self, number: int, lot: Lot) -> _HostClass | None:
        """The class with one feasibility more; None if they can't share hosts, or not cheaply."""
        key = (number, lot.feasibility.mask_key)
        if key not in self._joined:
            before = self._classes[number]
            if any(f.mask_key == lot.feasibility.mask_key for f in before.feasibilities):
                self._joined[key] = before
            else:
                after = self._new_class((*before.feasibilities, lot.feasibility))
                own = self._own_class(lot)
                is_cheap = (
                    after is not None
                    and own is not None
                    and after.unit_price() <= _MAX_SHARING_COST * max(before.unit_price(), own.unit_price())
                )
                self._joined[key] = after if is_cheap else None
        return self._joined[key]

    def _new_class(self, feasibilities: tuple[Feasibility, ...]) -> _HostClass | None:
        launch_options = self._launch_options
        offerings = np.logical_and.reduce([f.offerings for f in feasibilities])
        if not offerings.any():
            return None
        price = launch_options.price[:, offerings].min(1)
        allowed = self._options & self._limits.allowed_options() & np.isfinite(price)
        allowed &= np.logical_and.reduce([f.options for f in feasibilities])
        own_custom = np.stack([f.custom for f in feasibilities])
        custom = own_custom.max(0)
        allowed &= ((own_custom == 0) | (own_custom == custom)).all(0)
        options = np.flatnonzero(allowed)
        if not len(options):
            return None
        options = options[undominated(launch_options.free[options], price[options])]
        first = int(custom[options[0]])
        options = options[custom[options] == first]
        free = launch_options.free[options]
        host_class = _HostClass(len(self._classes), feasibilities, options, price[options], free, first)
        self._classes.append(host_class)
        return host_class

    # --- launch options of hosts ---

    def _open(self, open_bin: Callable[[int, int, Content], object]) -> None:
        """Opens each host as the cheapest launch option that holds it; if limits allow none, its pods stay in items."""
        cheapest, version = self._cheapest(range(len(self._contents))), self._limits.version
        for host, content in enumerate(self._contents):
            option = cheapest[host] if self._limits.version == version else self._cheapest([host])[host]
            if option < 0:
                for item, pods in content:
                    item.pods[:0] = pods
            else:
                open_bin(option, self._classes[self._class_of[host]].custom, content)

    def _cheapest(self, hosts: Sequence[int]) -> dict[int, int]:
        """The cheapest launch option that holds each host and that limits allow; -1 if there is none."""
        allowed = self._limits.allowed_options()
        cheapest: dict[int, int] = {}
        by_class: dict[int, list[int]] = {}
        for host in hosts:
            by_class.setdefault(int(self._class_of[host]), []).append(host)
        for number, members in by_class.items():
            host_class = self._classes[number]
            options = np.flatnonzero(allowed[host_class.options])
            options = options[np.argsort(host_class.price[options], kind="stable")]
            for start in range(0, len(members), _HOSTS_COMPARED):
                chunk = members[start : start + _HOSTS_COMPARED]
                held = holds_each(host_class.free[options], self._used[chunk])
                if not held.shape[1]:
                    cheapest.update(dict.fromkeys(chunk, -1))
                    continue
                first = held.argmax(1)
                is_held = held[np.arange(len(chunk)), first]
                cheapest.update(
                    zip(chunk, np.where(is_held, host_class.options[options][first], -1).tolist(), strict=True)
                )
        return cheapest

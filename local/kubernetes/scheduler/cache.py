"""All nodes with what stands on them, and which of them changed when: what searches for a place look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.scheduler.node_info import Place, Tenant
from local.kubernetes.scheduler.pod_counts import Census

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.scheduler.pod_counts import Group, Guard, Pick
    from shared.api.kubernetes import Node


class Board:
    """Nodes by name. Every change moves ``revision``, so that a search looks only at what is new to it."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.revision = 0
        self._changed: dict[str, int] = {}
        self._strays: dict[str, dict[str, Tenant]] = {}
        self._where: dict[str, str] = {}
        self._arrivals = 0
        self._census = Census(self.namespaces)

    def put_node(self, node: Node) -> None:
        """A node is there, or changed; pods bound to it before it was seen are put on it."""
        name = node.metadata.name
        place = self.places.get(name)
        if place is None:
            self._arrivals += 1
            place = self.places[name] = Place(node, self._arrivals)
            for tenant in self._strays.pop(name, {}).values():
                self._settle(place, tenant)
        else:
            place.renew(node)
        self._touch(name)

    def drop_node(self, name: str) -> None:
        """A node is gone; pods bound to it count nowhere until they are gone too, or it comes back."""
        place = self.places.pop(name, None)
        if place is None:
            return
        for uid in list(place.tenants):
            self._strays.setdefault(name, {})[uid] = self._unsettle(place, uid)
        self._touch(name)

    def put_pod(self, node: str, tenant: Tenant) -> None:
        """A pod stands on a node; the same pod in the same state changes nothing."""
        place = self.places.get(node)
        if self._where.get(tenant.uid) == node and place is not None:
            present = place.tenants.get(tenant.uid)
            same = present is not None and present.shape.key == tenant.shape.key
            if same and present is not None and present.terminating == tenant.terminating:
                return
        self.drop_pod(tenant.uid)
        self._where[tenant.uid] = node
        if place is None:
            self._strays.setdefault(node, {})[tenant.uid] = tenant
            return
        self._settle(place, tenant)
        self._touch(node)

    def drop_pod(self, uid: str) -> None:
        """A pod takes no room any more."""
        node = self._where.pop(uid, None)
        if node is None:
            return
        place = self.places.get(node)
        if place is None or uid not in place.tenants:
            self._strays.get(node, {}).pop(uid, None)
            return
        self._unsettle(place, uid)
        self._touch(node)

    def node_of(self, uid: str) -> str:
        """Where the pod stands, "" if nowhere."""
        return self._where.get(uid, "")

    def touch_all(self) -> None:
        """Something outside the nodes changed that may matter for any of them."""
        for name in self.places:
            self._touch(name)

    def recount(self) -> None:
        """Forget all groups: namespaces' labels changed, and with them whom a namespaceSelector means."""
        self._census = Census(self.namespaces)
        for place in self.places.values():
            for tenant in place.tenants.values():
                self._census.count(place.name, tenant, 1)
        self.touch_all()

    def changed_since(self, revision: int) -> Iterator[tuple[str, Place | None]]:
        """Nodes that changed after that revision, the latest first; None for those that are gone."""
        for name, when in reversed(self._changed.items()):
            if when <= revision:
                return
            yield name, self.places.get(name)

    def group(self, picks: tuple[Pick, ...], *, living: bool) -> Group:
        """The pods on nodes that all of the picks take."""
        return self._census.group(picks, living=living, places=self.places.values())

    @property
    def guards(self) -> list[Guard]:
        """Every anti-affinity term that pods on nodes hold; the list only grows until ``recount``."""
        return self._census.guards

    def _settle(self, place: Place, tenant: Tenant) -> None:
        place.add(tenant)
        self._census.count(place.name, tenant, 1)

    def _unsettle(self, place: Place, uid: str) -> Tenant:
        tenant = place.drop(uid)
        self._census.count(place.name, tenant, -1)
        return tenant

    def _touch(self, name: str) -> None:
        self.revision += 1
        self._changed.pop(name, None)
        self._changed[name] = self.revision

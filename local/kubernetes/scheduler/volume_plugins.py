"""Where a pod's volumes let it go: volumes that are there, volumes that will be made for it, and how many a node takes.

Source: kube-scheduler's plugins volumebinding and nodevolumelimits, with their words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes.conversion import typed
from shared.api.quantity import parse_quantity
from shared.api.selectors import SelectorError, matches_node
from shared.api.storage import PersistentVolume, StorageClass

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.node_info import Place
    from local.kubernetes.scheduler.pod_signature import Shape

CONFLICT = "node(s) had volume node affinity conflict"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
TOO_MANY = "node(s) exceed max volume count"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
EBS_DRIVER = "ebs.csi.aws.com"
WAITS = "WaitForFirstConsumer"


class Storage:
    """Claims, volumes, storage classes and what each node's drivers take, as the API has them now."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], Obj] = {}
        self.volumes: dict[str, Obj] = {}
        self.classes: dict[str, Obj] = {}
        self.csi_nodes: dict[str, Obj] = {}
        self._revision = 0

    def state_of(self, shape: Shape) -> tuple[object, ...]:
        """Differs whenever an answer about pods of this shape may."""
        if not shape.claims:
            return ()
        state: list[object] = [self._revision]
        for name in shape.claims:
            claim = self.claims.get((shape.namespace, name))
            state.append(claim and claim["metadata"]["resourceVersion"])
            volume = self.volumes.get(claim["spec"].get("volumeName") or "") if claim else None
            state.append(volume and volume["metadata"]["resourceVersion"])
        return tuple(state)

    def record(self, plural: str, obj: Obj, *, gone: bool) -> None:
        """Take one change of any of the four kinds."""
        meta = obj["metadata"]
        if plural != "persistentvolumeclaims" and not (obj.get("spec") or {}).get("claimRef"):
            self._revision += 1
        key: Any = (meta["namespace"], meta["name"]) if plural == "persistentvolumeclaims" else meta["name"]
        tables: dict[str, dict[Any, Obj]] = {
            "persistentvolumeclaims": self.claims,
            "persistentvolumes": self.volumes,
            "storageclasses": self.classes,
            "csinodes": self.csi_nodes,
        }
        kept = tables[plural]
        if gone:
            kept.pop(key, None)
        else:
            kept[key] = obj

    def class_of(self, claim: Obj) -> StorageClass | None:
        """The claim's storage class, the default one if it names none."""
        name = claim["spec"].get("storageClassName")
        if name is None:
            default = (c for c in self.classes.values() if is_default(c))
            raw = next(default, None)
        else:
            raw = self.classes.get(name)
        return None if raw is None else typed(raw, StorageClass)

    def refusal(self, shape: Shape) -> str:
        """Why the pod can go nowhere at all for its claims; "" if nothing speaks against it."""
        for name in shape.claims:
            claim = self.claims.get((shape.namespace, name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if "deletionTimestamp" in claim["metadata"]:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if (claim.get("status") or {}).get("phase") == "Lost":
                return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
            if not is_bound(claim) and not self._waits(claim):
                return IMMEDIATE
        return ""

    def refusals(self, shape: Shape, place: Place) -> tuple[str, ...]:
        """Why the pod can't go to this node for its claims; empty: it can."""
        for name in shape.claims:
            claim = self.claims[shape.namespace, name]
            if is_bound(claim):
                volume = self.volumes.get(claim["spec"]["volumeName"])
                if volume is None or not reachable(volume, place):
                    return (CONFLICT,)
            elif self.static_volume(claim, place) is None and not self._can_make(claim, place):
                return (NOTHING_TO_BIND,)
        return (TOO_MANY,) if self._too_many(shape, place) else ()

    def unbound(self, shape: Shape) -> list[Obj]:
        """The claims that wait for the pod to have a node."""
        found = [self.claims[shape.namespace, name] for name in shape.claims]
        return [claim for claim in found if not is_bound(claim)]

    def static_volume(self, claim: Obj, place: Place) -> Obj | None:
        """The smallest free volume that serves the claim on that node."""
        wanted = claim["spec"].get("storageClassName") or ""
        size = _size(claim["spec"].get("resources", {}).get("requests") or {})
        modes = set(claim["spec"].get("accessModes") or [])
        free = [
            volume
            for volume in self.volumes.values()
            if not volume["spec"].get("claimRef")
            and (volume["spec"].get("storageClassName") or "") == wanted
            and modes <= set(volume["spec"].get("accessModes") or [])
            and _size(volume["spec"].get("capacity") or {}) >= size
            and reachable(volume, place)
        ]
        return min(free, key=lambda v: (_size(v["spec"].get("capacity") or {}), v["metadata"]["name"]), default=None)

    def _waits(self, claim: Obj) -> bool:
        storage_class = self.class_of(claim)
        return storage_class is not None and storage_class.volume_binding_mode == WAITS

    def _can_make(self, claim: Obj, place: Place) -> bool:
        storage_class = self.class_of(claim)
        if storage_class is None or storage_class.provisioner == NO_PROVISIONER:
            return False
        terms = storage_class.allowed_topologies
        return not terms or any(
            all(topology_value(place.labels, e.key) in e.values for e in term.match_label_expressions) for term in terms
        )

    def _too_many(self, shape: Shape, place: Place) -> bool:
        limits = self._limits(place.name)
        if not limits or not shape.claims:
            return False
        used = {volume for tenant in place.tenants.values() for volume in self._attached(tenant.shape)}
        wanted = used | self._attached(shape)
        return any(
            sum(driver == limited for driver, _ in wanted) > count and any(d == limited for d, _ in wanted - used)
            for limited, count in limits.items()
        )

    def _limits(self, node: str) -> dict[str, int]:
        spec = self.csi_nodes.get(node, {}).get("spec") or {}
        drivers = spec.get("drivers") or []
        counts = {d["name"]: (d.get("allocatable") or {}).get("count") for d in drivers}
        return {name: count for name, count in counts.items() if count is not None}

    def _attached(self, shape: Shape) -> set[tuple[str, str]]:
        """Driver and identity of each volume that the pod brings to its node."""
        found: set[tuple[str, str]] = set()
        for name in shape.claims:
            claim = self.claims.get((shape.namespace, name))
            if claim is None:
                continue
            volume = self.volumes.get(claim["spec"].get("volumeName") or "")
            if volume is not None:
                found.add((driver_of(volume), volume["metadata"]["name"]))
            elif (storage_class := self.class_of(claim)) is not None:
                found.add((storage_class.provisioner, f"{shape.namespace}/{name}"))
        return found


def is_bound(claim: Obj) -> bool:
    """Whether the claim has its volume."""
    return bool(claim["spec"].get("volumeName")) and (claim.get("status") or {}).get("phase") == "Bound"


def is_default(storage_class: Obj) -> bool:
    """Whether claims that name no class get this one."""
    return (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def driver_of(volume: Obj) -> str:
    """The CSI driver of a volume; an in-tree EBS volume counts as the EBS driver's."""
    spec = volume["spec"]
    return (spec.get("csi") or {}).get("driver") or (EBS_DRIVER if spec.get("awsElasticBlockStore") else "")


def reachable(volume: Obj, place: Place) -> bool:
    """Whether the volume's node affinity allows the node."""
    affinity = typed(volume, PersistentVolume).spec.node_affinity
    required = affinity.required if affinity else None
    labels = {
        **place.labels,
        "topology.ebs.csi.aws.com/zone": topology_value(place.labels, "topology.kubernetes.io/zone"),
    }
    try:
        return matches_node(required, labels, name=place.name)
    except SelectorError:
        return False


def topology_value(labels: dict[str, str], key: str) -> str:
    """A node's value of a topology key; the EBS driver's own zone key means the zone."""
    return labels.get("topology.kubernetes.io/zone" if key == "topology.ebs.csi.aws.com/zone" else key, "")


def _size(quantities: dict[str, Any]) -> int:
    return parse_quantity("storage", quantities.get("storage", "0"))

"""The volume plugins: present volumes, volumes to provision, how many a node takes, and claims for one pod.

Source: kube-scheduler's plugins volumebinding, nodevolumelimits and volumerestrictions, with their messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local.kubernetes import kinds
from local.kubernetes.conversion import convert
from shared.api.quantity import parse_quantity
from shared.api.selectors import SelectorError, matches_node
from shared.api.storage import PersistentVolume, StorageClass

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.kubernetes.scheduler.node_info import NodeInfo
    from local.kubernetes.scheduler.pod_signature import PodSignature

NODE_AFFINITY_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
VOLUME_NOT_FOUND = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_VOLUME_TO_BIND = "node(s) didn't find available persistent volumes to bind"
MAX_VOLUME_COUNT = "node(s) exceed max volume count"
DRIVER_MISSING = "CSI driver is not installed on the node"
"""After the driver's name, of drivers whose CSIDriver says so."""
_FIRST_MINOR_REQUIRING_DRIVERS = 37
CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
UNBOUND_IMMEDIATE_CLAIMS = "pod has unbound immediate PersistentVolumeClaims"

SELECTED_NODE = "volume.kubernetes.io/selected-node"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
_ONE_POD = "ReadWriteOncePod"
_EBS_DRIVER = "ebs.csi.aws.com"
_EBS_ZONE = "topology.ebs.csi.aws.com/zone"
_ZONE = "topology.kubernetes.io/zone"


def kinds_of(minor: int) -> tuple[Kind, ...]:
    """The kinds that kube-scheduler of this minor version looks at for volumes."""
    drivers = (kinds.CSI_DRIVERS,) if minor >= _FIRST_MINOR_REQUIRING_DRIVERS else ()
    return (
        kinds.STORAGE_CLASSES,
        kinds.PERSISTENT_VOLUMES,
        kinds.PERSISTENT_VOLUME_CLAIMS,
        kinds.CSI_NODES,
        *drivers,
    )


PLURALS = frozenset({"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes", "csidrivers"})
"""The plurals of all these kinds."""


class VolumeBinder:
    """Claims, volumes, storage classes and the volume limits of nodes, as the API has them now."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], Obj] = {}
        self.volumes: dict[str, Obj] = {}
        self.storage_classes: dict[str, Obj] = {}
        self.csi_nodes: dict[str, Obj] = {}
        self.csi_drivers: dict[str, Obj] = {}
        self._version = 0

    def version_for(self, signature: PodSignature) -> tuple[object, ...]:
        """A value that changes whenever a result for pods with this signature may change."""
        if not signature.claims:
            return ()
        version: list[object] = [self._version]
        for name in signature.claims:
            claim = self.claims.get((signature.namespace, name))
            version.append(claim and claim["metadata"]["resourceVersion"])
            volume = self.volumes.get(claim["spec"].get("volumeName") or "") if claim else None
            version.append(volume and volume["metadata"]["resourceVersion"])
        return tuple(version)

    def update(self, plural: str, obj: Obj, *, deleted: bool) -> None:
        """Update an object of one of the five kinds."""
        meta = obj["metadata"]
        if plural != "persistentvolumeclaims" and not (obj.get("spec") or {}).get("claimRef"):
            self._version += 1
        key: Any = (meta["namespace"], meta["name"]) if plural == "persistentvolumeclaims" else meta["name"]
        by_plural: dict[str, dict[Any, Obj]] = {
            "persistentvolumeclaims": self.claims,
            "persistentvolumes": self.volumes,
            "storageclasses": self.storage_classes,
            "csinodes": self.csi_nodes,
            "csidrivers": self.csi_drivers,
        }
        objects = by_plural[plural]
        if deleted:
            objects.pop(key, None)
        else:
            objects[key] = obj

    def class_of(self, claim: Obj) -> StorageClass | None:
        """The claim's storage class; the default one if it names none."""
        name = claim["spec"].get("storageClassName")
        if name is None:
            storage_class = next((c for c in self.storage_classes.values() if is_default_class(c)), None)
        else:
            storage_class = self.storage_classes.get(name)
        return None if storage_class is None else convert(storage_class, StorageClass)

    def pre_filter(self, signature: PodSignature) -> str:
        """Why no node can run the pod because of its claims; "" if there is no such reason."""
        for name in signature.claims:
            claim = self.claims.get((signature.namespace, name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if "deletionTimestamp" in claim["metadata"]:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if (claim.get("status") or {}).get("phase") == "Lost":
                return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
            if not is_bound(claim) and not self._waits_for_first_consumer(claim):
                return UNBOUND_IMMEDIATE_CLAIMS
        return ""

    def exclusive_claims(self, signature: PodSignature) -> frozenset[str]:
        """The pod's claims that only one pod may use at a time."""
        claims = ((name, self.claims.get((signature.namespace, name))) for name in signature.claims)
        return frozenset(n for n, claim in claims if claim and _ONE_POD in (claim["spec"].get("accessModes") or []))

    def filter(self, signature: PodSignature, node_info: NodeInfo) -> tuple[str, ...]:
        """Why the node can't run the pod because of its claims; empty: it can."""
        for name in signature.claims:
            claim = self.claims[signature.namespace, name]
            if is_bound(claim):
                volume = self.volumes.get(claim["spec"]["volumeName"])
                if volume is None:
                    return (VOLUME_NOT_FOUND,)
                if not is_reachable(volume, node_info):
                    return (NODE_AFFINITY_CONFLICT,)
            elif not self._can_bind(claim, node_info):
                return (NO_VOLUME_TO_BIND,)
        if missing := self._missing_driver(signature, node_info.name):
            return (f"{missing} {DRIVER_MISSING}",)
        return (MAX_VOLUME_COUNT,) if self._exceeds_limits(signature, node_info) else ()

    def unbound_claims(self, signature: PodSignature) -> list[Obj]:
        """The claims that wait for the pod's node."""
        claims = [self.claims[signature.namespace, name] for name in signature.claims]
        return [claim for claim in claims if not is_bound(claim)]

    def find_matching_volume(self, claim: Obj, node_info: NodeInfo) -> Obj | None:
        """The smallest free volume that satisfies the claim and is reachable from the node."""
        candidates = [
            volume for volume in self.volumes.values() if _satisfies(volume, claim) and is_reachable(volume, node_info)
        ]
        return min(candidates, key=lambda v: (_capacity(v), v["metadata"]["name"]), default=None)

    def _can_bind(self, claim: Obj, node_info: NodeInfo) -> bool:
        """Whether the unbound claim gets a volume on the node; only there, once it is provisioned for that node."""
        if selected_node(claim) not in {"", node_info.name} and self._is_provisioned(claim):
            return False
        return self.find_matching_volume(claim, node_info) is not None or self._can_provision(claim, node_info)

    def _waits_for_first_consumer(self, claim: Obj) -> bool:
        storage_class = self.class_of(claim)
        return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER

    def _is_provisioned(self, claim: Obj) -> bool:
        storage_class = self.class_of(claim)
        return storage_class is not None and storage_class.provisioner != NO_PROVISIONER

    def _can_provision(self, claim: Obj, node_info: NodeInfo) -> bool:
        storage_class = self.class_of(claim)
        if storage_class is None or not self._is_provisioned(claim):
            return False
        terms = storage_class.allowed_topologies
        return not terms or any(
            all(topology_value(node_info.labels, e.key) in e.values for e in term.match_label_expressions)
            for term in terms
        )

    def _missing_driver(self, signature: PodSignature, node: str) -> str:
        """The driver of a pod's volume that the node lacks and that must be there; "" for none."""
        drivers = (
            {driver for driver, _ in self._volumes_of(signature)} if signature.claims and self.csi_drivers else set()
        )
        required = {d for d in drivers if _spec(self.csi_drivers.get(d)).get("preventPodSchedulingIfMissing")}
        installed = {driver["name"] for driver in _spec(self.csi_nodes.get(node)).get("drivers") or ()}
        return min(required - installed, default="")

    def _exceeds_limits(self, signature: PodSignature, node_info: NodeInfo) -> bool:
        limits = self._volume_limits(node_info.name)
        if not limits or not signature.claims:
            return False
        attached = {volume for pod in node_info.pods.values() for volume in self._volumes_of(pod.signature)}
        after = attached | self._volumes_of(signature)
        return any(
            sum(driver == limited for driver, _ in after) > limit
            and any(driver == limited for driver, _ in after - attached)
            for limited, limit in limits.items()
        )

    def _volume_limits(self, node: str) -> dict[str, int]:
        drivers = _spec(self.csi_nodes.get(node)).get("drivers") or []
        counts = {d["name"]: (d.get("allocatable") or {}).get("count") for d in drivers}
        return {driver: count for driver, count in counts.items() if count is not None}

    def _volumes_of(self, signature: PodSignature) -> set[tuple[str, str]]:
        """Driver and identity of each volume that the pod's node must attach."""
        volumes: set[tuple[str, str]] = set()
        for name in signature.claims:
            claim = self.claims.get((signature.namespace, name))
            if claim is None:
                continue
            volume = self.volumes.get(claim["spec"].get("volumeName") or "")
            if volume is not None:
                volumes.add((driver_of(volume), volume["metadata"]["name"]))
            elif (storage_class := self.class_of(claim)) is not None:
                volumes.add((storage_class.provisioner, f"{signature.namespace}/{name}"))
        return volumes


def _spec(obj: Obj | None) -> Obj:
    return (obj or {}).get("spec") or {}


def selected_node(claim: Obj) -> str:
    """The node for which the claim's volume is provisioned; "" before the scheduler has chosen one."""
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))


def is_bound(claim: Obj) -> bool:
    """Whether the claim has its volume."""
    return bool(claim["spec"].get("volumeName")) and (claim.get("status") or {}).get("phase") == "Bound"


def is_default_class(storage_class: Obj) -> bool:
    """Whether claims that name no class get this one."""
    return (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def driver_of(volume: Obj) -> str:
    """The CSI driver of a volume; the EBS driver for an in-tree EBS volume."""
    spec = volume["spec"]
    return (spec.get("csi") or {}).get("driver") or (_EBS_DRIVER if spec.get("awsElasticBlockStore") else "")


def is_reachable(volume: Obj, node_info: NodeInfo) -> bool:
    """Whether the volume's node affinity matches the node."""
    affinity = convert(volume, PersistentVolume).spec.node_affinity
    required = affinity.required if affinity else None
    labels = {**node_info.labels, _EBS_ZONE: topology_value(node_info.labels, _ZONE)}
    try:
        return matches_node(required, labels, name=node_info.name)
    except SelectorError:
        return False


def topology_value(labels: dict[str, str], key: str) -> str:
    """A node's value of a topology key; the EBS driver's own zone key stands for the zone label."""
    return labels.get(_ZONE if key == _EBS_ZONE else key, "")


def _satisfies(volume: Obj, claim: Obj) -> bool:
    """Whether the volume is free and has the claim's class, access modes and size."""
    spec = volume["spec"]
    return (
        not spec.get("claimRef")
        and (spec.get("storageClassName") or "") == (claim["spec"].get("storageClassName") or "")
        and set(claim["spec"].get("accessModes") or []) <= set(spec.get("accessModes") or [])
        and _capacity(volume) >= _storage(claim["spec"].get("resources", {}).get("requests") or {})
    )


def _capacity(volume: Obj) -> int:
    return _storage(volume["spec"].get("capacity") or {})


def _storage(quantities: dict[str, Any]) -> int:
    return parse_quantity("storage", quantities.get("storage", "0"))

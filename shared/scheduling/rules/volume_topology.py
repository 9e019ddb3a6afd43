"""The nodes that a pod's volumes allow, and the volumes of each CSI driver that it mounts.

A bound volume restricts its pod to the volume's topology. An unbound claim restricts it to the topologies of available
volumes that satisfy the claim, and to what its StorageClass allows where it has a provisioner. Several topologies are
alternatives. A claim that can't be mounted makes the pod unschedulable, with the reason.

A volume that exists on one node, as local ones do, keeps its pods there; without that node they run nowhere. Karpenter
drops the volume's hostname and launches a node, which kube-scheduler then refuses.
Source: kube-scheduler's VolumeBinding plugin and Karpenter's volume topology.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from shared.api.kubernetes import PersistentVolumeClaimSpec
from shared.api.labels import HOSTNAME, ZONE, normalize_key
from shared.api.pods import claim_of, is_pending, is_terminal
from shared.api.quantity import QuantityError, parse_quantity
from shared.api.selectors import matches
from shared.base.struct import Struct, with_fields
from shared.scheduling.rules.node_affinity import readable_terms
from shared.scheduling.rules.requirements import Requirements, conflicting_key, intersect, only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import Pod, Volume
    from shared.api.meta import RawQuantities
    from shared.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, TopologyLabelRequirement
    from shared.snapshot import Snapshot

    MountedVolume = tuple[str, str]
    """CSI driver, and the volume's handle, or its claim while it is unbound."""
    Topologies = tuple[Requirements, ...]

EBS_DRIVER = "ebs.csi.aws.com"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""Takes precedence over storageClassName, as in Kubernetes."""
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation on an unbound claim: kube-scheduler has chosen this node, and its volume is provisioned for it."""
_ONE_POD = "ReadWriteOncePod"
_SEVERAL_ZONES = "__"
"""Between the zones in the label of a volume that is in several."""
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_STORAGE = "storage"
_AVAILABLE = frozenset({"Available", ""})
"""The phases of a volume that a claim may be bound to; a manifest of a volume has no phase."""


class VolumeError(ValueError):
    """A volume that no node can mount; the message names it and the reason."""


class Volumes(Struct, kw_only=True):
    """``alternatives`` are the topologies of which one must hold."""

    alternatives: Topologies = ({},)
    mounted_volumes: frozenset[MountedVolume] = frozenset()


class Storage(Struct, eq=False, dict=True):
    """The cluster's storage objects; they are looked up only for pods that mount PersistentVolumeClaims."""

    snapshot: Snapshot

    @cached_property
    def claims(self) -> Mapping[str, PersistentVolumeClaim]:
        """The PersistentVolumeClaims by namespace/name."""
        return {
            f"{c.metadata.namespace or 'default'}/{c.metadata.name}": c for c in self.snapshot.persistent_volume_claims
        }

    @cached_property
    def volumes(self) -> Mapping[str, PersistentVolume]:
        """The PersistentVolumes by name."""
        return {v.metadata.name: v for v in self.snapshot.persistent_volumes}

    @cached_property
    def classes(self) -> Mapping[str, StorageClass]:
        """The StorageClasses by name, in order."""
        return {c.metadata.name: c for c in sorted(self.snapshot.storage_classes, key=lambda c: c.metadata.name)}

    @cached_property
    def default_class(self) -> str:
        """The name of the default StorageClass, the first of several; empty: there is none."""
        defaults = (n for n, c in self.classes.items() if c.metadata.annotations.get(_DEFAULT_CLASS) == "true")
        return next(defaults, "")

    @cached_property
    def _hostnames(self) -> Mapping[str, str]:
        """The hostname label of each node, by name."""
        return {n.metadata.name: n.metadata.labels.get(HOSTNAME, n.metadata.name) for n in self.snapshot.nodes}

    @cached_property
    def _pods_by_claim(self) -> Mapping[str, list[Pod]]:
        """The pods that run or are pending, by each claim that they name."""
        pods: dict[str, list[Pod]] = {}
        for pod in self.snapshot.pods:
            if pod.spec.volumes and not is_terminal(pod) and (pod.spec.node_name or is_pending(pod)):
                for key in _named_claims(pod):
                    pods.setdefault(key, []).append(pod)
        return pods

    def user_of_exclusive_claim(self, pod: Pod) -> str | None:
        """Why the pod has to wait for another one: it names a ReadWriteOncePod claim that the other uses.

        Of several pending pods, the first by name is served. Source: kube-scheduler's VolumeRestrictions plugin.
        """
        for key in _named_claims(pod):
            claim = self.claims.get(key)
            if claim is None or _ONE_POD not in claim.spec.access_modes:
                continue
            for user in self._pods_by_claim.get(key, ()):
                if user.key != pod.key and (user.spec.node_name or user.key < pod.key):
                    return f"PersistentVolumeClaim {key} is {_ONE_POD}, and pod {user.key} uses it"
        return None

    def volumes_of(self, pod: Pod) -> Volumes:
        """The topology and mounts of a pod's volumes.

        Raises:
            VolumeError: no node can mount one of them, or all of them.
            RequirementError: a volume's node affinity is invalid.
        """
        alternatives: Topologies = ({},)
        mounted: set[MountedVolume] = set()
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None and volume.ephemeral is None:
                continue
            topologies, mounted_volume = self._volume(pod, volume)
            mounted.add(mounted_volume)
            alternatives = tuple(
                both for a in alternatives for b in topologies if conflicting_key(both := intersect(a, b)) is None
            )
            if not alternatives:
                raise VolumeError("volume node affinity conflict: no node can mount all volumes of the pod")
        return Volumes(alternatives=alternatives, mounted_volumes=frozenset(mounted))

    def _volume(self, pod: Pod, volume: Volume) -> tuple[Topologies, MountedVolume]:
        key = claim_of(pod, volume)
        if volume.persistent_volume_claim is not None:
            return self._claimed(key, ephemeral=False)
        if key in self.claims:
            return self._claimed(key, ephemeral=True)
        template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
        spec = template.spec if template is not None else None
        return self._unbound(key, spec or PersistentVolumeClaimSpec(), ephemeral=True)

    def _claimed(self, key: str, *, ephemeral: bool) -> tuple[Topologies, MountedVolume]:
        claim = self.claims.get(key)
        if claim is None:
            raise VolumeError(f"PersistentVolumeClaim {key} not found")
        if claim.metadata.deletion_timestamp is not None:
            raise VolumeError(f"PersistentVolumeClaim {key} is being deleted")
        if claim.status.phase == "Lost":
            raise VolumeError(f"PersistentVolumeClaim {key} has lost its PersistentVolume")
        if not claim.spec.volume_name:
            annotated = claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name)
            spec = with_fields(claim.spec, storage_class_name=annotated)
            topologies, mounted_volume = self._unbound(key, spec, ephemeral=ephemeral)
            if mounted_volume[0] != _NO_PROVISIONER:
                topologies = self._on_selected_node(claim, key, topologies)
            return topologies, mounted_volume
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is None:
            raise VolumeError(
                f"PersistentVolumeClaim {key} is bound to PersistentVolume {claim.spec.volume_name}, not found"
            )
        reserved_for = volume.spec.claim_ref
        if reserved_for is not None and f"{reserved_for.namespace}/{reserved_for.name}" != key:
            raise VolumeError(
                f"PersistentVolumeClaim {key} names PersistentVolume {volume.metadata.name}, "
                f"which is bound to PersistentVolumeClaim {reserved_for.namespace}/{reserved_for.name}"
            )
        labelled = _labelled_topology(volume)
        topologies = tuple(intersect(t, labelled) for t in _volume_topologies(volume))
        if (gone := self._missing_nodes(topologies)) is not None:
            raise VolumeError(
                f"PersistentVolumeClaim {key} is bound to PersistentVolume {volume.metadata.name}, "
                f"which exists only on node {gone}, and the cluster has no such node"
            )
        return topologies, _mounted_volume(volume)

    def _missing_nodes(self, topologies: Topologies) -> str | None:
        """The nodes that all topologies name, if none of them exists; None if one does, or another node may do."""
        named: set[str] = set()
        for topology in topologies:
            allowed = topology.get(HOSTNAME)
            if allowed is None or allowed.complement or any(map(allowed.has, self._hostnames.values())):
                return None
            named |= allowed.values
        return " or ".join(sorted(named))

    def _on_selected_node(self, claim: PersistentVolumeClaim, key: str, topologies: Topologies) -> Topologies:
        """The topologies, on the node for which the claim's volume is being provisioned.

        The provisioner removes the annotation if it can't; kube-scheduler refuses all other nodes until then.
        """
        selected = claim.metadata.annotations.get(_SELECTED_NODE)
        if not selected:
            return topologies
        if selected not in self._hostnames:
            raise VolumeError(
                f"PersistentVolumeClaim {key} waits for its provisioner, which has not yet given up node {selected}, "
                "and the cluster has no such node"
            )
        return tuple(intersect(t, {HOSTNAME: only(self._hostnames[selected])}) for t in topologies)

    def _unbound(
        self, key: str, spec: PersistentVolumeClaimSpec, *, ephemeral: bool
    ) -> tuple[Topologies, MountedVolume]:
        name = self.default_class if spec.storage_class_name is None else spec.storage_class_name
        if not name:
            raise VolumeError(f"PersistentVolumeClaim {key} is unbound and has no StorageClass")
        storage_class = self.classes.get(name)
        if storage_class is None:
            raise VolumeError(f"PersistentVolumeClaim {key}: StorageClass {name} not found")
        if storage_class.volume_binding_mode != "WaitForFirstConsumer" and not ephemeral:
            raise VolumeError(
                f"PersistentVolumeClaim {key} is unbound, and StorageClass {name} binds it before the pod is scheduled"
            )
        topologies = self._available_topologies(key, spec, name)
        if storage_class.provisioner != _NO_PROVISIONER:
            allowed = storage_class.allowed_topologies
            provisioned = tuple(_topology(t.match_label_expressions) for t in allowed) or ({},)
            topologies = (*topologies, *(t for t in provisioned if t not in topologies))
        elif not topologies:
            raise VolumeError(
                f"PersistentVolumeClaim {key}: StorageClass {name} has no provisioner, and no available "
                "PersistentVolume satisfies the claim"
            )
        return topologies, (storage_class.provisioner, key)

    def _available_topologies(self, key: str, spec: PersistentVolumeClaimSpec, class_name: str) -> Topologies:
        """The distinct topologies of the available volumes that satisfy an unbound claim, in order of volume name."""
        topologies: list[Requirements] = []
        for _, volume in sorted(self.volumes.items()):
            if _satisfies(volume, key, spec, class_name):
                topologies += [t for t in _volume_topologies(volume) if t not in topologies]
        return tuple(topologies)


def _satisfies(volume: PersistentVolume, key: str, spec: PersistentVolumeClaimSpec, class_name: str) -> bool:
    """Whether the volume can be bound to the claim. Source: FindMatchingVolume of k8s.io/component-helpers."""
    offered, reserved_for = volume.spec, volume.spec.claim_ref
    return (
        volume.metadata.deletion_timestamp is None
        and volume.status.phase in _AVAILABLE
        and (reserved_for is None or f"{reserved_for.namespace}/{reserved_for.name}" == key)
        and volume.metadata.annotations.get(_CLASS_ANNOTATION, offered.storage_class_name) == class_name
        and offered.volume_mode == spec.volume_mode
        and (offered.volume_attributes_class_name or "") == (spec.volume_attributes_class_name or "")
        and set(spec.access_modes) <= set(offered.access_modes)
        and (spec.selector is None or matches(spec.selector, volume.metadata.labels))
        and _storage(spec.resources.requests) <= _storage(offered.capacity)
    )


def _storage(quantities: RawQuantities) -> int:
    """Bytes of storage.

    Raises:
        VolumeError: the quantity is invalid.
    """
    try:
        return parse_quantity(_STORAGE, quantities.get(_STORAGE, "0"))
    except QuantityError as error:
        raise VolumeError(str(error)) from error


def _volume_topologies(volume: PersistentVolume) -> Topologies:
    """The alternatives of the volume's node affinity; one without requirements if it has none."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
    terms = required.node_selector_terms if required is not None else []
    return tuple(readable_terms(terms)) or ({},)


def _labelled_topology(volume: PersistentVolume) -> Requirements:
    """The zones in a bound volume's label, which old volumes have instead of a node affinity.

    Source: kube-scheduler's VolumeZone plugin.
    """
    zones = {normalize_key(key): value for key, value in volume.metadata.labels.items()}.get(ZONE)
    return {ZONE: only(*zones.split(_SEVERAL_ZONES))} if zones else {}


def _named_claims(pod: Pod) -> list[str]:
    """The claims that the pod's volumes name, by namespace/name."""
    namespace = pod.metadata.namespace or "default"
    sources = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return [f"{namespace}/{source.claim_name}" for source in sources if source is not None]


def _mounted_volume(volume: PersistentVolume) -> MountedVolume:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    if volume.spec.aws_elastic_block_store is not None:
        return EBS_DRIVER, volume.spec.aws_elastic_block_store.volume_id.rpartition("/")[2]
    return "", volume.metadata.name


def _topology(terms: list[TopologyLabelRequirement]) -> Requirements:
    requirements: Requirements = {}
    for term in terms:
        requirements = intersect(requirements, {normalize_key(term.key): only(*term.values)})
    return requirements

"""Where a pod's volumes let it run, and how many of a driver's volumes it brings.

A bound volume ties its pod to the volume's places; one that is made at first use ties it to what its class allows.
Several places are alternatives, so they come back as such. A claim that can never be mounted refuses the pod, with the
reason. Source: kube-scheduler's VolumeBinding and Karpenter's volume topology.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.api.labels import normalize_key
from shared.scheduling.rules.node_affinity import term_requirements
from shared.scheduling.rules.requirements import Requirements, both, contradiction, only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.kubernetes import Pod
    from shared.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, TopologyLabelRequirement
    from shared.snapshot import Snapshot

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_EBS = "ebs.csi.aws.com"


class VolumeError(ValueError):
    """A volume that keeps its pod from running anywhere; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class Volumes:
    """``alternatives`` are the places, any one of which will do; ``mounted`` are (driver, volume)."""

    alternatives: tuple[Requirements, ...] = ({},)
    mounted_volumes: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Storage:
    """The cluster's storage objects, by name."""

    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    default_class: str = ""

    @staticmethod
    def of(snapshot: Snapshot) -> Storage:
        """What the snapshot holds."""
        classes = sorted(snapshot.storage_classes, key=lambda c: c.metadata.name)
        defaults = [c.metadata.name for c in classes if c.metadata.annotations.get(_DEFAULT_CLASS) == "true"]
        return Storage(
            {f"{c.metadata.namespace or 'default'}/{c.metadata.name}": c for c in snapshot.persistent_volume_claims},
            {v.metadata.name: v for v in snapshot.persistent_volumes},
            {c.metadata.name: c for c in classes},
            defaults[0] if defaults else "",
        )

    def volumes_of(self, pod: Pod) -> Volumes:
        """Where the pod's volumes let it run.

        Raises:
            VolumeError: one of them can't be mounted anywhere.
            RequirementError: a volume's node affinity means nothing.
        """
        alternatives: tuple[Requirements, ...] = ({},)
        mounted_volumes: set[tuple[str, str]] = set()
        namespace = pod.metadata.namespace or "default"
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                places, driver = self._claimed(f"{namespace}/{volume.persistent_volume_claim.claim_name}", made=False)
            elif volume.ephemeral is not None:
                key = f"{namespace}/{pod.metadata.name}-{volume.name}"
                template = volume.ephemeral.volume_claim_template
                wanted = (
                    template.spec.storage_class_name if template is not None and template.spec is not None else None
                )
                places, driver = (
                    self._claimed(key, made=True) if key in self.claims else self._unbound(key, wanted, made=True)
                )
            else:
                continue
            mounted_volumes.add(driver)
            alternatives = tuple(met for a in alternatives for b in places if contradiction(met := both(a, b)) is None)
            if not alternatives:
                raise VolumeError("its volumes are in different places, and no node can reach them all")
        return Volumes(alternatives=alternatives, mounted_volumes=frozenset(mounted_volumes))

    def _claimed(self, key: str, *, made: bool) -> tuple[tuple[Requirements, ...], tuple[str, str]]:
        claim = self.claims.get(key)
        if claim is None:
            raise VolumeError(f"PersistentVolumeClaim {key} doesn't exist")
        if claim.metadata.deletion_timestamp is not None:
            raise VolumeError(f"PersistentVolumeClaim {key} is being deleted")
        if claim.status.phase == "Lost":
            raise VolumeError(f"PersistentVolumeClaim {key} has lost its volume")
        if not claim.spec.volume_name:
            return self._unbound(key, claim.spec.storage_class_name, made=made)
        volume = self.volumes.get(claim.spec.volume_name)
        if volume is None:
            raise VolumeError(
                f"PersistentVolumeClaim {key} is bound to {claim.spec.volume_name}, and there is no such volume"
            )
        required = volume.spec.node_affinity.required if volume.spec.node_affinity is not None else None
        terms = required.node_selector_terms if required is not None else []
        places = tuple(term_requirements(t) for t in terms if t.match_expressions or t.match_fields) or ({},)
        if volume.spec.csi is not None:
            return places, (volume.spec.csi.driver, volume.spec.csi.volume_handle)
        if volume.spec.aws_elastic_block_store is not None:
            return places, (_EBS, volume.spec.aws_elastic_block_store.volume_id.rpartition("/")[2])
        return places, ("", volume.metadata.name)

    def _unbound(
        self, key: str, class_name: str | None, *, made: bool
    ) -> tuple[tuple[Requirements, ...], tuple[str, str]]:
        name = self.default_class if class_name is None else class_name
        if not name:
            raise VolumeError(f"PersistentVolumeClaim {key} is not bound, and no StorageClass will make its volume")
        storage_class = self.classes.get(name)
        if storage_class is None:
            raise VolumeError(f"PersistentVolumeClaim {key} wants StorageClass {name}, which doesn't exist")
        if storage_class.volume_binding_mode != "WaitForFirstConsumer" and not made:
            raise VolumeError(
                f"PersistentVolumeClaim {key} is not bound yet, and StorageClass {name} binds immediately: "
                "its volume comes first"
            )
        places = tuple(_topology(term.match_label_expressions) for term in storage_class.allowed_topologies) or ({},)
        return places, (storage_class.provisioner, key)


def _topology(terms: list[TopologyLabelRequirement]) -> Requirements:
    found: Requirements = {}
    for term in terms:
        found = both(found, {normalize_key(term.key): only(*term.values)})
    return found

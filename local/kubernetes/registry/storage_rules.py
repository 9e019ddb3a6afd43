"""The errors of volumes, claims, storage classes and CSI nodes. Source: ``pkg/apis/core/validation``, ``storage``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.registry import field_rules as rules
from local.kubernetes.registry import scheduling_rules
from shared.api.quantity import exact_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.field_rules import Causes

_SOURCES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
"""The sources of a pod's volume, in the order in which they are looked at: the first counts, others are too many."""
_SOURCES_OF_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs",
    "iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume",
    "azureDisk", "scaleIO", "local", "storageos", "csi",
)  # fmt: skip
_NAMED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""How errors name a source if not by its field."""
_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_LONGEST_DRIVER = 63
_LONGEST_NODE_ID = 256


def volume_source(volume: Obj, path: str) -> Causes:
    """The errors of the sources of a pod's volume: several of them, and in those that scheduling depends on."""
    sources = [name for name in _SOURCES if volume.get(name) is not None]
    yield from _further_sources(sources, path)
    if sources[:1] == ["persistentVolumeClaim"] and not volume["persistentVolumeClaim"].get("claimName"):
        yield rules.required(f"{path}.persistentVolumeClaim.claimName")
    if sources[:1] == ["ephemeral"]:
        template = volume["ephemeral"].get("volumeClaimTemplate")
        at = f"{path}.ephemeral.volumeClaimTemplate"
        if template is None:
            yield rules.required(at)
        else:
            yield from claim_spec(template.get("spec") or {}, f"{at}.spec")


def _further_sources(sources: list[str], path: str) -> Causes:
    for name in sources[1:]:
        yield rules.forbidden(f"{path}.{_NAMED.get(name, name)}", "may not specify more than 1 volume type")


def claim(new: Obj) -> Causes:
    """The errors of a PersistentVolumeClaim."""
    return claim_spec(new.get("spec") or {}, "spec")


def claim_spec(spec: Obj, path: str) -> Causes:
    """The errors of a claim's spec."""
    yield from _access_modes(spec, path)
    yield from rules.label_selector(f"{path}.selector", spec.get("selector"))
    at = f"{path}.resources[storage]"
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield rules.required(at)
    elif exact_quantity(storage) <= 0:
        yield rules.invalid(at, storage, "must be greater than zero")
    for name in ("storageClassName", "volumeAttributesClassName"):
        if spec.get(name):
            yield from rules.subdomain(f"{path}.{name}", spec[name])
    yield from rules.among(f"{path}.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)


def _access_modes(spec: Obj, path: str) -> Causes:
    modes = spec.get("accessModes") or []
    if not modes:
        yield rules.required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        yield from rules.among(f"{path}.accessModes", mode, _MODES)
    known = {mode for mode in modes if mode in _MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        yield rules.forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def volume(new: Obj) -> Causes:
    """The errors of a PersistentVolume."""
    spec = new.get("spec") or {}
    yield from _access_modes(spec, "spec")
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield rules.required("spec.capacity")
    if set(capacity) != {"storage"}:
        yield rules.not_supported("spec.capacity", capacity, ("storage",))
    for name, quantity in capacity.items():
        if exact_quantity(quantity) <= 0:
            yield rules.invalid(f"spec.capacity[{name}]", quantity, "must be greater than zero")
    yield from _volume_affinity(spec)
    yield from _volume_sources(spec)
    yield from _volume_classes(spec)
    yield from rules.among("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES)


def _volume_affinity(spec: Obj) -> Causes:
    affinity = spec.get("nodeAffinity")
    if affinity is not None and "required" in affinity:
        yield from scheduling_rules.node_selector(affinity["required"], "spec.nodeAffinity.required")
    elif affinity is not None:
        yield rules.required("spec.nodeAffinity.required", "must specify required node constraints")


def _volume_classes(spec: Obj) -> Causes:
    if spec.get("storageClassName"):
        yield from rules.subdomain("spec.storageClassName", spec["storageClassName"])
    attributes = spec.get("volumeAttributesClassName")
    if attributes is None:
        return
    if attributes:
        yield from rules.subdomain("spec.volumeAttributesClassName", attributes)
    else:
        yield rules.required("spec.volumeAttributesClassName", "an empty string is disallowed")
    if spec.get("csi") is None:
        yield rules.required("spec.csi", "has to be specified when using volumeAttributesClassName")


def _volume_sources(spec: Obj) -> Causes:
    """The errors of a PersistentVolume's sources."""
    sources = [name for name in _SOURCES_OF_VOLUMES if spec.get(name) is not None]
    if not sources:
        yield rules.required("spec", "must specify a volume type")
    yield from _further_sources([name for name in sources if name != "flexVolume" or name == sources[0]], "spec")
    if sources[:1] == ["local"] and spec.get("nodeAffinity") is None:
        yield rules.required("spec.nodeAffinity", "Local volume requires node affinity")
    if sources[:1] == ["csi"]:
        yield from driver_name("spec.csi.driver", spec["csi"].get("driver", ""))
        if not spec["csi"].get("volumeHandle"):
            yield rules.required("spec.csi.volumeHandle")
    if sources[:1] == ["awsElasticBlockStore"] and not spec["awsElasticBlockStore"].get("volumeID"):
        yield rules.required("spec.awsElasticBlockStore.volumeID")


def storage_class(new: Obj) -> Causes:
    """The errors of a StorageClass."""
    if provisioner := new.get("provisioner"):
        yield from rules.qualified_name("provisioner", provisioner.lower())
    else:
        yield rules.required("provisioner")
    modes = ("Immediate", "WaitForFirstConsumer")
    yield from rules.among("volumeBindingMode", new.get("volumeBindingMode"), modes)
    yield from scheduling_rules.topologies(new.get("allowedTopologies") or (), "allowedTopologies")


def csi_node(new: Obj) -> Causes:
    """The errors of a CSINode."""
    names = set()
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        path, name = f"spec.drivers[{index}]", driver.get("name", "")
        yield from driver_name(f"{path}.name", name)
        if not driver.get("nodeID"):
            yield rules.required(f"{path}.nodeID")
        elif len(driver["nodeID"]) > _LONGEST_NODE_ID:
            yield rules.invalid(f"{path}.nodeID", driver["nodeID"], f"must be {_LONGEST_NODE_ID} characters or less")
        yield from rules.not_negative(f"{path}.allocatable.count", (driver.get("allocatable") or {}).get("count"))
        if name in names:
            yield rules.duplicate(f"{path}.name", name)
        names.add(name)
        yield from _topology_keys(driver.get("topologyKeys") or (), path)


def _topology_keys(keys: Iterable[str], path: str) -> Causes:
    seen = set()
    for key in keys:
        if not key:
            yield rules.required(path)
        if key in seen:
            yield rules.duplicate(path, key)
        seen.add(key)
        yield from rules.qualified_name(path, key)


def driver_name(path: str, name: str) -> Causes:
    """The errors of a CSI driver's name."""
    if not name:
        yield rules.required(path)
        return
    if len(name) > _LONGEST_DRIVER:
        yield rules.too_long(path, _LONGEST_DRIVER)
    yield from rules.subdomain(path, name.lower())

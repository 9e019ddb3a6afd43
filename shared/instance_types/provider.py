"""The instance types of a NodeClass: the catalog under its AMIs, kubelet settings, volumes and zones.

Scheduling and launching use the same list. A type that the class can't use (no AMI for its architecture, no offering in
its zones) is left out here and nowhere else.

What a node's volumes cost comes with each node, whatever its instance type. Decisions compare prices with it, so that
many small nodes aren't cheaper than a few large ones only because their volumes aren't counted. Storage of any type
counts as gp3; provisioned IOPS and throughput don't count.

Equal inputs of a later decision give the identical tuple: scheduling keeps what it derives from a tuple of instance
types by the tuple's identity, and disruption keeps plans by it. So a list that is worked out again for each decision
would cost more than the decision.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shared.ami_family.families import GIB, family_of, node_labels
from shared.api import labels
from shared.api.kubelet import Kubelet, has_expressions, kubelet_of
from shared.api.nodeclass import ENCLAVES
from shared.api.quantity import EPHEMERAL_STORAGE, parse_quantity
from shared.base.struct import Struct, with_fields
from shared.instance_types import allocatable
from shared.instance_types.instance_type import (
    InstanceType,
    ami_for,
    instance_type_labels,
    reserved_offerings,
    zonal_offerings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from shared.ami_family.families import Family
    from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
    from shared.base.runtime import Runtime
    from shared.instance_types.catalog import Hardware, InstanceTypeCatalog
    from shared.instance_types.instance_type import Offering, OfferingKey
    from shared.instance_types.vpc_cni import VpcCni

T = TypeVar("T")

RAID0 = "RAID0"
HOURS_A_MONTH = 730
GP3_PRICES = {"eu-west-1": 0.088, "eu-west-3": 0.0928, "us-east-1": 0.08}
"""USD for a GiB of gp3 for a month, by Region. Source: AWS's list prices ("Amazon EBS pricing")."""
DEFAULT_GP3_PRICE = 0.088
"""In Regions whose price wasn't looked up. For 20 GiB, a fifth more or less is 0.0005 USD per hour."""
_EFA_INTERFACE_TYPES = frozenset({"efa", "efa-only"})


def build_instance_types(
    catalog: InstanceTypeCatalog,
    node_class: EC2NodeClass,
    kubelet: Mapping[str, Any] | None,
    *,
    zones: Collection[str],
    unavailable: Collection[OfferingKey],
    observed_memory: Mapping[str, int] | None = None,
    only_offered: bool = True,
    only: Collection[str] | None = None,
    vpc_cni: VpcCni | None = None,
) -> tuple[InstanceType, ...]:
    """The instance types that nodes of the class may have, by name.

    ``kubelet`` overrides the class's own settings (None: the class's). ``zones`` are the zones of the class's subnets.
    ``unavailable`` offerings stay in the result, as not available. ``observed_memory`` maps a type to the memory
    capacity in bytes that its nodes reported. By ``vpc_cni`` the CNI has another number of addresses for pods.

    Left out are offerings without a known price, types without an offering in the zones (unless ``only_offered`` is
    false), and types without the Elastic Fabric Adapters, Nitro Enclaves or addresses that the class needs; also all
    types but those named in ``only``, if given.

    Raises:
        QuantityError: a kubelet setting or volume of the class has an invalid quantity.
        KubeletError: a kubelet expression is invalid, or has no value on one of the types.
    """
    family = family_of(node_class)
    settings_of = kubelet_settings(kubelet if kubelet is not None else node_class.spec.kubelet, family, vpc_cni)
    class_labels = {labels.REGION: catalog.region, **node_labels(family)}
    efas = sum(nic.get("interfaceType") in _EFA_INTERFACE_TYPES for nic in node_class.spec.network_interfaces)
    zone_labels = {zone: {labels.ZONE_ID: zone_id} if zone_id else {} for zone, zone_id in catalog.zones.items()}
    sorted_zones = sorted(zones)
    types = []
    for hardware in catalog.hardware if only is None else (h for h in catalog.hardware if h.name in only):
        offerings = _offerings(catalog, hardware, node_class, sorted_zones, zone_labels, unavailable)
        if only_offered and not offerings:
            continue
        type_labels = instance_type_labels(hardware) | class_labels
        if _is_compatible(hardware, type_labels, node_class, family, efas):
            memory = (observed_memory or {}).get(hardware.name)
            settings = settings_of(hardware)
            types.append(_instance_type(hardware, type_labels, offerings, node_class.spec, family, settings, memory))
    return tuple(sorted(types, key=lambda t: t.name))


class KubeletOfType(Struct):
    """The settings of a type's nodes; ``values`` are those that depend on the type as JSON, empty if none does."""

    settings: Kubelet
    values: str = ""


def kubelet_settings(
    settings: Mapping[str, Any] | None, family: Family, vpc_cni: VpcCni | None = None
) -> Callable[[Hardware], KubeletOfType]:
    """The kubelet settings by hardware: the same for all unless the class has expressions, or the VPC CNI settings.

    Raises:
        KubeletError: an expression is invalid; from the result, if it has no value on a type.
    """
    if vpc_cni is None and not (settings and has_expressions(settings)):
        static = KubeletOfType(kubelet_of(settings) if settings else Kubelet())
        return lambda _: static
    from shared.instance_types.kubelet_values import values_by_hardware  # noqa: PLC0415 (few clusters have any)

    values_of = values_by_hardware(settings or {}, family, vpc_cni)

    def of_type(hardware: Hardware) -> KubeletOfType:
        values = values_of(hardware)
        text = msgspec.json.encode(values).decode() if values else ""
        return KubeletOfType(kubelet_of({**(settings or {}), **values}), text)

    return of_type


def _instance_type(
    hardware: Hardware,
    type_labels: Mapping[str, str],
    offerings: tuple[Offering, ...],
    spec: EC2NodeClassSpec,
    family: Family,
    kubelet: KubeletOfType,
    observed_memory: int | None,
) -> InstanceType:
    capacity = allocatable.capacity(
        hardware,
        family,
        kubelet.settings,
        block_devices=spec.block_device_mappings,
        raid=spec.instance_store_policy == RAID0,
        observed_memory=observed_memory,
    )
    return InstanceType(
        name=hardware.name,
        labels=type_labels,
        capacity=capacity,
        overhead=allocatable.overhead(hardware, family, kubelet.settings, capacity),
        offerings=offerings,
        volumes=allocatable.attachable_volumes(hardware, own_volumes=len(spec.block_device_mappings or family.volumes)),
        kubelet_values=kubelet.values,
    )


def _offerings(
    catalog: InstanceTypeCatalog,
    hardware: Hardware,
    node_class: EC2NodeClass,
    zones: Sequence[str],
    zone_labels: Mapping[str, Mapping[str, str]],
    unavailable: Collection[OfferingKey],
) -> tuple[Offering, ...]:
    offerings = zonal_offerings(catalog, hardware, zones, zone_labels, unavailable)
    reservations = node_class.status.capacity_reservations
    if reservations and hardware.name in catalog.on_demand:
        offerings += reserved_offerings(
            reservations,
            hardware.name,
            on_demand=catalog.on_demand[hardware.name],
            zones=zones,
            zone_labels=zone_labels,
            unavailable=unavailable,
        )
    return offerings


def _is_compatible(
    hardware: Hardware, type_labels: Mapping[str, str], node_class: EC2NodeClass, family: Family, efa_count: int
) -> bool:
    """Whether the class has an AMI for the hardware, and the hardware what the class needs of it.

    That is Elastic Fabric Adapters, Nitro Enclaves, and on each interface an address besides its IP prefixes: EC2
    counts a prefix as an address.
    """
    if hardware.efa < efa_count or (family.os == "windows" and hardware.arch != "amd64"):
        return False
    spec = node_class.spec
    if spec.enclave_options == ENCLAVES and not hardware.nitro_enclaves:
        return False
    if spec.ip_prefix_count and hardware.addresses <= spec.ip_prefix_count:
        return False
    amis = node_class.status.amis
    return not amis or ami_for(type_labels, amis) is not None


# --- what earlier decisions worked out ---

Slot = tuple[str, str]
"""A step, and the name of the node class, NodePool or region that its result is for."""

_MAX_ENTRIES, _MAX_SLOTS = 4, 1024
"""A run asks for few different sets of offerings in turn, of fewer node classes and NodePools than these slots."""


class Adjustment(Struct):
    """A change of each instance type by itself: a ``step`` with equal ``inputs`` changes equal types equally."""

    step: str
    inputs: object
    adjust: Callable[[InstanceType], InstanceType]

    def is_same(self, earlier: Adjustment | _Adjusted) -> bool:
        """Whether the inputs are equal to an earlier adjustment's of the same step."""
        return self.inputs is earlier.inputs or self.inputs == earlier.inputs

    def of(self, types: tuple[InstanceType, ...], *, earlier: _Adjusted | None = None) -> tuple[InstanceType, ...]:
        """The adjusted types; those that an ``earlier`` result of equal inputs has are taken from there."""
        pairs = zip(earlier.types, earlier.result, strict=True) if earlier is not None else ()
        known = {before.name: (before, after) for before, after in pairs}
        return tuple(pair[1] if (pair := known.get(t.name)) and pair[0] is t else self.adjust(t) for t in types)


class _Adjusted(Struct, eq=False):
    types: tuple[InstanceType, ...]
    inputs: object
    result: tuple[InstanceType, ...]


class InstanceTypeCache:
    """The results of a process's latest decisions, by slot, with all that they were made of. Thread-safe."""

    def __init__(self, *, max_slots: int = _MAX_SLOTS) -> None:
        self._max_slots = max_slots
        self._slots: dict[Slot, tuple[object, ...]] = {}
        self._lock = Lock()

    @classmethod
    def of(cls, runtime: Runtime) -> InstanceTypeCache:
        """The cache of the process."""
        return runtime.cached("instance_types", cls)

    def latest(self, slot: Slot, kind: type[T]) -> tuple[T, ...]:
        """The entries of the slot, the one that was used last first."""
        return tuple(entry for entry in self._slots.get(slot, ()) if isinstance(entry, kind))

    def keep(self, slot: Slot, entry: object, *, most: int = _MAX_ENTRIES) -> None:
        """Keep an entry as the one that was used last, of ``most`` in the slot."""
        with self._lock:
            before = self._slots.pop(slot, ())
            self._slots[slot] = (entry, *(e for e in before if e is not entry))[:most]
            if len(self._slots) > self._max_slots:
                del self._slots[next(iter(self._slots))]

    def clear(self) -> None:
        """Forget everything: prices have changed, and each list of all instance types takes megabytes."""
        self._slots = {}

    def adjusted(self, pool: str, types: tuple[InstanceType, ...], adjustment: Adjustment) -> tuple[InstanceType, ...]:
        """The adjusted types of a NodePool: the identical tuple for identical types and equal inputs.

        Of other types, only those are adjusted that the latest result of equal inputs doesn't have.
        """
        slot = adjustment.step, pool
        of_inputs = [entry for entry in self.latest(slot, _Adjusted) if adjustment.is_same(entry)]
        entry = next((e for e in of_inputs if e.types is types), None)
        if entry is None:
            earlier = of_inputs[0] if of_inputs else None
            entry = _Adjusted(types, adjustment.inputs, adjustment.of(types, earlier=earlier))
        self.keep(slot, entry)
        return entry.result


class _CachedTypes(Struct, eq=False):
    catalog: InstanceTypeCatalog
    inputs: bytes
    unavailable: frozenset[OfferingKey]
    observed_memory: frozenset[tuple[str, int]]
    instance_types: tuple[InstanceType, ...]

    def changed(
        self, unavailable: frozenset[OfferingKey], observed_memory: frozenset[tuple[str, int]]
    ) -> frozenset[str]:
        """The types whose offerings or memory differ from those cached."""
        offerings, memory = self.unavailable ^ unavailable, self.observed_memory ^ observed_memory
        return frozenset(name for _, name, _ in offerings) | frozenset(name for name, _ in memory)


def list_instance_types(
    catalog: InstanceTypeCatalog,
    node_class: EC2NodeClass,
    *,
    zones: Collection[str],
    unavailable: Collection[OfferingKey],
    observed_memory: Mapping[str, int],
    cache: InstanceTypeCache,
    vpc_cni: VpcCni | None = None,
) -> tuple[InstanceType, ...]:
    """As :func:`build_instance_types` with the class's own kubelet settings, kept in the ``cache`` by class.

    Building takes longer than reading a large cluster's changes, and most decisions have the inputs of the one before.
    Equal inputs give the identical objects, so what callers derive from them can be cached by identity. Where only
    some offerings became unavailable, or nodes showed their memory, the other types are the identical objects too.
    """
    status = node_class.status
    inputs = msgspec.json.encode(
        [node_class.kind, node_class.spec, status.amis, status.capacity_reservations, sorted(zones), vpc_cni]
    )
    slot = "node-class", node_class.name
    equal = _equal_catalog(catalog, cache)
    same = [c for c in cache.latest(slot, _CachedTypes) if c.inputs == inputs and c.catalog is equal]
    keys, memory = frozenset(unavailable), frozenset(observed_memory.items())
    cached = next((c for c in same if c.unavailable == keys and c.observed_memory == memory), None)
    if cached is None:
        changed = same[0].changed(keys, memory) if same else None
        instance_types = build_instance_types(
            catalog,
            node_class,
            node_class.spec.kubelet,
            zones=zones,
            unavailable=keys,
            observed_memory=observed_memory,
            only=changed,
            vpc_cni=vpc_cni,
        )
        if changed is not None:
            kept = (t for t in same[0].instance_types if t.name not in changed)
            instance_types = tuple(sorted((*kept, *instance_types), key=lambda t: t.name))
        cached = _CachedTypes(equal, inputs, keys, memory, instance_types)
    cache.keep(slot, cached)
    return cached.instance_types


class _ReadCatalog(Struct, eq=False):
    catalog: InstanceTypeCatalog
    equal: InstanceTypeCatalog


def _equal_catalog(catalog: InstanceTypeCatalog, cache: InstanceTypeCache) -> InstanceTypeCatalog:
    """The first of equal catalogs that were read one after the other: each is compared once, not in each decision."""
    slot = "catalog", catalog.region
    (latest,) = cache.latest(slot, _ReadCatalog) or (_ReadCatalog(catalog, catalog),)
    if latest.catalog is not catalog:
        if is_new := not _are_equal(catalog, latest.equal):
            cache.clear()
        latest = _ReadCatalog(catalog, catalog if is_new else latest.equal)
    cache.keep(slot, latest, most=1)
    return latest.equal


def _are_equal(catalog: InstanceTypeCatalog, cached: InstanceTypeCatalog) -> bool:
    """Whether the catalogs differ in their times only."""
    return (
        catalog.region == cached.region
        and catalog.zones == cached.zones
        and catalog.on_demand == cached.on_demand
        and catalog.spot == cached.spot
        and catalog.offered == cached.offered
        and catalog.hardware == cached.hardware
    )


# --- prices of volumes ---


def volume_gib(node_class: EC2NodeClass) -> int:
    """GiB of the volumes of each node of the class; those whose size only the image knows don't count.

    Raises:
        QuantityError: a volume's size is invalid.
    """
    mappings = node_class.spec.block_device_mappings
    if not mappings:
        return sum(volume.size_gib for volume in family_of(node_class).volumes)
    sizes = (m.ebs.volume_size for m in mappings if m.ebs is not None)
    return sum(-(-parse_quantity(EPHEMERAL_STORAGE, size) // GIB) for size in sizes if size is not None)


def volume_price(gib: int, region: str) -> float:
    """USD per hour of that many GiB in the Region."""
    return gib * GP3_PRICES.get(region, DEFAULT_GP3_PRICE) / HOURS_A_MONTH


def with_volumes(price: float) -> Adjustment | None:
    """Adds the price of a node's volumes (USD per hour) to the effective prices; None if they cost nothing."""
    if not price:
        return None

    def adjust(instance_type: InstanceType) -> InstanceType:
        return with_fields(
            instance_type, offerings=tuple(with_fields(o, volume_price=price) for o in instance_type.offerings)
        )

    return Adjustment("volumes", price, adjust)

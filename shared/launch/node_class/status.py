"""The status of a node class: its subnets, security groups, AMIs, instance profile, reservations, and conditions.

A user's mistake becomes a condition that names the field and value, never an exception, so that one invalid class
doesn't stop the others. Lookups without a problem are cached for a minute, because a burst of pods would repeat them
every second.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from shared.ami_family.bootstrap import Bootstrap, UserDataError
from shared.ami_family.families import family_of, render_user_data, unsupported_settings
from shared.api.kubelet import UNSUPPORTED, KubeletError, has_expressions, with_values
from shared.api.meta import condition, to_json, with_condition
from shared.api.nodeclass import (
    AMIS_READY,
    CAPACITY_RESERVATIONS_READY,
    INSTANCE_PROFILE_READY,
    READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
    VALIDATION_SUCCEEDED,
    EC2NodeClassStatus,
    ResolvedAMI,
    ResolvedSecurityGroup,
)
from shared.api.quantity import QuantityError
from shared.base.struct import Struct, with_fields
from shared.instance_types import allocatable
from shared.instance_types.catalog import Hardware
from shared.instance_types.provider import kubelet_settings
from shared.launch import launch_template
from shared.launch.launch_template import OptionError
from shared.launch.node_class import (
    amis,
    capacity_reservations,
    deselection,
    instance_profile,
    kubernetes_version,
    security_groups,
    subnets,
)
from shared.launch.node_class.ec2_descriptions import Ec2Descriptions
from shared.launch.node_class.selector_terms import UNAUTHORIZED, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.ami_family.families import Family
    from shared.api.meta import Condition
    from shared.api.nodeclass import EC2NodeClass
    from shared.base.runtime import Runtime
    from shared.cluster.connect import ClusterInfo
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.launch.clients import NodeClassClients

T = TypeVar("T")

_CONDITION_TYPES = (SUBNETS_READY, SECURITY_GROUPS_READY, AMIS_READY, INSTANCE_PROFILE_READY, VALIDATION_SUCCEEDED)

_SELECTED: dict[str, Callable[[EC2NodeClassStatus], object]] = {
    SUBNETS_READY: lambda status: status.subnets,
    SECURITY_GROUPS_READY: lambda status: status.security_groups,
    AMIS_READY: lambda status: status.amis,
}
"""What the conditions are about, by type."""

_SAMPLE_HARDWARE = Hardware(name="any", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10)
"""Shows whether the class's kubelet settings and volumes have valid quantities."""

CACHE_TTL = timedelta(minutes=5)
"""How long lookups are cached that have no problem and are confirmed; others are repeated by the next sweep."""
_FULL_TTL = timedelta(seconds=50)
"""The same where a capacity reservation is full: pods may wait for the instance that leaves it, so each sweep looks."""


class _Lookups(Struct):
    """The status without its conditions, and by condition type the problem (reason, message).

    ``unusable_reservations``: by id, why capacity reservations that the class selects can't be used. ``is_confirmed``:
    the class selected the same or less before, and this look left out nothing of it.
    """

    selected: EC2NodeClassStatus
    problems: dict[str, tuple[str, str]]
    unusable_reservations: dict[str, str] = {}
    is_confirmed: bool = False

    @property
    def has_full_reservation(self) -> bool:
        return any(r.available_instance_count == 0 for r in self.selected.capacity_reservations)


class NodeClassResolver(Struct, kw_only=True):
    """What the statuses of a cluster's node classes are resolved with; the process (``runtime``) caches lookups.

    Kubelet expressions are evaluated on every type of the ``catalog``, if it is given.
    """

    clients: NodeClassClients
    runtime: Runtime
    cluster: ClusterInfo
    default_instance_profile: str
    catalog: InstanceTypeCatalog | None = None

    @property
    def hardware(self) -> tuple[Hardware, ...]:
        """What settings are tried on: every type of the catalog, else a sample."""
        return (self.catalog.hardware if self.catalog is not None else ()) or (_SAMPLE_HARDWARE,)

    def family_of(self, node_class: EC2NodeClass) -> Family:
        """The AMI family of a class in the cluster."""
        return family_of(node_class, version=kubernetes_version.images_version(node_class, self.cluster.version))


def resolve(resolver: NodeClassResolver, node_class: EC2NodeClass, *, now: datetime) -> EC2NodeClassStatus:
    """The class's status. Conditions that didn't change keep their transition times.

    Raises:
        ClientError: AWS failed or throttled, so nothing is known of the class; to be retried.
    """
    cache = resolver.runtime.cached("nodeclass:status", dict[str, tuple[datetime, _Lookups]])
    cluster, spec = resolver.cluster, f"{node_class.name}/{to_json(node_class.spec)}"
    version = kubernetes_version.images_version(node_class, cluster.version)
    key = f"{cluster.name}/{version}/{resolver.default_instance_profile}/{node_class.kind}/{spec}"
    expires, lookups = cache.get(key, (None, None))
    if lookups is None or expires is None or now >= expires:
        lookups = _look_up_carefully(resolver, node_class, key=key, now=now)
        for stale in [name for name, (end, _) in dict(cache).items() if now >= end or name == key]:
            del cache[stale]
        if lookups.is_confirmed and not lookups.problems:
            cache[key] = (now + (_FULL_TTL if lookups.has_full_reservation else CACHE_TTL), lookups)
    return with_fields(lookups.selected, conditions=_conditions(resolver, node_class, lookups, now))


def _look_up_carefully(resolver: NodeClassResolver, node_class: EC2NodeClass, *, key: str, now: datetime) -> _Lookups:
    """The lookups, and what the class selected before as long as no later look confirms that it is gone.

    A class whose spec is new is looked up twice, as nothing shows whether an answer was complete.
    """
    ec2 = Ec2Descriptions(resolver.clients.ec2())
    lookups = _look_up(resolver, ec2, node_class, now)
    ready = condition(node_class.status.conditions, READY)
    is_known = ready is not None and ready.observed_generation == node_class.metadata.generation
    before = node_class.status if is_known else EC2NodeClassStatus()
    if not is_known or deselection.missing(before, lookups.selected):
        lookups = _look_up(resolver, ec2, node_class, now)
    missing = deselection.missing(before, lookups.selected)
    unconfirmed = deselection.unconfirmed(resolver.runtime, key, missing, now=now)
    selected = deselection.keeping(unconfirmed, before=before, after=lookups.selected)
    problems = {
        type_: (reason, message)
        for type_, (reason, message) in lookups.problems.items()
        if reason == UNAUTHORIZED or type_ not in _SELECTED or not _SELECTED[type_](selected)
    }
    return with_fields(lookups, selected=selected, problems=problems, is_confirmed=is_known and not unconfirmed)


def _look_up(resolver: NodeClassResolver, ec2: Ec2Descriptions, node_class: EC2NodeClass, now: datetime) -> _Lookups:
    clients, version = resolver.clients, kubernetes_version.images_version(node_class, resolver.cluster.version)
    problems: dict[str, tuple[str, str]] = {}

    def attempt(condition_type: str, select: Callable[[], T], default: T) -> T:
        try:
            return select()
        except NotFoundError as error:
            problems[condition_type] = (error.reason, error.message)
            return default

    no_subnets: tuple[subnets.Subnet, ...] = ()
    no_groups: tuple[ResolvedSecurityGroup, ...] = ()
    no_amis: tuple[ResolvedAMI, ...] = ()
    selected_subnets = attempt(SUBNETS_READY, lambda: subnets.select(ec2, node_class), no_subnets)
    selected_groups = attempt(SECURITY_GROUPS_READY, lambda: security_groups.select(ec2, node_class), no_groups)
    selected_amis = attempt(
        AMIS_READY, lambda: amis.select(ec2, clients.ssm(), node_class, version=version, now=now), no_amis
    )
    profile_name = attempt(INSTANCE_PROFILE_READY, lambda: _instance_profile(resolver, node_class), "")
    reservations = attempt(
        CAPACITY_RESERVATIONS_READY,
        lambda: capacity_reservations.select(ec2, node_class, now=now),
        capacity_reservations.SelectedReservations(),
    )
    if problem := _kubelet_problem(resolver, node_class):
        problems[VALIDATION_SUCCEEDED] = problem
    elif message := _invalid(resolver, node_class):
        problems[VALIDATION_SUCCEEDED] = ("Invalid", message)
    selected = EC2NodeClassStatus(
        subnets=[s.resolved for s in selected_subnets],
        security_groups=list(selected_groups),
        amis=list(selected_amis),
        capacity_reservations=list(reservations.usable),
        instance_profile=profile_name,
    )
    return _Lookups(selected=selected, problems=problems, unusable_reservations=reservations.unusable)


def _instance_profile(resolver: NodeClassResolver, node_class: EC2NodeClass) -> str:
    return instance_profile.select(
        resolver.clients.iam(),
        node_class,
        cluster=resolver.cluster.name,
        default=resolver.default_instance_profile,
        runtime=resolver.runtime,
    )


def _kubelet_problem(resolver: NodeClassResolver, node_class: EC2NodeClass) -> tuple[str, str] | None:
    """Why the nodes of a class can't have its kubelet settings (reason, message); None if they can."""
    if not node_class.spec.kubelet:
        return None
    family = resolver.family_of(node_class)
    if unsupported := unsupported_settings(family, node_class.spec.kubelet):
        return UNSUPPORTED, "; ".join(unsupported)
    if not has_expressions(node_class.spec.kubelet):
        return None
    try:
        settings_of = kubelet_settings(node_class.spec.kubelet, family)
        for hardware in resolver.hardware:
            settings_of(hardware)
    except KubeletError as error:
        return error.reason, str(error)
    return None


def _invalid(resolver: NodeClassResolver, node_class: EC2NodeClass) -> str | None:
    """A mistake that otherwise only a launch would show: in user data, quantities, EC2's own options, or tags."""
    spec, cluster, hardware = node_class.spec, resolver.cluster, resolver.hardware[0]
    family = resolver.family_of(node_class)
    try:
        kubelet = kubelet_settings(spec.kubelet, family)(hardware)
        settings = with_values(spec.kubelet, kubelet.values)
        render_user_data(family, Bootstrap(cluster=cluster, kubelet=settings, user_data=spec.user_data))
        launch_template.block_devices(family, spec.block_device_mappings)
        capacity = allocatable.capacity(hardware, family, kubelet.settings, block_devices=spec.block_device_mappings)
        allocatable.overhead(hardware, family, kubelet.settings, capacity)
        launch_template.cpu_and_placement(spec)
        launch_template.network_interfaces(spec, (), efa_count=0)
    except (UserDataError, OptionError) as error:
        return str(error)
    except QuantityError as error:
        return f"spec.kubelet or spec.blockDeviceMappings: {error}"
    return next((problem for key in sorted(spec.tags) if (problem := launch_template.forbidden_tag(key))), None)


def _conditions(
    resolver: NodeClassResolver, node_class: EC2NodeClass, lookups: _Lookups, now: datetime
) -> list[Condition]:
    conditions = kubernetes_version.with_held_condition(
        node_class.status.conditions, node_class, resolver.cluster.version, now=now
    )
    problems = lookups.problems
    generation = node_class.metadata.generation
    notes: dict[str, tuple[str, str]] = {}
    selects_reservations = bool(node_class.spec.capacity_reservation_selector_terms)
    if selects_reservations and not lookups.selected.capacity_reservations:
        message = capacity_reservations.none_selected(node_class, lookups.unusable_reservations)
        notes[CAPACITY_RESERVATIONS_READY] = capacity_reservations.NO_RESERVATIONS, message
    if not selects_reservations:
        conditions = [c for c in conditions if c.type != CAPACITY_RESERVATIONS_READY]
    for type_ in (*_CONDITION_TYPES, *([CAPACITY_RESERVATIONS_READY] if selects_reservations else [])):
        reason, message = problems.get(type_) or notes.get(type_, (type_, ""))
        conditions = with_condition(
            conditions,
            type_,
            status=type_ not in problems,
            reason=reason,
            message=message,
            now=now,
            generation=generation,
        )
    first = next(iter(problems.values()), (READY, ""))
    return with_condition(
        conditions,
        READY,
        status=not problems,
        reason=first[0],
        message="; ".join(message for _, message in problems.values()),
        now=now,
        generation=generation,
    )

"""The status of a node class: its subnets, security groups, AMIs, instance profile, reservations, and conditions.

A user's mistake becomes a condition that names the field and value, never an exception, so that one invalid class
doesn't stop the others. Lookups without a problem are cached for a minute, because a burst of pods would repeat them
every second.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from shared import aws, runtime
from shared.ami_family.bootstrap import Bootstrap, UserDataError
from shared.ami_family.families import family_of, render_user_data
from shared.api.meta import to_json, with_condition
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
    ResolvedCapacityReservation,
    ResolvedSecurityGroup,
    ResolvedSubnet,
)
from shared.api.quantity import QuantityError
from shared.instance_types import allocatable
from shared.instance_types.catalog import Hardware
from shared.launch import launch_template
from shared.launch.launch_template import OptionError
from shared.launch.node_class import amis, capacity_reservations, instance_profile, security_groups, subnets
from shared.launch.node_class.selector_terms import NotFoundError
from shared.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.api.meta import Condition
    from shared.api.nodeclass import EC2NodeClass
    from shared.cluster.connect import ClusterInfo

T = TypeVar("T")

_CONDITION_TYPES = (SUBNETS_READY, SECURITY_GROUPS_READY, AMIS_READY, INSTANCE_PROFILE_READY, VALIDATION_SUCCEEDED)

_SAMPLE_HARDWARE = Hardware(name="any", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10)
"""Shows whether the class's kubelet settings and volumes have valid quantities."""

CACHE_TTL = timedelta(minutes=1)
"""How long lookups without a problem are cached."""


class _Lookups(Struct):
    """The status without its conditions, and by condition type the problem (reason, message)."""

    subnets: tuple[ResolvedSubnet, ...]
    security_groups: tuple[ResolvedSecurityGroup, ...]
    amis: tuple[ResolvedAMI, ...]
    capacity_reservations: tuple[ResolvedCapacityReservation, ...]
    instance_profile: str
    problems: dict[str, tuple[str, str]]


def resolve(
    node_class: EC2NodeClass, cluster: ClusterInfo, *, default_instance_profile: str, now: datetime
) -> EC2NodeClassStatus:
    """The class's status. Conditions that didn't change keep their transition times.

    Raises:
        ClientError: AWS failed or throttled, so nothing is known of the class; to be retried.
    """
    cache = runtime.current().cached("nodeclass:status", dict[str, tuple[datetime, _Lookups]])
    spec = f"{node_class.name}/{to_json(node_class.spec)}"
    key = f"{cluster.name}/{cluster.version}/{default_instance_profile}/{node_class.kind}/{spec}"
    expires, lookups = cache.get(key, (None, None))
    if lookups is None or expires is None or now >= expires:
        lookups = _look_up(node_class, cluster, default_instance_profile)
        cache.pop(key, None)
        if not lookups.problems:
            cache[key] = (now + CACHE_TTL, lookups)
    return EC2NodeClassStatus(
        subnets=list(lookups.subnets),
        security_groups=list(lookups.security_groups),
        amis=list(lookups.amis),
        capacity_reservations=list(lookups.capacity_reservations),
        instance_profile=lookups.instance_profile,
        conditions=_conditions(node_class, lookups.problems, now),
    )


def _look_up(node_class: EC2NodeClass, cluster: ClusterInfo, default_instance_profile: str) -> _Lookups:
    problems: dict[str, tuple[str, str]] = {}

    def attempt(condition: str, select: Callable[[], T], default: T) -> T:
        try:
            return select()
        except NotFoundError as error:
            problems[condition] = (error.reason, error.message)
            return default

    ec2 = aws.ec2()
    no_subnets: tuple[subnets.Subnet, ...] = ()
    no_groups: tuple[ResolvedSecurityGroup, ...] = ()
    no_amis: tuple[ResolvedAMI, ...] = ()
    no_reservations: tuple[ResolvedCapacityReservation, ...] = ()
    selected_subnets = attempt(SUBNETS_READY, lambda: subnets.select(ec2, node_class), no_subnets)
    selected_groups = attempt(SECURITY_GROUPS_READY, lambda: security_groups.select(ec2, node_class), no_groups)
    selected_amis = attempt(
        AMIS_READY, lambda: amis.select(ec2, aws.ssm(), node_class, version=cluster.version), no_amis
    )
    profile_name = attempt(
        INSTANCE_PROFILE_READY,
        lambda: instance_profile.select(aws.iam(), node_class, cluster=cluster.name, default=default_instance_profile),
        "",
    )
    selected_reservations = attempt(
        CAPACITY_RESERVATIONS_READY, lambda: capacity_reservations.select(ec2, node_class), no_reservations
    )
    if problem := _invalid(node_class, cluster):
        problems[VALIDATION_SUCCEEDED] = ("Invalid", problem)
    return _Lookups(
        subnets=tuple(s.resolved for s in selected_subnets),
        security_groups=selected_groups,
        amis=selected_amis,
        capacity_reservations=selected_reservations,
        instance_profile=profile_name,
        problems=problems,
    )


def _invalid(node_class: EC2NodeClass, cluster: ClusterInfo) -> str | None:
    """A mistake that otherwise only a launch would show: in user data, quantities, EC2's own options, or tags."""
    spec = node_class.spec
    family = family_of(node_class, version=cluster.version)
    try:
        render_user_data(family, Bootstrap(cluster=cluster, kubelet=spec.kubelet, user_data=spec.user_data))
        launch_template.block_devices(family, spec.block_device_mappings)
        capacity = allocatable.capacity(
            _SAMPLE_HARDWARE, family, spec.kubelet, block_devices=spec.block_device_mappings
        )
        allocatable.overhead(_SAMPLE_HARDWARE, family, spec.kubelet, capacity)
        launch_template.cpu_and_placement(spec)
        launch_template.network_interfaces(spec, (), public=spec.associate_public_ip_address, efa_count=0)
    except (UserDataError, OptionError) as error:
        return str(error)
    except QuantityError as error:
        return f"spec.kubelet or spec.blockDeviceMappings: {error}"
    return next((problem for key in sorted(spec.tags) if (problem := launch_template.forbidden_tag(key))), None)


def _conditions(node_class: EC2NodeClass, problems: dict[str, tuple[str, str]], now: datetime) -> list[Condition]:
    conditions = node_class.status.conditions
    generation = node_class.metadata.generation
    selects_reservations = bool(node_class.spec.capacity_reservation_selector_terms)
    for type_ in (*_CONDITION_TYPES, *([CAPACITY_RESERVATIONS_READY] if selects_reservations else [])):
        reason, message = problems.get(type_, (type_, ""))
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

"""What a node class means on AWS right now: its subnets, security groups, images and instance profile, as a status.

A user's mistake becomes a condition that names his field and value, never an exception, so that one bad class stops
no other. What was found is kept for a minute, because a burst of pods would ask for the same each second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from shared import aws, runtime
from shared.ami_family.bootstrap import Bootstrap, UserDataError
from shared.ami_family.families import family_of, is_legacy
from shared.ami_family.user_data import render
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
from shared.launch import launch_template, launch_template_options
from shared.launch.launch_template_options import OptionError
from shared.launch.node_class import amis, capacity_reservations, instance_profile, security_groups, subnets
from shared.launch.node_class.selector_terms import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.api.meta import Condition
    from shared.api.nodeclass import EC2NodeClass
    from shared.cluster.connect import ClusterInfo

T = TypeVar("T")

_ALWAYS = (SUBNETS_READY, SECURITY_GROUPS_READY, AMIS_READY, INSTANCE_PROFILE_READY, VALIDATION_SUCCEEDED)

_ANY = Hardware(name="any", arch="amd64", vcpus=2, memory_mib=8192, interfaces=3, addresses=10)
"""To see whether the class's quantities can be reckoned with at all."""

KEPT = timedelta(minutes=1)
"""How long what was found is taken for true. What wasn't found is looked for each time."""


@dataclass(frozen=True)
class _Found:
    """The status without its conditions, and by condition type what is wrong (reason, message)."""

    subnets: tuple[ResolvedSubnet, ...]
    security_groups: tuple[ResolvedSecurityGroup, ...]
    amis: tuple[ResolvedAMI, ...]
    capacity_reservations: tuple[ResolvedCapacityReservation, ...]
    instance_profile: str
    problems: dict[str, tuple[str, str]]


def resolve(
    node_class: EC2NodeClass, cluster: ClusterInfo, *, default_instance_profile: str, now: datetime
) -> EC2NodeClassStatus:
    """The class's status; its conditions keep the times of those that the class has, where nothing changed.

    Raises:
        ClientError: AWS failed or throttled; nothing is known then, and the caller's caller tries again.
    """
    kept = runtime.current().cached("nodeclass:found", dict[str, tuple[datetime, _Found]])
    key = f"{cluster.name}/{cluster.version}/{default_instance_profile}/{node_class.kind}/{_identity(node_class)}"
    until, found = kept.get(key, (None, None))
    if found is None or until is None or now >= until:
        found = _look(node_class, cluster, default_instance_profile)
        kept.pop(key, None)
        if not found.problems:
            kept[key] = (now + KEPT, found)
    return EC2NodeClassStatus(
        subnets=list(found.subnets),
        security_groups=list(found.security_groups),
        amis=list(found.amis),
        capacity_reservations=list(found.capacity_reservations),
        instance_profile=found.instance_profile,
        conditions=_conditions(node_class, found.problems, now),
    )


def _identity(node_class: EC2NodeClass) -> str:
    return f"{node_class.name}/{to_json(node_class.spec)}"


def _look(node_class: EC2NodeClass, cluster: ClusterInfo, default_instance_profile: str) -> _Found:
    problems: dict[str, tuple[str, str]] = {}

    def look(condition: str, find: Callable[[], T], otherwise: T) -> T:
        try:
            return find()
        except NotFoundError as error:
            problems[condition] = (error.reason, error.message)
            return otherwise

    ec2 = aws.ec2()
    no_subnets: tuple[subnets.Subnet, ...] = ()
    no_groups: tuple[ResolvedSecurityGroup, ...] = ()
    no_amis: tuple[ResolvedAMI, ...] = ()
    no_reservations: tuple[ResolvedCapacityReservation, ...] = ()
    selected_subnets = look(SUBNETS_READY, lambda: subnets.select(ec2, node_class), no_subnets)
    selected_groups = look(SECURITY_GROUPS_READY, lambda: security_groups.select(ec2, node_class), no_groups)
    selected_amis = look(AMIS_READY, lambda: amis.select(ec2, aws.ssm(), node_class, version=cluster.version), no_amis)
    profile_name = look(
        INSTANCE_PROFILE_READY,
        lambda: instance_profile.select(aws.iam(), node_class, cluster=cluster.name, default=default_instance_profile),
        "",
    )
    selected_reservations = look(
        CAPACITY_RESERVATIONS_READY, lambda: capacity_reservations.select(ec2, node_class), no_reservations
    )
    if problem := _invalid(node_class, cluster):
        problems[VALIDATION_SUCCEEDED] = ("Invalid", problem)
    return _Found(
        subnets=tuple(s.resolved for s in selected_subnets),
        security_groups=selected_groups,
        amis=selected_amis,
        capacity_reservations=selected_reservations,
        instance_profile=profile_name,
        problems=problems,
    )


def _invalid(node_class: EC2NodeClass, cluster: ClusterInfo) -> str | None:
    """What only a launch would show: user data that can't be merged, tags that AWS or the cluster keeps for itself."""
    spec = node_class.spec
    family = family_of(spec, legacy=is_legacy(node_class.kind), version=cluster.version)
    try:
        render(family, Bootstrap(cluster=cluster, kubelet=spec.kubelet, user_data=spec.user_data))
        launch_template.block_devices(family, spec.block_device_mappings)
        capacity = allocatable.capacity(_ANY, family, spec.kubelet, block_devices=spec.block_device_mappings)
        allocatable.overhead(_ANY, family, spec.kubelet, capacity)
        launch_template_options.fields(spec)
        launch_template_options.interfaces(spec, (), public=spec.associate_public_ip_address, fabric=0)
    except (UserDataError, OptionError) as error:
        return str(error)
    except QuantityError as error:
        return f"spec.kubelet or spec.blockDeviceMappings: {error}"
    return next((problem for key in sorted(spec.tags) if (problem := launch_template.forbidden_tag(key))), None)


def _conditions(node_class: EC2NodeClass, problems: dict[str, tuple[str, str]], now: datetime) -> list[Condition]:
    conditions = node_class.status.conditions
    generation = node_class.metadata.generation
    reserving = [CAPACITY_RESERVATIONS_READY] if node_class.spec.capacity_reservation_selector_terms else []
    for type_ in (*_ALWAYS, *reserving):
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

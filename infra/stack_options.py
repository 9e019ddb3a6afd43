"""What a user can say with ``-c key=value``, as one validated value.

The cluster is known by name only: nothing is looked up while synthesising, so the template can be made anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Bundle = Literal["full", "source"]

KEYS = (
    "cluster",
    "clusters",
    "bundle",
    "clusterSide",
    "kinds",
    "relayImage",
    "nodeRole",
    "nodeRoles",
    "subnets",
    "securityGroups",
    "reservedConcurrency",
    "alarmTopic",
    "tracing",
)
"""Every context key that means something here."""

# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")


class OptionError(ValueError):
    """A context value that can't be used; the text names the key, the value and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """One cluster's stack.

    ``bundle`` "source" leaves the functions' code out (the local world runs it from the checkout). ``apply`` has the
    stack apply the cluster's side: the ``kinds`` (not where Karpenter's own are to stay), rights, and the relay, from
    ``relay_image`` or an image built while deploying, which needs Docker. ``node_role`` names
    an existing role for nodes instead of a new one, and ``node_roles`` others that node classes may name. ``subnets``
    and ``security_groups`` put the functions into a VPC, which a cluster whose endpoint is private needs. ``reserve``
    reserves concurrency, which a new account's quota may not have to give. ``alarm_topic`` is the ARN of the SNS topic
    that alarms tell; without it they only change their state. ``tracing`` has Lambda send a trace of each invocation
    to X-Ray.
    """

    cluster: str
    bundle: Bundle = "full"
    apply: bool = True
    kinds: bool = True
    relay_image: str = ""
    node_role: str = ""
    node_roles: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    reserve: bool = True
    alarm_topic: str = ""
    tracing: bool = False


def _names(context: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = context.get(key, ())
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise OptionError(f"-c {key}={value}: must be names separated by commas")


def _one_of(context: Mapping[str, object], key: str, usual: str, other: str) -> str:
    said = context.get(key, usual)
    value = str(said) if said != "" else usual
    if value.lower() not in {usual, other}:
        raise OptionError(f"-c {key}={value}: must be {usual} or {other}")
    return value.lower()


_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}(\.fifo)?")


def _topic(context: Mapping[str, object]) -> str:
    topic = str(context.get("alarmTopic", ""))
    if topic and not _TOPIC.fullmatch(topic):
        raise OptionError(f"-c alarmTopic={topic}: must be the ARN of an SNS topic")
    return topic


def clusters(context: Mapping[str, object]) -> tuple[str, ...]:
    """The clusters to make stacks for: ``cluster`` if given, else the list ``clusters``.

    Raises:
        OptionError: none is given, or a name that EKS doesn't allow.
    """
    names = _names(context, "cluster") or _names(context, "clusters")
    if not names:
        raise OptionError('no cluster: say -c cluster=NAME, or list names under "clusters" in cdk.json')
    for name in names:
        if not _CLUSTER.fullmatch(name):
            raise OptionError(f'-c cluster={name}: an EKS cluster\'s name is letters, digits, "-" and "_", at most 100')
    return names


def parse(context: Mapping[str, object], *, cluster: str) -> Options:
    """The options of one cluster's stack.

    Raises:
        OptionError: a value that can't be used.
    """
    bundle = _one_of(context, "bundle", "full", "source")
    side = _one_of(context, "clusterSide", "applied", "printed")
    kinds = _one_of(context, "kinds", "applied", "kept")
    reserve = _one_of(context, "reservedConcurrency", "true", "false")
    tracing = _one_of(context, "tracing", "off", "active")
    subnets, security_groups = _names(context, "subnets"), _names(context, "securityGroups")
    if bool(subnets) != bool(security_groups):
        raise OptionError("-c subnets and -c securityGroups: the functions' VPC needs both")
    return Options(
        cluster=cluster,
        bundle="source" if bundle == "source" else "full",
        apply=side == "applied",
        kinds=kinds == "applied",
        relay_image=str(context.get("relayImage", "")),
        node_role=str(context.get("nodeRole", "")),
        node_roles=_names(context, "nodeRoles"),
        subnets=subnets,
        security_groups=security_groups,
        reserve=reserve == "true",
        alarm_topic=_topic(context),
        tracing=tracing == "active",
    )

"""The context keys (``-c key=value``) of a deployment, as one validated value.

A cluster is only known by its name: nothing is looked up during synthesis, so the template can be built anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Bundle = Literal["full", "source"]
PlannedPods = Literal["nominated", "off"]

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
    "plannedPods",
)
"""All context keys."""

# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")


class OptionError(ValueError):
    """An invalid context value; the message names the key, the value and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of one cluster's stack.

    ``bundle`` "source" leaves the functions' code out (the local world runs it from the checkout). ``apply`` lets the
    stack apply its objects to the cluster: CustomResourceDefinitions (``kinds``; not where Karpenter's own stay), RBAC
    and the relay, with ``relay_image`` or an image that is built during deployment, which needs Docker. ``node_role``
    is an existing role for nodes instead of a new one, ``node_roles`` are other roles that node classes may use.
    ``subnets`` and ``security_groups`` put the functions into a VPC, which a private cluster endpoint needs.
    ``reserve`` reserves concurrency, which a new account's quota may not allow. ``alarm_topic`` is the ARN of an SNS
    topic that alarms notify; without it they only change their state. ``tracing`` sends a trace of each invocation to
    X-Ray. ``planned_pods`` "nominated" lets the lifecycle function nominate pods for the nodes planned for them.
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
    planned_pods: PlannedPods = "off"


def _names(context: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = context.get(key, ())
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise OptionError(f"-c {key}={value}: must be names separated by commas")


def _one_of(context: Mapping[str, object], key: str, default: str, alternative: str) -> str:
    value = str(context.get(key, default)) or default
    if value.lower() not in {default, alternative}:
        raise OptionError(f"-c {key}={value}: must be {default} or {alternative}")
    return value.lower()


_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}(\.fifo)?")


def _topic(context: Mapping[str, object]) -> str:
    topic = str(context.get("alarmTopic", ""))
    if topic and not _TOPIC.fullmatch(topic):
        raise OptionError(f"-c alarmTopic={topic}: must be the ARN of an SNS topic")
    return topic


def clusters(context: Mapping[str, object]) -> tuple[str, ...]:
    """The clusters to build stacks for: ``cluster`` if it is given, else the list ``clusters``.

    Raises:
        OptionError: no cluster is given, or EKS doesn't allow a name.
    """
    names = _names(context, "cluster") or _names(context, "clusters")
    if not names:
        raise OptionError('no cluster: give -c cluster=NAME, or list names under "clusters" in cdk.json')
    for name in names:
        if not _CLUSTER.fullmatch(name):
            raise OptionError(f'-c cluster={name}: an EKS cluster\'s name is letters, digits, "-" and "_", at most 100')
    return names


def parse(context: Mapping[str, object], *, cluster: str) -> StackOptions:
    """The options of one cluster's stack.

    Raises:
        OptionError: a value is invalid.
    """
    bundle = _one_of(context, "bundle", "full", "source")
    side = _one_of(context, "clusterSide", "applied", "printed")
    kinds = _one_of(context, "kinds", "applied", "kept")
    reserve = _one_of(context, "reservedConcurrency", "true", "false")
    tracing = _one_of(context, "tracing", "off", "active")
    planned_pods = _one_of(context, "plannedPods", "off", "nominated")
    subnets, security_groups = _names(context, "subnets"), _names(context, "securityGroups")
    if bool(subnets) != bool(security_groups):
        raise OptionError("-c subnets and -c securityGroups: give both to run the functions in a VPC")
    return StackOptions(
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
        planned_pods="nominated" if planned_pods == "nominated" else "off",
    )

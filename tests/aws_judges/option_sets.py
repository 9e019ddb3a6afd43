"""The stacks that are judged, by what they are deployed with, and who may make which call in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.base.struct import Struct
from tests.integration.least_privilege.calls import CALLS, NOBODY, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CLUSTER_ARN = "arn:aws:eks:us-east-1:123456789012:cluster/{}"
_KEY = "arn:aws:kms:us-east-1:123456789012:key/1a2b3c4d-aaaa-bbbb-cccc-1234567890ab"
_ALL = {
    "bufferAlarms": "latency",
    "bufferEvents": "my.app/Deploy begins",
    "bufferQueues": "orders",
    "commitments": "on",
    "kmsKeys": _KEY,
    "nodeGroups": "on",
    "reboot": "on",
    "standby": "on",
    "zonalShift": "on",
}
STACKS: Mapping[str, Mapping[str, str]] = {
    "no option": {},
    "all options": _ALL,
    "in private subnets": {"subnets": "subnet-1,subnet-2", "securityGroups": "sg-1"},
    "the relay as a pod": {"relay": "pod"},
    "the webhook": {"relay": "webhook", "webhookDigest": "0" * 64},
    "a fleet": {"fleet": "prod", "clusters": "demo"},
    "shadow mode": {"mode": "shadow"},
}


class OptionalCall(Struct, kw_only=True):
    """A call that an option adds."""

    option: str
    call: Call


_GROUP_CALLS = frozenset({"ListNodegroups", "DescribeNodegroup"})
_SHADOW = "shadow"
_MADE_IN_SHADOW_MODE = frozenset(
    {
        "see instances",
        "see images",
        "reach the cluster",
        "read a public parameter",
        "read the catalog",
        "see that the catalog is missing",
        "see node groups",
        "see managed node groups",
    }
)
_READS_IN_SHADOW_MODE = frozenset({"read the catalog", "see that the catalog is missing"})


def _optional(option: str, name: str, service: str, operation: str, roles: str, **params: str) -> OptionalCall:
    call = Call(
        name=name, service=service, operation=operation, params=lambda _: params, roles=frozenset(roles.split())
    )
    return OptionalCall(option=option, call=call)


def _of_node(option: str, operation: str, roles: str) -> tuple[OptionalCall, ...]:
    """A call on instances: on the NodePools' own it is allowed with the option, on all others never."""
    targets = {
        "a node": lambda m: {"InstanceIds": [m.node]},
        "a node group's node": lambda m: {"InstanceIds": [m.managed]},
        "another cluster's node": lambda m: {"InstanceIds": [m.foreign_instance]},
        "what is nobody's": lambda m: {"InstanceIds": [m.untagged]},
        "a node and another cluster's": lambda m: {"InstanceIds": [m.node, m.foreign_instance]},
    }
    return tuple(
        OptionalCall(
            option=option,
            call=Call(
                name=f"{operation} of {target}",
                service="ec2",
                operation=operation,
                params=params,
                roles=frozenset(roles.split()) if target == "a node" else NOBODY,
            ),
        )
        for target, params in targets.items()
    )


_OPTIONAL = (
    *_of_node("reboot", "RebootInstances", "lifecycle"),
    *_of_node("standby", "StopInstances", "lifecycle"),
    *_of_node("standby", "StartInstances", "provisioner interruption"),
    *(
        _optional(
            "zonalShift",
            f"see zonal shifts of {cluster}",
            "arc-zonal-shift",
            "GetManagedResource",
            roles,
            resourceIdentifier=_CLUSTER_ARN.format(cluster),
        )
        for cluster, roles in (("demo", "lifecycle"), ("other", ""))
    ),
    _optional("commitments", "see Reserved Instances", "ec2", "DescribeReservedInstances", "catalog"),
    _optional("commitments", "see Savings Plans", "savingsplans", "DescribeSavingsPlans", "catalog"),
    _optional("commitments", "see rates of Savings Plans", "savingsplans", "DescribeSavingsPlanRates", "catalog"),
)
CALLS_OF_OPTIONS = (*CALLS, *(optional.call for optional in _OPTIONAL))
_OPTION_OF = {optional.call.name: optional.option for optional in _OPTIONAL}


_WITH: tuple[tuple[str, str, Callable[[frozenset[str]], frozenset[str]]], ...] = (
    ("relay=pod", "reach the cluster", lambda roles: roles - {"relay"}),
    ("relay=webhook", "ask for provisioning", lambda roles: roles | {"webhook"}),
    ("standby=on", "stop a node", lambda roles: roles | {"lifecycle"}),
    ("commitments=on", "see instances", lambda roles: roles | {"catalog"}),
)
"""Calls of every stack that other functions make with an option."""


def callers(call: Call, stack: str) -> frozenset[str]:
    """The functions that may make a call in a stack, where they are deployed."""
    options = STACKS[stack]
    if options.get("mode") == "shadow":
        return _in_shadow_mode(call)
    is_of_groups = call.service == "autoscaling" or call.operation in _GROUP_CALLS
    option = "nodeGroups" if is_of_groups else _OPTION_OF.get(call.name, "")
    if option and option not in options:
        return NOBODY
    roles = call.roles
    given = {f"{key}={value}" for key, value in options.items()}
    for option_value, name, changed in _WITH:
        if option_value in given and name == call.name:
            roles = changed(roles)
    return roles


def _in_shadow_mode(call: Call) -> frozenset[str]:
    shadow = {_SHADOW} if call.name in _MADE_IN_SHADOW_MODE else set()
    catalog = call.roles & {"catalog"} if call.name not in _OPTION_OF else NOBODY
    return catalog | shadow

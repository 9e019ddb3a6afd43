"""What a user can say with ``-c key=value``, as one validated value.

The cluster is known by name only: nothing is looked up while synthesising, so the template can be made anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Bundle = Literal["full", "source"]

KEYS = ("cluster", "clusters", "bundle", "nodeRole", "nodeRoles", "subnets", "securityGroups", "reservedConcurrency")
"""Every context key that means something here."""

# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
_CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")


class OptionError(ValueError):
    """A context value that can't be used; the text names the key, the value and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """One cluster's stack.

    ``bundle`` "source" leaves the functions' code out (the local world runs it from the checkout). ``node_role`` names
    an existing role for nodes instead of a new one, and ``node_roles`` others that node classes may name. ``subnets``
    and ``security_groups`` put the functions into a VPC, which a cluster whose endpoint is private needs. ``reserve``
    reserves concurrency, which a new account's quota may not have to give.
    """

    cluster: str
    bundle: Bundle = "full"
    node_role: str = ""
    node_roles: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    reserve: bool = True


def _names(context: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = context.get(key, ())
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return tuple(str(part) for part in value)
    raise OptionError(f"-c {key}={value}: must be names separated by commas")


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
    bundle = context.get("bundle") or "full"
    if bundle not in {"full", "source"}:
        raise OptionError(f"-c bundle={bundle}: must be full or source")
    reserve = str(context.get("reservedConcurrency", "true")).lower()
    if reserve not in {"true", "false"}:
        raise OptionError(f"-c reservedConcurrency={reserve}: must be true or false")
    subnets, security_groups = _names(context, "subnets"), _names(context, "securityGroups")
    if bool(subnets) != bool(security_groups):
        raise OptionError("-c subnets and -c securityGroups: the functions' VPC needs both")
    return Options(
        cluster=cluster,
        bundle="source" if bundle == "source" else "full",
        node_role=str(context.get("nodeRole", "")),
        node_roles=_names(context, "nodeRoles"),
        subnets=subnets,
        security_groups=security_groups,
        reserve=reserve == "true",
    )

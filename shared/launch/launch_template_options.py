"""What a class says in EC2's own words: CPU options, placement group, network interfaces, connection tracking.

The keys are EC2's (RequestLaunchTemplateData), in camel case. Anything else is told to the user by field, because EC2
would refuse the launch template with less to go by.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shared.api.duration import DurationError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.api.nodeclass import EC2NodeClassSpec

_CPU: dict[str, tuple[type, tuple[str, ...]]] = {
    "coreCount": (int, ()),
    "threadsPerCore": (int, ()),
    "amdSevSnp": (str, ("enabled", "disabled")),
    "nestedVirtualization": (str, ("enabled", "disabled")),
}
_GROUP: dict[str, tuple[type, tuple[str, ...]]] = {"name": (str, ()), "id": (str, ())}
_INTERFACE: dict[str, tuple[type, tuple[str, ...]]] = {
    "networkCardIndex": (int, ()),
    "deviceIndex": (int, ()),
    "interfaceType": (str, ("interface", "efa", "efa-only")),
}
_FABRIC = frozenset({"efa", "efa-only"})
_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")


class OptionError(ValueError):
    """A field of the class that EC2 would not take; the text names it and says what is allowed."""


def fields(spec: EC2NodeClassSpec) -> dict[str, Any]:
    """The launch template's CpuOptions and Placement, those that the class asks for.

    Raises:
        OptionError: a key or value that EC2 doesn't have.
    """
    found: dict[str, Any] = {}
    if spec.cpu_options:
        found["CpuOptions"] = _read(spec.cpu_options, _CPU, "spec.cpuOptions")
    if spec.placement_group_selector:
        group = _read(spec.placement_group_selector, _GROUP, "spec.placementGroupSelector")
        if len(group) != 1:
            raise OptionError("spec.placementGroupSelector takes either name or id")
        found["Placement"] = {f"Group{key}": value for key, value in group.items()}
    return found


def interfaces(
    spec: EC2NodeClassSpec, groups: Sequence[str], *, public: bool | None, fabric: int
) -> list[dict[str, Any]]:
    """The network interfaces that must be spelt out; none if EC2's own single one will do.

    The class's own ones count before those of ``fabric``, which is how many Elastic Fabric Adapters the claims want,
    one a network card. EC2 gives no public address to an instance with several interfaces.

    Raises:
        OptionError: a key or value that EC2 doesn't have.
    """
    found: list[dict[str, Any]] = [
        {"NetworkCardIndex": 0, "DeviceIndex": i, **_read(given, _INTERFACE, f"spec.networkInterfaces[{i}]")}
        for i, given in enumerate(spec.network_interfaces)
    ]
    if found:
        _check_interfaces(found)
    if not found and fabric:
        found = [{"NetworkCardIndex": i, "DeviceIndex": int(i > 0), "InterfaceType": "efa"} for i in range(fabric)]
    tracking = _tracking(spec.connection_tracking)
    if not found and (public is not None or tracking):
        found = [{"DeviceIndex": 0}]
    if len(found) == 1 and public is not None:
        found[0]["AssociatePublicIpAddress"] = public
    more = {"ConnectionTrackingSpecification": tracking} if tracking else {}
    return [{**nic, "Groups": list(groups), **more} for nic in found]


def _check_interfaces(found: Sequence[Mapping[str, Any]]) -> None:
    """What EC2 asks of several interfaces together (RunInstances, and Karpenter's EC2NodeClass)."""
    taken: set[tuple[int, int]] = set()
    fabric: set[int] = set()
    for i, nic in enumerate(found):
        card, device, kind = nic["NetworkCardIndex"], nic["DeviceIndex"], nic.get("InterfaceType", "interface")
        field = f"spec.networkInterfaces[{i}]"
        if card < 0 or device < 0:
            raise OptionError(f"{field}: networkCardIndex and deviceIndex must not be negative")
        if (card, device) in taken:
            raise OptionError(f"{field}: networkCardIndex {card} with deviceIndex {device} is there already")
        if (card, device) == (0, 0) and kind == "efa-only":
            raise OptionError(f'{field}.interfaceType is "efa-only", but the primary interface needs an address')
        if kind in _FABRIC and card in fabric:
            raise OptionError(f"{field}.interfaceType: network card {card} has an Elastic Fabric Adapter already")
        taken.add((card, device))
        if kind in _FABRIC:
            fabric.add(card)
    if (0, 0) not in taken:
        raise OptionError("spec.networkInterfaces has none with networkCardIndex 0 and deviceIndex 0, the primary one")


def _tracking(given: Mapping[str, Any] | None) -> dict[str, int]:
    """Timeouts in seconds; the class may write them as durations (1h) too."""
    found = {}
    for key, value in (given or {}).items():
        field = f"spec.connectionTracking.{key}"
        if key not in _TIMEOUTS:
            raise OptionError(f"{field} is not known; there are {', '.join(_TIMEOUTS)}")
        try:
            timeout = timedelta(seconds=value) if isinstance(value, int) else parse_duration(str(value))
        except DurationError as error:
            raise OptionError(f"{field}: {error}") from error
        if timeout is None:
            raise OptionError(f"{field}: it must end at some time")
        found[_upper(key)] = int(timeout.total_seconds())
    return found


def _read(given: Mapping[str, Any], known: Mapping[str, tuple[type, tuple[str, ...]]], field: str) -> dict[str, Any]:
    for key, value in given.items():
        if key not in known:
            raise OptionError(f"{field}.{key} is not known; there are {', '.join(known)}")
        kind, choices = known[key]
        if type(value) is not kind or (choices and value not in choices):
            wanted = f"one of {', '.join(choices)}" if choices else {int: "a whole number", str: "a text"}[kind]
            raise OptionError(f'{field}.{key} is "{value}", and must be {wanted}')
    return {_upper(key): value for key, value in given.items()}


def _upper(key: str) -> str:
    return key[0].upper() + key[1:]

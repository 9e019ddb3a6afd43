"""The kubelet's settings in a node class: any field of a KubeletConfiguration, of which Tenon reads twelve.

The object is kept as the user wrote it, because most of it is for the kubelet alone. ``maxPods`` and the values of
``kubeReserved`` and ``systemReserved`` may be expressions, which have another value on each instance type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shared.api.meta import ApiStruct, RawQuantities, describe
from shared.api.quantity import QuantityError, exact_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.api.json_types import Json

INVALID = "InvalidKubeletConfiguration"
UNSUPPORTED = "UnsupportedKubeletConfiguration"
EXPRESSION_INVALID = "KubeletExpressionInvalid"
EXPRESSION_FAILED = "KubeletExpressionEvaluationFailed"
"""Reasons of condition ValidationSucceeded."""


class KubeletError(ValueError):
    """A class's nodes can't have its settings: the reason of its condition, and a message with the field and value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


MAX_PODS = "maxPods"
RESERVED = ("kubeReserved", "systemReserved")
"""The settings that may have expressions."""

RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
EVICTION_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)


class Kubelet(ApiStruct):
    """Kubelet settings of the nodes."""

    max_pods: Annotated[int | None, describe("The maximum number of pods on a node.", minimum=0)] = None
    pods_per_core: Annotated[int | None, describe("The maximum number of pods on a node for each core.", minimum=0)] = (
        None
    )
    system_reserved: Annotated[RawQuantities, describe("Resources reserved for system daemons.")] = {}
    kube_reserved: Annotated[
        RawQuantities, describe("Resources reserved for the kubelet and the container runtime.")
    ] = {}
    eviction_hard: Annotated[
        dict[str, str], describe("Hard eviction thresholds: signal to quantity or percentage.")
    ] = {}
    eviction_soft: Annotated[
        dict[str, str], describe("Soft eviction thresholds: signal to quantity or percentage.")
    ] = {}
    eviction_soft_grace_period: Annotated[
        dict[str, str], describe("Grace periods of the soft eviction thresholds.")
    ] = {}
    eviction_max_pod_grace_period: Annotated[
        int | None, describe("The maximum grace period of pods in a soft eviction, in seconds.", minimum=0)
    ] = None
    image_gc_high_threshold_percent: Annotated[
        int | None, describe("The disk usage above which images are garbage-collected.", minimum=0, maximum=100)
    ] = msgspec.field(default=None, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: Annotated[
        int | None, describe("The disk usage down to which images are garbage-collected.", minimum=0, maximum=100)
    ] = msgspec.field(default=None, name="imageGCLowThresholdPercent")
    cpu_cfs_quota: Annotated[
        bool | None, describe("Whether CPU CFS quota is enforced for containers with CPU limits.")
    ] = msgspec.field(default=None, name="cpuCFSQuota")
    cluster_dns: Annotated[list[str], describe("IP addresses of the cluster's DNS servers.")] = msgspec.field(
        default_factory=list, name="clusterDNS"
    )


SETTINGS = frozenset(Kubelet.__struct_encode_fields__)
"""The settings that Tenon reads, and every AMI family's bootstrap maps."""


def without_nulls(value: Json) -> Json:
    """The value without what is null in it, which counts as absent."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value if inner is not None]
    return value


def kubelet_of(settings: Mapping[str, Any]) -> Kubelet:
    """The settings that Tenon reads; they are valid, and have values in place of expressions."""
    return msgspec.convert(without_nulls(dict(settings)), Kubelet)


def with_values(settings: dict[str, Any] | None, values: str) -> dict[str, Any] | None:
    """The settings with the values of their expressions, which are JSON; "" if they have none."""
    return {**(settings or {}), **msgspec.json.decode(values)} if values else settings


def is_expression(value: object) -> bool:
    """Whether a reserved amount is an expression: text that isn't a quantity."""
    if not isinstance(value, str):
        return False
    try:
        exact_quantity(value)
    except QuantityError:
        return True
    return False


def has_expressions(settings: Mapping[str, Any] | None) -> bool:
    """Whether a setting depends on the instance type.

    >>> has_expressions({"maxPods": "vcpus * 20"}), has_expressions({"kubeReserved": {"cpu": "100m"}})
    (True, False)
    """
    if not settings:
        return False
    reserved = (amount for name in RESERVED for amount in (settings.get(name) or {}).values())
    return isinstance(settings.get(MAX_PODS), str) or any(map(is_expression, reserved))

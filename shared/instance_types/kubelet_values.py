"""The kubelet settings that depend on the instance type: a class's expressions, and the pods that the VPC CNI serves.

Imported only where there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.kubelet import MAX_PODS, has_expressions
from shared.base.struct import with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from shared.ami_family.families import Family
    from shared.instance_types.catalog import Hardware
    from shared.instance_types.vpc_cni import VpcCni


def values_by_hardware(
    settings: Mapping[str, Any], family: Family, vpc_cni: VpcCni | None
) -> Callable[[Hardware], dict[str, Any]]:
    """By hardware: the settings with expressions, and ``maxPods`` where the VPC CNI decides it.

    Raises:
        KubeletError: an expression is invalid; from the result, if it has no value on a type.
    """

    def of_cni(hardware: Hardware) -> dict[str, Any]:
        max_pods = vpc_cni.max_pods(hardware) if vpc_cni is not None else None
        return {} if max_pods is None else {MAX_PODS: max_pods}

    if not has_expressions(settings):
        return of_cni
    from shared.instance_types.kubelet_expressions import compile_expressions  # noqa: PLC0415 (few classes have any)

    expressions = compile_expressions(settings)

    def values(hardware: Hardware) -> dict[str, Any]:
        own = of_cni(hardware)
        by_cni = with_fields(expressions, static_max_pods=own[MAX_PODS]) if own else expressions
        return {**own, **by_cni.values(hardware, family)}

    return values

"""The values of a class's kubelet expressions on each instance type.

``maxPods`` is computed first, so that reservations may depend on it. An expression has the unit in which users write a
setting (cpu milli-cores, memory MiB, ephemeral storage GiB), and reservations of cpu and memory are rounded up, so that
similar types share a launch template. Source: docs/facts/karpenter-1.15.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from shared.api.kubelet import (
    EXPRESSION_FAILED,
    EXPRESSION_INVALID,
    MAX_PODS,
    RESERVED,
    Kubelet,
    KubeletError,
    is_expression,
)
from shared.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY
from shared.base.struct import Struct
from shared.instance_types import allocatable
from shared.instance_types.cel import CompileError, Expression, compile_expression
from shared.instance_types.cel_arithmetic import INT, STRING, EvaluationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ami_family.families import Family
    from shared.instance_types.catalog import Hardware

VARIABLES = {
    "vcpus": INT,
    "memory_mib": INT,
    "default_enis": INT,
    "ips_per_eni": INT,
    "max_pods": INT,
    "instance_type": STRING,
}
"""The variables of expressions, and their types."""

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_UNITS = {CPU: (10, "m"), MEMORY: (16, "Mi"), EPHEMERAL_STORAGE: (1, "Gi")}
"""By resource: what a reserved amount is rounded up to, and its unit."""


class KubeletExpressions(Struct, kw_only=True):
    """The compiled expressions of a class: of maxPods, if it is one, and of reserved amounts by field and resource."""

    pods_per_core: int | None
    static_max_pods: int | None
    max_pods: Expression | None
    reserved: Mapping[str, Mapping[str, Expression | str]]

    def values(self, hardware: Hardware, family: Family) -> dict[str, Any]:
        """The settings that have expressions, with values in their place, for nodes of that type.

        Raises:
            KubeletError: an expression has no value there, or one out of range.
        """
        values: dict[str, Any] = {}
        settings = Kubelet(pods_per_core=self.pods_per_core, max_pods=self.static_max_pods)
        if self.max_pods is not None:
            variables = _variables(hardware, allocatable.pods(hardware, family, settings))
            max_pods = _evaluate(f"spec.kubelet.{MAX_PODS}", self.max_pods, variables, highest=_MAX_INT32)
            values[MAX_PODS] = max_pods
            settings = Kubelet(pods_per_core=self.pods_per_core, max_pods=max_pods)
        if self.reserved:
            variables = _variables(hardware, allocatable.pods(hardware, family, settings))
            for name, amounts in self.reserved.items():
                values[name] = {key: _reserved(name, key, amount, variables) for key, amount in amounts.items()}
        return values


def compile_expressions(settings: Mapping[str, Any]) -> KubeletExpressions:
    """The expressions of a class's settings.

    Raises:
        KubeletError: one is invalid.
    """
    max_pods = settings.get(MAX_PODS)
    reserved: dict[str, dict[str, Expression | str]] = {}
    for name in RESERVED:
        amounts = settings.get(name) or {}
        if any(map(is_expression, amounts.values())):
            reserved[name] = {
                key: _compile(f"spec.kubelet.{name}.{key}", amount) if is_expression(amount) else str(amount)
                for key, amount in amounts.items()
            }
    return KubeletExpressions(
        pods_per_core=settings.get("podsPerCore"),
        static_max_pods=None if isinstance(max_pods, str) else max_pods,
        max_pods=_compile(f"spec.kubelet.{MAX_PODS}", max_pods) if isinstance(max_pods, str) else None,
        reserved=reserved,
    )


def _compile(field: str, text: str) -> Expression:
    try:
        return compile_expression(text, VARIABLES)
    except CompileError as error:
        raise KubeletError(EXPRESSION_INVALID, f'{field}: "{text}" is no valid expression: {error}') from error


def _variables(hardware: Hardware, max_pods: int) -> dict[str, int | str]:
    return {
        "vcpus": hardware.vcpus,
        "memory_mib": hardware.memory_mib,
        "default_enis": hardware.interfaces,
        "ips_per_eni": hardware.addresses,
        "max_pods": max_pods,
        "instance_type": hardware.name,
    }


def _evaluate(field: str, expression: Expression, variables: Mapping[str, int | str], *, highest: int) -> int:
    at = f'{field}: "{expression.text}" on {variables["instance_type"]}'
    try:
        value = expression.evaluate(variables)
    except EvaluationError as error:
        raise KubeletError(EXPRESSION_FAILED, f"{at}: {error}") from error
    if not math.isfinite(value) or not 0 <= int(value) <= highest:
        raise KubeletError(EXPRESSION_FAILED, f"{at} is {value}; allowed is 0 to {highest}")
    return int(value)


def _reserved(name: str, key: str, amount: Expression | str, variables: Mapping[str, int | str]) -> str:
    if isinstance(amount, str):
        return amount
    value = _evaluate(f"spec.kubelet.{name}.{key}", amount, variables, highest=_MAX_INT64)
    step, unit = _UNITS.get(key, (1, ""))
    return f"{-(-value // step) * step}{unit}"

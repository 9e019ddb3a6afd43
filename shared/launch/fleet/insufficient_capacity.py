"""Retry after insufficient capacity: the NodeClaims without an instance are launched by the next capacity type.

Only when every offering of the plan has no capacity: scheduling again would find dearer offerings of the same capacity
type. Otherwise the NodeClaims fail, and their pods are scheduled again without the unavailable offerings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared.cloud_provider import LaunchFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.cloud_provider import LaunchResult
    from shared.launch.fleet.overrides import FleetPlan


def is_plan_exhausted(results: Sequence[LaunchResult], plan: FleetPlan) -> bool:
    """Whether NodeClaims got no instance, and errors show every offering of the plan to have no capacity."""
    unavailable = {offering for failure in capacity_failures(results).values() for offering in failure.unavailable}
    return bool(unavailable) and unavailable >= set(plan.offering_keys)


def capacity_failures(results: Sequence[LaunchResult]) -> dict[str, LaunchFailure]:
    """By NodeClaim: the failures for lack of capacity."""
    return {r.claim_name: r for r in results if isinstance(r, LaunchFailure) and r.kind == "capacity"}


def with_retried(results: Sequence[LaunchResult], retried: Mapping[str, LaunchResult]) -> list[LaunchResult]:
    """The results with those of a retry, each with the unavailable offerings of both attempts."""
    merged: list[LaunchResult] = []
    for result in results:
        retry = retried.get(result.claim_name)
        if retry is None:
            merged.append(result)
        else:
            merged.append(replace(retry, unavailable=tuple(sorted({*retry.unavailable, *result.unavailable}))))
    return merged

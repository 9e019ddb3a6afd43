"""Commitments of the account in a Region, and which instances run: what the catalog function stores, others read.

Only instances with Linux and shared tenancy count. Reservations of capacity without a discount (On-Demand Capacity
Reservations) are no commitments: their instances are billed as on demand, so commitments cover them as well.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from shared.base.struct import WireStruct, with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

InstanceKind = tuple[str, str]
"""Instance type, zone."""

PlanKind = Literal["EC2Instance", "Compute"]


class ReservedInstances(WireStruct, array_like=True, kw_only=True):
    """A purchase of ``count`` Reserved Instances, until ``ends``.

    ``zone`` is empty for a regional purchase, which covers other sizes of its family too, by normalization factors,
    except where AWS doesn't offer that. ``hourly`` is what one of them costs in USD per hour, upfront payments spread
    over the term.
    """

    id: str
    instance_type: str
    zone: str = ""
    count: int
    hourly: float = 0.0
    ends: datetime


class SavingsPlan(WireStruct, array_like=True, kw_only=True):
    """A Savings Plan of ``commitment`` USD per hour, until ``ends``.

    ``family`` is that of an EC2 Instance Savings Plan in this Region, empty for a Compute Savings Plan. ``rates`` are
    USD per hour of the commitment that an instance of the type uses.
    """

    id: str
    kind: PlanKind
    family: str = ""
    commitment: float
    rates: dict[str, float]
    ends: datetime


class Commitments(WireStruct, kw_only=True):
    """The active commitments, and the instances that run on demand, as of ``fetched_at`` (UTC).

    ``usage`` is by cluster, with "" for instances of no cluster: how many instances of a type run in a zone, as the key
    "type/zone". ``problem`` says which commitments couldn't be read and why; they are left out.
    """

    fetched_at: datetime
    reserved: tuple[ReservedInstances, ...] = ()
    plans: tuple[SavingsPlan, ...] = ()
    usage: dict[str, dict[str, int]] = {}
    problem: str = ""

    def usage_of(self, cluster: str) -> Mapping[InstanceKind, int]:
        """The instances of a cluster by type and zone."""
        return {_kind(key): count for key, count in self.usage.get(cluster, {}).items()}

    def active(self, now: datetime) -> Commitments:
        """Without those that have ended."""
        return with_fields(
            self,
            reserved=tuple(r for r in self.reserved if r.ends > now),
            plans=tuple(p for p in self.plans if p.ends > now),
        )


def _kind(key: str) -> InstanceKind:
    instance_type, _, zone = key.partition("/")
    return instance_type, zone

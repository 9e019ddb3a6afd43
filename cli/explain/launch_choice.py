"""Why a NodeClaim has its instance type: what it was planned for, and why cheaper offerings weren't bought.

The launch itself isn't recorded, so offerings are compared as they are now: by the same requirements, requests and
prices as the decision had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import terminal
from cli.explain.explanation import Check, Section
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.labels import offering_key
from shared.api.quantity import QuantityError, format_quantity, parse_resources
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.instance_types.instance_type import meets
from shared.launch.fleet.overrides import offering_labels
from shared.scheduling.nominations.planned_pods import planned_pods

if TYPE_CHECKING:
    from shared.api.nodeclaim import NodeClaim
    from shared.api.quantity import Resources
    from shared.cloud_provider import ResolvedNodePools
    from shared.instance_types.instance_type import InstanceType, Offering

_TOO_SMALL, _EXCLUDED, _UNAVAILABLE, _SUITS = "too small", "excluded by requirements", "without capacity", "suiting"


class _Choice(Struct, kw_only=True):
    """A NodeClaim with what it needs, its NodePool's instance types, and the offering that it has."""

    claim: NodeClaim
    requests: Resources
    types: tuple[InstanceType, ...]
    bought: Offering

    def cheaper(self) -> Check:
        """The offerings that are cheaper now, by what is in their way."""
        by_obstacle: dict[str, list[tuple[float, str]]] = {}
        for instance_type in self.types:
            for offering in instance_type.offerings:
                if offering.effective_price < self.bought.effective_price:
                    example = f"{instance_type.name} {offering.capacity_type}"
                    obstacle = self._obstacle(instance_type, offering)
                    by_obstacle.setdefault(obstacle, []).append((offering.effective_price, example))
        if not by_obstacle:
            return Check(name="cheaper", ok=True, detail="no offering of the NodePool is cheaper now")
        parts = [
            f"{plural(len(offerings), 'offering')} {obstacle} (such as {max(offerings)[1]})"
            for obstacle in (_TOO_SMALL, _EXCLUDED, _UNAVAILABLE, _SUITS)
            if (offerings := by_obstacle.get(obstacle))
        ]
        detail = f"now {', '.join(parts)}"
        if _SUITS in by_obstacle:
            detail += "; EC2 weighs free capacity against price, and prices change"
        return Check(name="cheaper", ok=_SUITS not in by_obstacle or None, detail=detail)

    def _obstacle(self, instance_type: InstanceType, offering: Offering) -> str:
        requirements = [r for r in self.claim.spec.requirements if r.key != names.INSTANCE_TYPE]
        if not meets(offering_labels(instance_type, offering), requirements):
            return _EXCLUDED
        if any(amount > instance_type.allocatable.get(name, 0) for name, amount in self.requests.items()):
            return _TOO_SMALL
        return _SUITS if offering.available else _UNAVAILABLE


def launch_choice(claim: NodeClaim, resolved_pools: ResolvedNodePools) -> tuple[Section, ...]:
    """The section on the choice of a launched NodeClaim's instance type; none before its launch."""
    if not claim.status.provider_id:
        return ()
    checks = [Check(name="needed", ok=None, detail=_needed(claim))]
    if planned := nodeclaim.planned_price(claim):
        detail = f"{terminal.usd(planned)}/h, the cheapest {_choice(claim)}"
        checks.append(Check(name="planned", ok=None, detail=detail))
    instance_type, zone, capacity_type = offering_key(claim.metadata.labels)
    types = resolved_pools.instance_types.get(claim.metadata.labels.get(names.NODEPOOL, ""), ())
    bought = next(
        (
            offering
            for t in types
            if t.name == instance_type
            for offering in t.offerings
            if (offering.zone, offering.capacity_type) == (zone, capacity_type)
        ),
        None,
    )
    if bought is not None:
        detail = f"{instance_type} {capacity_type} in {zone}, {terminal.usd(bought.instance_price)}/h now"
        choice = _Choice(claim=claim, requests=_requests(claim), types=types, bought=bought)
        checks += [Check(name="bought", ok=None, detail=detail), choice.cheaper()]
    return (Section(title="Why this instance type", checks=tuple(checks)),)


def _needed(claim: NodeClaim) -> str:
    pods = planned_pods(claim)
    amounts = ", ".join(f"{name} {format_quantity(name, amount)}" for name, amount in sorted(_requests(claim).items()))
    needed = plural(len(pods), "pod") if pods else "a node"
    if expected := claim.metadata.annotations.get(names.EXPECTED_PODS):
        needed += f" and room for {expected} more that are expected,"
    return f"{needed} with requests of {amounts or 'nothing'}"


def _choice(claim: NodeClaim) -> str:
    types = next((r.values for r in claim.spec.requirements if r.key == names.INSTANCE_TYPE), [])
    return f"of {plural(len(types), 'instance type')} that suit, of which EC2 chose" if len(types) > 1 else "that suits"


def _requests(claim: NodeClaim) -> Resources:
    """What the decision wanted of the node, its DaemonSets included; empty if that can't be read."""
    try:
        return parse_resources(claim.spec.resources.requests)
    except QuantityError:
        return {}

"""Problems of a NodeClaim, which Tenon writes itself but which anybody may have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api import legacy, nodeclass
from shared.api.validation import constraints, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.nodeclaim import NodeClaim


def problems(claim: NodeClaim) -> Iterator[str]:
    """Every problem, in the order of the fields."""
    spec = claim.spec
    if not claim.name:
        yield "metadata.name: is missing"
    kinds = (nodeclass.KIND, legacy.TEMPLATE_KIND)
    yield from constraints.node_class_ref("spec.nodeClassRef", spec.node_class_ref, kinds)
    yield from constraints.requirements("spec.requirements", spec.requirements, nodepool_allowed=True)
    yield from scalars.quantities("spec.resources.requests", spec.resources.requests)
    yield from constraints.both_taints("spec", spec.taints, spec.startup_taints)
    yield from scalars.duration("spec.expireAfter", spec.expire_after, never=True)
    yield from scalars.duration("spec.terminationGracePeriod", spec.termination_grace_period)

"""NodeOverlay of karpenter.sh/v1alpha1: other prices and more resources of instance types than AWS's, in decisions.

The upstream API (docs/facts/capacity-buffers-and-overlays.md). :mod:`shared.instance_types.overlays` applies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from shared.api import admission_rules
from shared.api.kubernetes import LabelRequirement
from shared.api.meta import ApiStruct, Condition, NamedObject, ObjectRef, RawQuantities, describe
from shared.api.nodepool import MAX_REQUIREMENTS
from shared.api.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

API_VERSION = "karpenter.sh/v1alpha1"
KIND = "NodeOverlay"

MAX_WEIGHT = 10_000
PRICE = r"^\d+(\.\d+)?$"
PRICE_ADJUSTMENT = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(-\d{1,2}(\.\d+)?%)|(-100%))$"
"""A signed amount or percentage; nothing costs less than 100 % less."""
STANDARD_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""What an overlay can't change: AWS and the kubelet say how much of it a node has."""


class NodeOverlaySpec(ApiStruct):
    """Which instance types and offerings an overlay changes, and how."""

    requirements: Annotated[
        list[LabelRequirement],
        describe(
            "The labels of the instance types, offerings and NodePools that are changed: well-known labels, "
            "karpenter.sh/nodepool, and labels of the NodePools' templates. All must be met; without any, all are "
            "changed.",
            required=True,
            maxItems=MAX_REQUIREMENTS,
            rules=admission_rules.OVERLAY_REQUIREMENTS,
        ),
    ] = []
    price: Annotated[
        str | None,
        describe("The price in USD per hour, instead of AWS's; not together with priceAdjustment.", pattern=PRICE),
    ] = None
    price_adjustment: Annotated[
        str | None,
        describe(
            "What is added to AWS's price: an amount in USD per hour, such as +0.5, or a percentage, such as -15%.",
            pattern=PRICE_ADJUSTMENT,
        ),
    ] = None
    capacity: Annotated[
        RawQuantities,
        describe(
            "Extended resources that the nodes have besides those that AWS says; not cpu, memory, ephemeral-storage "
            "and pods.",
            rules=admission_rules.OVERLAY_CAPACITY,
        ),
    ] = {}
    weight: Annotated[
        int | None,
        describe(
            "Overlays with a higher weight take precedence; without a weight it is 0.", minimum=1, maximum=MAX_WEIGHT
        ),
    ] = None


class NodeOverlayStatus(ApiStruct):
    """Whether an overlay is valid and applied."""

    conditions: Annotated[list[Condition], describe("The conditions of the NodeOverlay.")] = []


class NodeOverlay(NamedObject):
    """Prices and extended resources of instance types for decisions, where AWS's don't say what holds for the user."""

    spec: Annotated[
        NodeOverlaySpec,
        describe(
            "What the overlay changes.",
            required=True,
            rules=(("!has(self.price) || !has(self.priceAdjustment)", "price and priceAdjustment can't both be set"),),
        ),
    ] = NodeOverlaySpec()
    status: Annotated[NodeOverlayStatus, describe("The state of the overlay.")] = NodeOverlayStatus()
    kind: str = KIND
    api_version: str = API_VERSION

    @property
    def ref(self) -> ObjectRef:
        """For events and messages."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=self.name, uid=self.metadata.uid)

    @property
    def weight(self) -> int:
        """The weight; 0 if it has none."""
        return self.spec.weight or 0

    @property
    def price_change(self) -> str | None:
        """``price`` or ``priceAdjustment``, whichever is set: both are the same field in conflicts."""
        return self.spec.price if self.spec.price is not None else self.spec.price_adjustment


def by_precedence(overlays: Iterable[NodeOverlay]) -> list[NodeOverlay]:
    """The overlays in the order in which they apply: by weight, and by name, the later in the alphabet first."""
    return sorted(overlays, key=lambda o: (o.weight, o.name), reverse=True)

"""Validation of NodeOverlays: what their definition can't refuse, and what another definition let in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.api.node_overlay import MAX_WEIGHT, PRICE, PRICE_ADJUSTMENT, STANDARD_RESOURCES
from shared.api.validation import fields
from shared.api.validation.fields import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.api.node_overlay import NodeOverlay, NodeOverlaySpec

_PRICE = re.compile(PRICE, re.ASCII)
_PRICE_ADJUSTMENT = re.compile(PRICE_ADJUSTMENT, re.ASCII)


def validate_node_overlay(overlay: NodeOverlay) -> Iterator[str]:
    """The problems of a NodeOverlay, in the order of its fields."""
    spec = overlay.spec
    if not overlay.name:
        yield "metadata.name: is missing"
    yield from fields.requirements("spec.requirements", spec.requirements, of_node_claim=True)
    yield from _price(spec)
    for name, amount in spec.capacity.items():
        if name in STANDARD_RESOURCES:
            yield f"spec.capacity.{name}: is not allowed; allowed are extended resources only"
        else:
            yield from fields.quantity(f"spec.capacity.{name}", name, amount)
    yield from fields.within("spec.weight", spec.weight, 1, MAX_WEIGHT)


def _price(spec: NodeOverlaySpec) -> Iterator[str]:
    if spec.price is not None and spec.price_adjustment is not None:
        yield "spec.price, spec.priceAdjustment: both are set; allowed is one of them"
    if spec.price is not None and not _PRICE.fullmatch(spec.price):
        yield f'spec.price: {quoted(spec.price)} is not allowed; allowed is an amount in USD per hour such as "0.25"'
    if spec.price_adjustment is not None and not _PRICE_ADJUSTMENT.fullmatch(spec.price_adjustment):
        yield (
            f"spec.priceAdjustment: {quoted(spec.price_adjustment)} is not allowed; allowed are a signed amount such "
            f'as "+0.5" or "-0.02", and a signed percentage such as "+10%" or "-15%", at least "-100%"'
        )

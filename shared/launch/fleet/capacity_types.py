"""The order in which capacity types are launched: reserved, then spot, then on-demand, as in Karpenter."""

from __future__ import annotations

from shared.api import labels

LAUNCH_ORDER = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)


def launch_order(*, after: str = "") -> tuple[str, ...]:
    """The capacity types in the order in which they are tried, those after ``after`` only (empty: all)."""
    return LAUNCH_ORDER[LAUNCH_ORDER.index(after) + 1 :] if after else LAUNCH_ORDER

"""The order in which capacity types are launched: Karpenter's, reserved, then spot, then on-demand."""

from __future__ import annotations

from shared.api import labels

LAUNCH_ORDER = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)
"""A launch without capacity of one type tries the next, if the NodeClaims allow it."""

"""What a batch came to, for its log line and metrics."""

from __future__ import annotations

from collections import Counter
from typing import Literal

Counted = Literal[
    "given_up", "marked", "moved", "cordoned", "replacements",
    "foreign", "stale", "doubled", "contradicted", "malformed",
]  # fmt: skip
"""Machines, but for ``foreign``, ``stale``, ``doubled``, ``contradicted`` and ``malformed``, which are messages."""
Report = Counter[Counted]

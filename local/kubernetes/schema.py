"""Structural schemas: prune, default and judge a custom object as an apiserver does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local.kubernetes.errors import Cause
    from local.kubernetes.table import Obj


class Schema:
    """One version's ``openAPIV3Schema``."""

    def __init__(self, raw: Obj) -> None:
        self.raw = raw

    def complete(self, obj: Obj) -> None:
        """Prune what the schema does not know and fill in its defaults, in place."""

    def faults(self, new: Obj, old: Obj | None) -> list[Cause]:
        """What breaks the schema or its rules."""
        del new, old
        return []

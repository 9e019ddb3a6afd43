"""What Tenon does with each published field: decisions/*.yaml, and how they are matched with the fields.

Of each kind, the decisions stand in three groups:

- ``read``: by the file of ours that reads the fields;
- ``unsupported``: by what names them to the user;
- ``ignored``: by the reason why they don't matter.

``some.prefix.*`` decides all fields below the prefix. It must not stand under ``read``, and hides fields that new
versions add: so it is used only where everything below is of one purpose. A field that leads to a shared type needs no
decision.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docs.fields.schemas import Field

Group = Literal["read", "unsupported", "ignored"]
GROUPS: tuple[Group, ...] = ("read", "unsupported", "ignored")
_DECISIONS = Path(__file__).parent / "decisions"


class Decision(Struct):
    """What is done with a field, or with all fields below a prefix; ``why`` is a file for ``read``, else a sentence."""

    kind: str
    pattern: str
    group: Group
    why: str

    def covers(self, field: Field) -> bool:
        """Whether the decision is about the field."""
        if field.kind != self.kind:
            return False
        return field.path == self.pattern or (
            self.pattern.endswith(".*") and field.path.startswith(self.pattern.removesuffix("*"))
        )


@cache
def _documents() -> tuple[dict[str, Any], ...]:
    """The contents of the files of decisions, in the order of their names."""
    return tuple(yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(_DECISIONS.glob("*.yaml")))


@cache
def decisions() -> tuple[Decision, ...]:
    """All decisions, in the order of their files."""
    return tuple(
        Decision(kind, pattern, group, why)
        for document in _documents()
        for kind, groups in document.items()
        for group in GROUPS
        for why, patterns in groups.get(group, {}).items()
        for pattern in patterns
    )


@cache
def kinds() -> frozenset[str]:
    """The kinds and shared types with decisions, of which those without fields of their own have none."""
    return frozenset(kind for document in _documents() for kind in document)


def deciding(field: Field) -> tuple[Decision, ...]:
    """The decisions about the field: exactly one, if the ledger is right."""
    return tuple(d for d in decisions() if d.covers(field))


def undecided(fields: Iterable[Field]) -> list[str]:
    """The fields that nobody has decided about, as ``Kind path``."""
    known = kinds()
    return [f"{f.kind} {f.path}" for f in fields if not deciding(f) and f.type not in known]

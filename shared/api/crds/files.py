"""The text of a definition's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from shared.api.crds.definitions import Definition

_HEAD = "# Made from the structs in shared/api by `python -m shared.api.crds`; change those, not this.\n---\n"


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice out twice: anchors are hard to read, and some tools refuse them."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (the base class's signature)
        return True


def text(definition: Definition) -> str:
    """YAML, keys in order, the same for the same structs."""
    return _HEAD + yaml.dump(definition.as_json(), Dumper=_Plain, sort_keys=True, width=118, allow_unicode=True)

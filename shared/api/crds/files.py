"""The text of a definition's file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.yaml_documents import writer

if TYPE_CHECKING:
    from shared.api.crds.definitions import Definition

_HEAD = "# Made from the structs in shared/api by `python -m shared.api.crds`; change those, not this.\n---\n"


def text(definition: Definition) -> str:
    """YAML, keys in order, the same for the same structs."""
    return _HEAD + writer.text(definition.as_json(), sort_keys=True, width=118)

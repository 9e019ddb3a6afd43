"""The file of NodePools that shadow mode decides with (``-c shadowPools``), validated as the API server would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions.shadow.settings import pack
from shared.api.yaml_documents import reader
from shared.cluster.snapshot_reader import convert_node_classes, convert_node_pools

if TYPE_CHECKING:
    from pathlib import Path

MAX_CHARACTERS = 3000
"""Of the packed objects: a function's environment has 4 KB for all of its variables."""
_POOLS = frozenset({"NodePool", "Provisioner"})


class PoolsError(ValueError):
    """The file can't be used; the text says why."""


def read(path: Path) -> tuple[dict[str, Any], ...]:
    """The NodePools and node classes of a file of YAML documents.

    Raises:
        PoolsError: the file can't be read, has no NodePool, or an invalid object, or is too large.
    """
    documents = _documents(path)
    pools = [document for document in documents if document.get("kind") in _POOLS]
    classes = [document for document in documents if document.get("kind") not in _POOLS]
    if not pools or not classes:
        raise PoolsError("must have NodePools, and their node classes")
    invalid = (*convert_node_pools(pools)[1], *convert_node_classes(classes)[1])
    problems = [f"{obj.ref}: {problem}" for obj in invalid for problem in obj.problems]
    if problems:
        raise PoolsError("; ".join(problems))
    if len(pack(documents)) > MAX_CHARACTERS:
        raise PoolsError(f"is too large: packed it may have {MAX_CHARACTERS} characters")
    return tuple(documents)


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        documents = reader.documents(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, reader.YamlError) as error:
        raise PoolsError(f"can't be read: {error}") from error
    if not all(isinstance(document, dict) for document in documents):
        raise PoolsError("must have objects of Kubernetes")
    return documents

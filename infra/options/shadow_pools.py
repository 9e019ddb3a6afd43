"""The file of NodePools that shadow mode decides with (``-c shadowPools``), validated as the API server would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from functions.shadow.settings import pack
from infra.options.rules import OptionError
from shared.api.yaml_documents import reader
from shared.cluster.snapshot_reader import convert_node_classes, convert_node_pools

MAX_CHARACTERS = 3000
"""Of the packed objects: a function's environment has 4 KB for all of its variables."""
_POOLS = frozenset({"NodePool", "Provisioner"})


def read(path: object, option: str) -> tuple[dict[str, Any], ...]:
    """The NodePools and node classes of a file of YAML documents; none without a file.

    Raises:
        OptionError: the file can't be read, has no NodePool, or an invalid object, or is too large.
    """
    if not str(path):
        return ()
    try:
        documents = reader.documents(Path(str(path)).read_text(encoding="utf-8"))
    except (OSError, UnicodeError, reader.YamlError) as error:
        raise OptionError(f"{option}={path}: can't be read: {error}") from error
    if problem := _problem(documents):
        raise OptionError(f"{option}={path}: {problem}")
    return tuple(documents)


def _problem(documents: list[Any]) -> str:
    """Why shadow mode can't use the documents; empty if it can."""
    if not all(isinstance(document, dict) for document in documents):
        return "must have objects of Kubernetes"
    pools = [document for document in documents if document.get("kind") in _POOLS]
    classes = [document for document in documents if document.get("kind") not in _POOLS]
    if not pools or not classes:
        return "must have NodePools, and their node classes"
    invalid = (*convert_node_pools(pools)[1], *convert_node_classes(classes)[1])
    if problems := [f"{obj.ref}: {problem}" for obj in invalid for problem in obj.problems]:
        return "; ".join(problems)
    return (
        f"is too large: packed it may have {MAX_CHARACTERS} characters" if len(pack(documents)) > MAX_CHARACTERS else ""
    )

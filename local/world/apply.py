"""``kubectl apply`` without kubectl: objects from files or values, created or replaced in the store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.api.yaml_documents import reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local.kubernetes.objects import Obj
    from local.kubernetes.registry.store import Store

_CLUSTER_PLACEHOLDER = re.compile(r"\bCLUSTER\b")


def read_objects(
    source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]], *, cluster: str
) -> list[Mapping[str, Any]]:
    """The objects of a YAML file, in which CLUSTER stands for the cluster's name; or one object, or several."""
    if isinstance(source, (str, Path)):
        text = _CLUSTER_PLACEHOLDER.sub(cluster, Path(source).read_text())
        return reader.documents(text)
    return [source] if hasattr(source, "keys") else list(source)  # type: ignore[list-item]  # a mapping has keys


def apply_object(store: Store, obj: Mapping[str, Any]) -> Obj:
    """Create or replace the object, and return it as stored.

    Raises:
        ApiError: the API refuses it.
    """
    kind = store.kind(obj["apiVersion"], obj["kind"])
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    if kind.namespaced:
        namespace = namespace or "default"
    current = store.find(kind, name, namespace=namespace)
    if current is None:
        return store.create(kind, obj, namespace=namespace)
    # Fields that are no longer given are removed, as by kubectl; the cluster's own metadata stays.
    metadata = {**current["metadata"], **obj["metadata"], "namespace": namespace}
    return store.replace(kind, {**current, **obj, "metadata": metadata})

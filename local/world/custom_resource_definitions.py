"""The CustomResourceDefinitions that a world applies, read once per process: YAML takes a tenth of a world's start."""

from __future__ import annotations

import functools
import pickle
from typing import TYPE_CHECKING

from infra.cluster.kubernetes import cluster_manifests

if TYPE_CHECKING:
    from local.kubernetes.objects import Obj


def load() -> list[Obj]:
    """A copy of the caller's own."""
    definitions: list[Obj] = pickle.loads(_pickled())  # noqa: S301 - pickled below
    return definitions


@functools.cache
def _pickled() -> bytes:
    return pickle.dumps(cluster_manifests.kinds(), pickle.HIGHEST_PROTOCOL)

"""Runs ``tenon explain``: reads a cluster, and prints what it says about one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster.observed_cluster import as_decided
from cli.cluster.reader import open_cluster
from cli.explain import (
    capacity_buffers,
    explanation,
    json_explanation,
    node_claims,
    node_groups,
    node_overlays,
    node_pools,
    nodes,
    pods,
)
from cli.printable import echo
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference
    from cli.cluster.observed_cluster import ObservedCluster
    from cli.explain.explanation import Explanation

_EXPLAIN: Mapping[str, Callable[[ObservedCluster, str], Explanation]] = {
    "pod": pods.explain,
    "buffer": capacity_buffers.explain,
    "node": nodes.explain,
    "nodepool": node_pools.explain,
    "nodeclaim": node_claims.explain,
    "nodegroup": node_groups.explain,
    "nodeoverlay": node_overlays.explain,
}
_AS_OBSERVED = {"node", "nodeclaim"}
"""Kinds whose explanation is of the cluster as it is, and not as decisions see it."""


def run(
    resource: str, name: str, files: Sequence[Path] | None, reference: ClusterReference, *, aws: bool, as_json: bool
) -> None:
    """Print the explanation of the object; ``resource`` is its kind in lower case."""
    with open_cluster(files, reference, aws=aws) as observed:
        with progress("Explaining"):
            result = _EXPLAIN[resource](observed if resource in _AS_OBSERVED else as_decided(observed), name)
        notes = (*observed.pauses, *observed.notes)
        if as_json:
            echo(json_output.text("explain", json_explanation.output(result, notes)))
        else:
            explanation.show(terminal.console(), result, now=observed.now, notes=notes)

"""The metric of what namespaces cost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.export import families
from cli.export.exposition import Sample, sample
from cli.nodes.cost_allocation import UNITS, allocate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cli.nodes.rows import Row
    from shared.api.kubernetes import Pod


def samples(rows: Iterable[Row], pods: Iterable[Pod], *, label: str) -> Iterator[Sample]:
    """USD per hour of each share of the nodes, by the value of the pods' label of this name, too, if it isn't ""."""
    for share in allocate(rows, pods, label=label):
        cost = share.cost / UNITS
        yield sample(families.NAMESPACE_COST, cost, share=share.share, namespace=share.namespace, label=share.value)

"""Samples as ``prometheus_client`` families, from which it writes the text and the OpenMetrics format."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest

from cli.export import families
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cli.export.families import Family


class Sample(Struct):
    """A value of a family. ``labels`` without empty values, which Prometheus takes for missing labels.

    ``suffix`` is ``_sum`` or ``_count`` of a summary.
    """

    family: Family
    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


def sample(family: Family, value: float, *, suffix: str = "", **labels: str) -> Sample:
    """A sample with these labels, without those that are empty."""
    return Sample(family, value, {name: text for name, text in labels.items() if text}, suffix)


class Exposition:
    """A collector of ``prometheus_client`` that reads samples each time it is collected."""

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """The families that have samples, in the order of ``families.ALL``."""
        by_name: dict[str, list[Sample]] = defaultdict(list)
        for each in self._samples():
            by_name[each.family.name].append(each)
        for family in families.ALL:
            if present := by_name.get(family.name):
                yield _metric(family, present)

    def text(self) -> str:
        """The classic text format, which node_exporter's textfile collector reads too."""
        return generate_latest(self).decode()


def _metric(family: Family, samples: Iterable[Sample]) -> Metric:
    is_counter = family.kind == "counter"
    base = family.name.removesuffix("_total") if is_counter else family.name
    metric = Metric(base, family.description, family.kind)
    for each in samples:
        name = f"{base}_total" if is_counter else f"{base}{each.suffix}"
        metric.add_sample(name, dict(each.labels), each.value)
    return metric

"""Which rows ``tenon nodes`` shows, and in which order: label selector, NodePools, filters, text, sort order.

The options are parsed before the cluster is read, so that a mistake in them is reported at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.errors import UsageError
from cli.nearest import suggestion
from cli.nodes import rows as states
from cli.nodes.rows import SORT_KEYS, STANDBY_STATES
from local.kubernetes.errors import ApiError
from local.kubernetes.selectors import matches, parse_labels
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cli.nodes.rows import NodeRows, Row

_NOT_JOINED = frozenset({states.PENDING, states.LAUNCHED, states.INITIALIZING})
_WITHOUT_PODS = _NOT_JOINED | frozenset(STANDBY_STATES.values())
"""States in which a node has no pods yet, or by intent."""
PREDICATES: dict[str, Callable[[Row], bool]] = {
    "not-ready": lambda r: r.state == states.NOT_READY or r.state in _NOT_JOINED,
    "disrupting": lambda r: bool(r.why) or r.state in {states.DISRUPTING, states.REMOVING},
    "empty": lambda r: not r.pods and not r.chunks and r.state not in _WITHOUT_PODS,
    "drifted": lambda r: r.state == states.DRIFTED,
    "cordoned": lambda r: r.state == states.CORDONED,
    "spot": lambda r: r.capacity_type == "spot",
    "on-demand": lambda r: r.capacity_type == "on-demand",
    "reserved": lambda r: r.capacity_type == "reserved",
}
"""By name of ``--filter``."""


class Selection(Struct, kw_only=True):
    """Rows that meet every condition, sorted by ``sort`` (descending after a -).

    ``pools`` are NodePools or node groups, any if empty. ``text`` is part of a name or another shown value.
    ``label_columns`` are the labels that are shown.
    """

    labels: Any
    pools: frozenset[str]
    filters: tuple[str, ...]
    sort: str
    label_columns: tuple[str, ...] = ()
    text: str = ""

    def with_text(self, text: str) -> Selection:
        """The same for another text."""
        return with_fields(self, text=text)

    def of(self, rows: NodeRows) -> list[Row]:
        """The selected rows in their order."""
        text = self.text.lower()
        selected = [row for row in rows.rows if self._holds(row) and (not text or text in self._searched(row))]
        return sorted(selected, key=SORT_KEYS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))

    def check_pools(self, known: Iterable[str]) -> None:
        """Check that the NodePools exist.

        Raises:
            UsageError: there is no NodePool or node group of that name.
        """
        known = set(known)
        for name in sorted(self.pools - known):
            raise UsageError(f'--nodepool: there is no NodePool "{name}"{suggestion(name, known)}')

    def _holds(self, row: Row) -> bool:
        if self.pools and row.pool not in self.pools and row.group not in self.pools:
            return False
        return matches(self.labels, row.labels) and all(PREDICATES[name](row) for name in self.filters)

    def _searched(self, row: Row) -> str:
        labels = (row.labels.get(key, "") for key in self.label_columns)
        shown = (row.name, row.pool, row.group, row.instance_type, row.zone, row.capacity_type, row.state, *labels)
        return "\n".join(shown).lower()


def parse(
    *, selector: str, pools: Sequence[str], filters: Sequence[str], sort: str, label_columns: Sequence[str]
) -> Selection:
    """The selection of these options.

    Raises:
        UsageError: an option isn't valid.
    """
    if sort.removeprefix("-") not in SORT_KEYS:
        raise UsageError(f'--sort "{sort}" is none of {", ".join(SORT_KEYS)}{suggestion(sort, SORT_KEYS)}')
    for name in filters:
        if name not in PREDICATES:
            raise UsageError(f'--filter "{name}" is none of {", ".join(PREDICATES)}{suggestion(name, PREDICATES)}')
    try:
        labels = parse_labels(selector)
    except ApiError as error:
        raise UsageError(f'--selector "{selector}" is not a label selector: {error.message}') from error
    return Selection(
        labels=labels, pools=frozenset(pools), filters=tuple(filters), sort=sort, label_columns=tuple(label_columns)
    )

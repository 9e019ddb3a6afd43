"""How node groups are scaled: the options of Cluster Autoscaler, by the names of its flags.

They are the data of ConfigMap ``kube-system/tenon-node-groups``, which the functions read in each run, so a change
needs no deployment. An option that can't be read keeps its default, and is reported as a problem. Pure.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.api.duration import DurationError, parse_duration
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONFIG_MAP = "tenon-node-groups"
"""The ConfigMap's name, in namespace kube-system."""
PREFER = "tenon.sh/prefer"
"""The ConfigMap's annotation for what grows first where both would do: ``node-groups`` or ``pools``."""
SCALE_DOWN = "tenon.sh/scale-down"
"""The ConfigMap's annotation for the rules of scale-down: ``cluster-autoscaler`` or ``consolidation``."""
CONSOLIDATION = "consolidation"
RULES = ("cluster-autoscaler", CONSOLIDATION)
EXPANDERS = ("price", "least-waste", "most-pods", "priority", "random")
PREFERENCES = ("node-groups", "pools")
_SHARE = re.compile(r"0(\.\d{1,6})?|1(\.0{1,6})?")
_PERMILLE = 1000
_BOOLEANS = {"true": True, "false": False}


class NodeGroupOptions(Struct, kw_only=True):
    """The options, with Cluster Autoscaler's defaults. The utilization threshold is in thousandths.

    ``expander``: in this order, the next decides where one leaves several groups; empty: the cheapest.
    ``prefer``: what grows first, "" whatever is cheaper. ``consolidates``: nodes go by the rules of NodePools, whatever
    their utilization.
    ``groups`` are the names of the groups to scale; empty: all that are discovered by their tags.
    """

    expander: tuple[str, ...] = ()
    prefer: str = ""
    consolidates: bool = False
    groups: tuple[str, ...] = ()
    max_nodes_total: int | None = None
    max_node_provision_time: timedelta = timedelta(minutes=15)
    initial_node_group_backoff_duration: timedelta = timedelta(minutes=5)
    max_node_group_backoff_duration: timedelta = timedelta(minutes=30)
    scale_down_enabled: bool = True
    scale_down_utilization_threshold: int = 500
    scale_down_unneeded_time: timedelta = timedelta(minutes=10)
    scale_down_unready_enabled: bool = True
    scale_down_unready_time: timedelta = timedelta(minutes=20)
    scale_down_delay_after_add: timedelta = timedelta(minutes=10)
    scale_down_delay_after_delete: timedelta = timedelta()
    scale_down_delay_after_failure: timedelta = timedelta(minutes=3)
    max_empty_bulk_delete: int = 10
    max_drain_parallelism: int = 1
    max_graceful_termination_sec: int = 600
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    ignore_daemonsets_utilization: bool = False


def parse(data: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[NodeGroupOptions, tuple[str, ...]]:
    """The options of a ConfigMap, and what is wrong with others."""
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, text in sorted(data.items()):
        read = FLAGS.get(name)
        if read is None:
            problems.append(f'option "{name}" is unknown')
            continue
        try:
            values[name.replace("-", "_")] = read(text.strip())
        except (ValueError, DurationError) as error:
            problems.append(f"option {name}: {error}")
    chosen = {}
    for name, allowed in ((PREFER, PREFERENCES), (SCALE_DOWN, RULES)):
        chosen[name] = annotations.get(name, "")
        if chosen[name] and chosen[name] not in allowed:
            problems.append(f'annotation {name}: "{chosen[name]}" is unknown; allowed is {", ".join(allowed)}')
            chosen[name] = ""
    consolidates = chosen[SCALE_DOWN] == CONSOLIDATION
    return with_fields(NodeGroupOptions(), **values, prefer=chosen[PREFER], consolidates=consolidates), tuple(problems)


def _expander(text: str) -> tuple[str, ...]:
    return tuple(_one_of(*EXPANDERS)(name.strip()) for name in text.split(",")) if text else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",")} - {""}))


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f'"{text}" is unknown; allowed is {", ".join(allowed)}')
        return text

    return read


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError(f'"{text}" is neither true nor false')
    return _BOOLEANS[text]


def parse_share(text: str) -> int:
    """A share from 0 to 1, in thousandths.

    Raises:
        ValueError: the text is something else; the message names it.
    """
    if not _SHARE.fullmatch(text):
        raise ValueError(f'"{text}" is not a share from 0 to 1')
    return round(float(text) * _PERMILLE)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError(f'"{text}" is not a number of 0 or more')
    return int(text)


def _total(text: str) -> int | None:
    """A limit; 0 is none, as for Cluster Autoscaler."""
    return _count(text) or None


def _duration(text: str) -> timedelta:
    duration = parse_duration(text)
    if duration is None:
        raise ValueError(f'"{text}" is not a duration')
    return duration


FLAGS: Mapping[str, Callable[[str], object]] = {
    "expander": _expander,
    "groups": _names,
    "max-nodes-total": _total,
    "max-node-provision-time": _duration,
    "initial-node-group-backoff-duration": _duration,
    "max-node-group-backoff-duration": _duration,
    "scale-down-enabled": _boolean,
    "scale-down-utilization-threshold": parse_share,
    "scale-down-unneeded-time": _duration,
    "scale-down-unready-enabled": _boolean,
    "scale-down-unready-time": _duration,
    "scale-down-delay-after-add": _duration,
    "scale-down-delay-after-delete": _duration,
    "scale-down-delay-after-failure": _duration,
    "max-empty-bulk-delete": _count,
    "max-drain-parallelism": _count,
    "max-graceful-termination-sec": _count,
    "skip-nodes-with-local-storage": _boolean,
    "skip-nodes-with-system-pods": _boolean,
    "skip-nodes-with-custom-controller-pods": _boolean,
    "ignore-daemonsets-utilization": _boolean,
}
"""How each option is read; all but ``groups`` are flags of Cluster Autoscaler."""

"""What users write in annotations and fields: read, and used as decisions use it."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from functions.interruption.deadline import current_deadline, earlier_deadline
from shared.api import (
    buffer_signals,
    capacity_demand,
    pause,
    reboot,
    selectors,
    spot,
    spot_share,
)
from shared.api import labels as names
from shared.api.cron import parse_cron
from shared.api.duration import parse_duration
from shared.api.hourly_limits import HourlyUse
from shared.api.hourly_limits import read_last_hour as read_hour
from shared.api.kubernetes import Pod
from shared.api.meta import ObjectMeta, parse_timestamp
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.api.quantity import parse_quantity
from shared.api.time_windows import parse_window
from shared.disruption import disruption_windows, repair_limit
from shared.instance_types.cel import compile_expression
from shared.instance_types.kubelet_expressions import VARIABLES
from shared.node_groups import expander, options, status
from shared.termination import requeue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def metadata(annotations: Mapping[str, str]) -> ObjectMeta:
    return ObjectMeta(name="web", namespace="default", creation_timestamp=NOW, annotations=dict(annotations))


def pool_with(key: str) -> Callable[[str], NodePool]:
    return lambda text: NodePool(metadata=metadata({key: text}))


def claim_with(key: str) -> Callable[[str], NodeClaim]:
    return lambda text: NodeClaim(metadata=metadata({key: text}))


# --- values of users ---


def read_pause(text: str) -> object:
    paused = pause.read_pause({names.PAUSED: text, names.PAUSED_AT: text}, now=NOW)
    return paused is not None and paused.message


def read_timestamp(text: str) -> object:
    time = parse_timestamp(text)
    return time is not None and [time - timedelta(days=400), time + timedelta(days=400), f"{time:%Y-%m-%d}"]


def read_window(text: str) -> object:
    window = parse_window(text)
    return [window.is_open(NOW), window.opens_after(NOW)]


def read_windows(text: str) -> object:
    return [disruption_windows.closed(text, reason, NOW) for reason in ("Drifted", "")]


def read_schedule(text: str) -> object:
    return [window.opens_after(NOW) for window in capacity_demand.windows(text)]


def read_proportion(text: str) -> object:
    return capacity_demand.proportion(text).chunks(10)


def read_problems_of_demand(text: str) -> object:
    keys = (names.SCHEDULE, names.LEAD_TIME, names.PER_NODES, names.PER_CORES, names.MIN_CHUNKS)
    return list(capacity_demand.problems(dict.fromkeys(keys, text)))


def read_signals(text: str) -> object:
    keys = (names.SQS_QUEUE, names.MESSAGES_PER_CHUNK, names.CLOUDWATCH_ALARM, names.EVENT, names.RAISE_FOR)
    annotations = dict.fromkeys((*keys, *buffer_signals.WRITTEN), text)
    return [
        list(buffer_signals.problems(annotations)),
        buffer_signals.signals(annotations),
        buffer_signals.seen(annotations),
    ]


def read_spot_options(text: str) -> object:
    keys = (names.SPOT_DIVERSITY, names.SPOT_ALLOCATION_STRATEGY, names.MAX_SPOT_PRICE_SHARE)
    return [spot.read_spot_options(pool_with(key)(text)) for key in keys]


def read_repair_limit(text: str) -> object:
    limit, _ = repair_limit.read_limit(pool_with(repair_limit.REPAIR_LIMIT)(text))
    return repair_limit.nodes_allowed(limit, 1000)


def read_spot_share(text: str) -> object:
    return spot_share.spot_share_problem(Pod(metadata=metadata({names.SPOT_SHARE: text})))


def read_last_hour(text: str) -> object:
    use = HourlyUse(read_hour({names.LAST_HOUR: text}, now=NOW), (), (), now=NOW)
    return [use.reached("default"), use.describe(), use.changes()]


def read_reboots(text: str) -> object:
    claim = NodeClaim(metadata=metadata({names.REBOOTS: text, names.REBOOT_CALLED_AT: text}))
    return [reboot.reboots(claim, now=NOW), reboot.called_at(claim)]


def read_deadline(text: str) -> object:
    claim = claim_with(names.TERMINATION_TIMESTAMP)(text)
    deadline = current_deadline(claim)
    return [earlier_deadline(claim, NOW, now=NOW), deadline is not None and deadline - timedelta(days=1)]


def read_requeue(text: str) -> object:
    claim = claim_with(requeue.REQUEUE_AT)(text)
    return [
        requeue.is_due(claim, now=NOW),
        requeue.is_overdue(claim, now=NOW),
        requeue.is_scheduled(claim, until=NOW, now=NOW),
    ]


def read_selector(text: str) -> object:
    return selectors.matches(selectors.parse_selector(text), {"app": "web"})


def read_expression(text: str) -> object:
    values: dict[str, int | str] = {name: 4 if kind == "int" else "m5.large" for name, kind in VARIABLES.items()}
    return compile_expression(text, VARIABLES).evaluate(values)


def read_priorities(text: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of unusual sets in regular expressions
        priorities, _ = expander.parse_priorities(text)
    return [bool(pattern.search("workers-a")) for _, patterns in priorities for pattern in patterns]


def read_group_options(text: str) -> object:
    return options.parse(dict.fromkeys(options.FLAGS, text), {options.PREFER: text, options.SCALE_DOWN: text})


def read_group_status(text: str) -> object:
    before = status.parse(text)
    after = status.document([], [], before, now=NOW)
    return [status.is_due(after, before), status.encode(after)]


def read_quantity(text: str) -> object:
    return [parse_quantity("cpu", text), parse_quantity("memory", text)]


def read_cron(text: str) -> object:
    return parse_cron(text).next_after(NOW)


def read_duration(text: str) -> object:
    return parse_duration(text)

"""What really ran: the nodes since the last run, each with its offering and time.

EC2 says when instances began and ended. Without its answer a node counts from its creation, and until it was last seen:
what isn't known is counted in favour of the other autoscaler.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from functions.shadow.autoscalers import COMPUTE_TYPE
from functions.shadow.virtual_nodes import offering_of
from shared.base import aws
from shared.base.struct import Struct
from shared.cloud_provider import instance_id
from shared.shadow.record import RealNode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from shared.api.kubernetes import Node
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.shadow.ledger import Fleet, Ledger, Offering
    from shared.shadow.record import Record
    from shared.snapshot import Snapshot

_ENDED = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
_TRANSITION = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


class Lifetime(Struct):
    """When EC2 launched an instance and, if it ended and EC2 says when, its end."""

    began: datetime
    ended: datetime | None = None


def lifetimes(provider_ids: Collection[str]) -> dict[str, Lifetime]:
    """The lifetimes of these instances, as far as EC2 knows them, by provider id.

    Raises:
        ClientError, BotoCoreError: EC2 refuses the call.
    """
    by_id = {id_: provider_id for provider_id in provider_ids if (id_ := instance_id(provider_id))}
    known: dict[str, Lifetime] = {}
    for values in aws.filter_chunks(sorted(by_id)):
        pages = aws.ec2().get_paginator("describe_instances")
        for page in pages.paginate(Filters=[{"Name": "instance-id", "Values": values}], PaginationConfig=aws.PAGES):
            for instance in (i for r in page["Reservations"] for i in r.get("Instances", [])):
                is_over = instance["State"]["Name"] in _ENDED
                ended = transition_time(instance.get("StateTransitionReason", "")) if is_over else None
                began = instance["LaunchTime"].replace(microsecond=0)
                known[by_id[instance["InstanceId"]]] = Lifetime(began, ended)
    return known


def transition_time(reason: str) -> datetime | None:
    """The time in EC2's reason of a state transition; None if it has none, as after spot interruptions."""
    match = _TRANSITION.search(reason)
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if match else None


def changed_instances(record: Record, snapshot: Snapshot) -> frozenset[str]:
    """The instances (provider id) that came or went since the last run."""
    return frozenset(record.real.keys() ^ _nodes(snapshot).keys())


def _nodes(snapshot: Snapshot) -> dict[str, Node]:
    """The nodes of instances, by provider id; pods of Fargate have no instance."""
    return {
        node.spec.provider_id: node
        for node in snapshot.nodes
        if node.spec.provider_id and node.metadata.labels.get(COMPUTE_TYPE) != "fargate"
    }


def count_real(
    record: Record,
    snapshot: Snapshot,
    autoscalers: Mapping[str, str],
    known: Mapping[str, Lifetime],
    *,
    catalog: InstanceTypeCatalog,
    ledger: Ledger | None,
    now: datetime,
) -> dict[str, RealNode]:
    """Add the time since the last run to the ledger (None: count nothing); returns the nodes that run now.

    ``autoscalers`` are by the node's name, ``known`` are the lifetimes of instances that came or went.
    """
    nodes = _nodes(snapshot)
    running: dict[str, RealNode] = {}
    for id_, real in _all_nodes(record, nodes, autoscalers, known, now):
        node, lifetime = nodes.get(id_), known.get(id_)
        end = now
        if node is None:
            end = lifetime.ended if lifetime is not None and lifetime.ended is not None else real.counted
        end = min(now, max(real.counted, end))
        if ledger is not None:
            fleet: Fleet = "real" if real.autoscaler else "unscaled"
            ledger.use(fleet, real.offering, price(catalog, real.offering), real.counted, end)
            if real.autoscaler and record.at is not None:
                ledger.day(now).real_started += id_ not in record.real
                ledger.day(now).real_ended += node is None
        if node is not None:
            running[id_] = RealNode(
                offering=real.offering, counted=now, autoscaler=autoscalers[node.metadata.name] or real.autoscaler
            )
    return running


def _all_nodes(
    record: Record,
    nodes: Mapping[str, Node],
    autoscalers: Mapping[str, str],
    known: Mapping[str, Lifetime],
    now: datetime,
) -> Iterator[tuple[str, RealNode]]:
    """The nodes that ran at the last run, and those that came since, by provider id."""
    yield from record.real.items()
    begin = record.at or now
    for id_, node in nodes.items():
        if id_ in record.real:
            continue
        lifetime = known.get(id_)
        began = lifetime.began if lifetime is not None else node.metadata.creation_timestamp
        counted = min(now, max(begin, began or now))
        yield (
            id_,
            RealNode(
                offering=offering_of(node.metadata.labels),
                counted=counted,
                autoscaler=autoscalers[node.metadata.name],
            ),
        )


def price(catalog: InstanceTypeCatalog, offering: Offering) -> float | None:
    """USD per hour of the offering now; None if it isn't known."""
    return catalog.price(
        {
            "node.kubernetes.io/instance-type": offering.instance_type,
            "topology.kubernetes.io/zone": offering.zone,
            "karpenter.sh/capacity-type": offering.capacity_type,
        }
    )


def dollars_per_hour(offerings: Sequence[Offering], catalog: InstanceTypeCatalog) -> float:
    """USD per hour of these nodes, without those whose price isn't known."""
    return sum(price(catalog, offering) or 0.0 for offering in offerings)

"""Keeps the load history in the cluster, and says what it tells about how long savings last.

The record may be missing, stale, garbled or refused: then durations follow from the nodes' age, and a log line names
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.cluster import lease_record
from shared.cluster.errors import ApiError
from shared.disruption import load_history
from shared.disruption.load_history import InvalidHistoryError, LoadHistory
from shared.disruption.savings_evidence import savings_evidence
from shared.disruption.workloads import current_workloads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.cluster.client import Client
    from shared.cluster.lease_record import LeaseRecord
    from shared.disruption.savings_evidence import SavingsEvidence
    from shared.snapshot import Snapshot


def record_load(
    client: Client, snapshot: Snapshot, *, cluster: str, now: datetime, logger: Logger
) -> Mapping[str, SavingsEvidence]:
    """Compare the snapshot with the stored history, store what has changed, and return the evidence by NodePool."""
    try:
        record = lease_record.read(client, cluster=cluster, record=load_history.RECORD)
    except ApiError as error:
        logger.warning("Couldn't read the load history", extra={"record": load_history.RECORD, "why": str(error)})
        return {}
    stored = _decoded(record, now=now, logger=logger)
    current = current_workloads(snapshot)
    history = load_history.updated(stored, current, now=now)
    if load_history.needs_writing(stored, history):
        _store(client, record, history, logger=logger)
    _log_changes(stored, history, logger=logger)
    return savings_evidence(history, current.workloads, now=now)


def _decoded(record: LeaseRecord, *, now: datetime, logger: Logger) -> LoadHistory:
    if not record.text:
        return LoadHistory()
    try:
        return load_history.decode(record.text, now=now)
    except InvalidHistoryError as error:
        logger.warning("Ignored a load history that can't be used", extra={"record": str(record), "why": str(error)})
        return LoadHistory()


def _store(client: Client, record: LeaseRecord, history: LoadHistory, *, logger: Logger) -> None:
    try:
        if not lease_record.write(client, record, load_history.encode(history)):
            logger.info("The load history was written by another run, or is too long", extra={"record": str(record)})
    except ApiError as error:
        logger.warning("Couldn't write the load history", extra={"record": str(record), "why": str(error)})


def _log_changes(stored: LoadHistory, current: LoadHistory, *, logger: Logger) -> None:
    known = {(s.workload, s.at): s.ended for s in stored.scale_ins}
    for scale_in in current.scale_ins:
        key = scale_in.workload, scale_in.at
        if key not in known:
            logger.info("A workload was scaled in", extra={"workload": scale_in.workload, "why": str(scale_in)})
        elif scale_in.ended is not None and known[key] is None:
            logger.info("A scale-in has ended", extra={"workload": scale_in.workload, "why": str(scale_in)})

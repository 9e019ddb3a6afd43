"""Launches that an hour counts and that got no instance, until a limit asks for them.

A decision counts its launches before they are made. What failed is kept in a record in the cluster, because the next
decision may be another process's; it is read only when a limit would hold a launch back, so that launches within the
limits cost no request. The record is emptied before its launches are counted no longer: a function that dies between
the two leaves a limit that is tighter for an hour, never one that is wider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shared.api.hourly_limits import FailedLaunch
from shared.api.meta import decode_annotation
from shared.cluster import lease_record
from shared.cluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.provisioning.round import Provisioning

RECORD = "failed-launches"
_ATTEMPTS = 3
_MAX_LAUNCHES = 2_000
"""The newest that the record keeps; those that are left out stay counted."""


def remember(provisioning: Provisioning, claims: Sequence[NodeClaim], *, now: datetime) -> None:
    """Add the NodeClaims of a decision that was made ``now``. Where they can't be written, they stay counted."""
    failed = [FailedLaunch.of(claim, now=now) for claim in claims]
    try:
        for _ in range(_ATTEMPTS):
            record = lease_record.read(provisioning.client, cluster=provisioning.settings.cluster_name, record=RECORD)
            known = [f for f in _launches(record.text) if f.is_recent(now)]
            text = msgspec.json.encode([*known, *failed][-_MAX_LAUNCHES:]).decode()
            if lease_record.write(provisioning.client, record, text):
                return
        why = f"{_ATTEMPTS} times another writer of the record was first"
    except ApiError as error:
        why = str(error)
    provisioning.logger.warning("Failed launches can't be recorded, and count for an hour", extra={"why": why})


def take(provisioning: Provisioning) -> tuple[FailedLaunch, ...]:
    """The launches of the record, which is empty then; none if it can't be read or written now."""
    try:
        record = lease_record.read(provisioning.client, cluster=provisioning.settings.cluster_name, record=RECORD)
        launches = _launches(record.text)
        return launches if launches and lease_record.write(provisioning.client, record, "") else ()
    except ApiError as error:
        provisioning.logger.warning("Failed launches can't be read, and count for an hour", extra={"why": str(error)})
        return ()


def _launches(text: str) -> tuple[FailedLaunch, ...]:
    if not text:
        return ()
    try:
        return decode_annotation(text, tuple[FailedLaunch, ...])
    except msgspec.MsgspecError:
        return ()

"""Notifications about node groups on the cluster's event bus, for whoever listens; Tenon's own rules match none."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.base import hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mypy_boto3_events import EventBridgeClient

SCALED_UP = "Node Group Scaled Up"
"""Auto Scaling took a larger desired capacity: ``group``, ``from``, ``to``, ``maximum``, ``pods`` (how many)."""
SCALED_DOWN = "Node Group Scaled Down"
"""An instance is terminated: ``group``, ``from``, ``to``, ``minimum``, ``node``, ``instance``."""
BACKED_OFF = "Node Group Backed Off"
"""The group didn't deliver: ``group``, ``why``, ``seconds`` (how long it is left alone)."""

_log = logging.getLogger(__name__)


def notify(
    events: Callable[[], EventBridgeClient],
    detail_type: str,
    *,
    bus: str,
    cluster: str,
    now: datetime,
    **detail: str | int,
) -> None:
    """Publish one notification; ``events`` gives the client.

    One that can't be published is logged: nothing depends on it.
    """
    try:
        answer = events().put_events(
            Entries=[
                {
                    "EventBusName": bus,
                    "Source": hints.FUNCTIONS,
                    "DetailType": detail_type,
                    "Detail": json.dumps({"cluster": cluster, **detail}),
                    "Time": now,
                }
            ]
        )
    except (BotoCoreError, ClientError) as error:
        _log.warning('"%s" isn\'t published: %s', detail_type, error)
        return
    for entry in answer["Entries"]:
        if entry.get("ErrorCode"):
            _log.warning('"%s" isn\'t published: %s', detail_type, entry.get("ErrorMessage", entry["ErrorCode"]))

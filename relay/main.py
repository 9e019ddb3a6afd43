"""The relay as a process: ``python -m relay``.

It reaches the cluster by the service account it runs under, or by ``KUBECONFIG``; AWS by the usual credential chain
(EKS Pod Identity in a cluster). On SIGTERM it sends what waits and ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from relay.health import Health
from relay.relay import Relay
from relay.settings import RelaySettings
from shared import aws, runtime
from shared.cluster import kubeconfig
from shared.cluster.kubeconfig import KubeconfigError
from shared.settings import SettingsError, read

if TYPE_CHECKING:
    from types import FrameType

    from shared.cluster.client import Client

_TURN_SECONDS = 1.0
_STUCK_AFTER = timedelta(seconds=60)
_log = logging.getLogger("relay")


class JsonLines(logging.Formatter):
    """One JSON object a line, with the names that the functions' own log lines have."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "level": record.levelname,
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "service": "relay",
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def run(settings: RelaySettings, client: Client, stop: threading.Event) -> None:
    """Relay until ``stop`` is set."""
    now = runtime.current().now
    wake = threading.Event()
    relay = Relay(
        client,
        aws.events(),
        bus=settings.event_bus_name,
        cluster=settings.cluster_name,
        now=now,
        changed=wake.set,
    )
    turned = [now()]
    health = Health(settings.health_port, lambda: relay.is_alive and now() - turned[0] < _STUCK_AFTER)
    relay.start()
    health.start()
    _log.info("watching cluster %s for bus %s", settings.cluster_name, settings.event_bus_name)
    while not stop.is_set():
        turned[0] = now()
        if relay.step(turned[0]):
            _log.info("sent so far: %s", dict(relay.sent))
        wake.clear()
        due = relay.due()
        ahead = _TURN_SECONDS if due is None else (due - now()).total_seconds()
        wake.wait(min(max(ahead, 0.0), _TURN_SECONDS))
    relay.stop()
    health.stop()
    client.close()
    _log.info("stopped; %d keys were not sent", relay.waiting)


def main() -> int:
    """The exit code: 0 after SIGTERM or SIGINT, 2 when the environment doesn't do."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for ours in ("functions", "shared"):
        logging.getLogger(ours).setLevel(logging.INFO)
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        settings = read(RelaySettings, os.environ)
        # watchers do their own waiting, so that they can be stopped meanwhile
        client = kubeconfig.client(os.environ, attempts=1, user_agent="tenon-relay")
    except (SettingsError, KubeconfigError) as error:
        _log.error("can't start: %s", error)
        return 2
    run(settings, client, stop)
    return 0

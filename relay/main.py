"""The relay as a process: ``python -m relay``.

It reaches the cluster with its pod's service account or ``KUBECONFIG``, and AWS with the default credential chain (EKS
Pod Identity in a cluster). On SIGTERM it sends the pending hints and exits.
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

from relay.health import HealthServer
from relay.relay import Relay
from shared.base import aws, runtime
from shared.base.settings import Settings, SettingsError, read
from shared.cluster import kubeconfig
from shared.cluster.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from types import FrameType

    from shared.cluster.client import Client

_LOOP_SECONDS = 1.0
_UNHEALTHY_AFTER = timedelta(seconds=60)
_log = logging.getLogger("relay")


class RelaySettings(Settings, frozen=True, kw_only=True):
    """The event bus that hints are sent to, and the port of ``/healthz``."""

    event_bus_name: str
    health_port: int = 8080


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the same field names as the functions' log lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The log line."""
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
    """Run the relay until ``stop`` is set."""
    now = runtime.current().now
    changed = threading.Event()
    relay = Relay(
        client,
        aws.events(),
        bus=settings.event_bus_name,
        cluster=settings.cluster_name,
        now=now,
        on_change=changed.set,
    )
    last_loop = now()
    health = HealthServer(
        settings.health_port,
        is_healthy=lambda: relay.is_alive and now() - last_loop < _UNHEALTHY_AFTER,
        is_ready=lambda: relay.is_alive and relay.is_publishing,
    )
    relay.start()
    relay.announce()
    health.start()
    _log.info("watching cluster %s for event bus %s", settings.cluster_name, settings.event_bus_name)
    while not stop.is_set():
        last_loop = now()
        if relay.step(last_loop):
            _log.info("keys sent so far: %s", dict(relay.sent))
        changed.clear()
        due = relay.due()
        timeout = _LOOP_SECONDS if due is None else (due - now()).total_seconds()
        changed.wait(min(max(timeout, 0.0), _LOOP_SECONDS))
    relay.stop()
    health.stop()
    client.close()
    _log.info("stopped; %d keys were not sent", relay.pending)


def main() -> int:
    """Run the relay; the exit code is 0 after SIGTERM or SIGINT, and 2 when it can't start."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    for package in ("relay", "shared"):
        logging.getLogger(package).setLevel(logging.INFO)
    stop = threading.Event()

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        settings = read(RelaySettings, os.environ)
        # Watchers back off themselves, so that they can be stopped while they wait.
        client = kubeconfig.client(os.environ, attempts=1, user_agent="tenon-relay")
    except (SettingsError, KubeconfigError) as error:
        _log.error("can't start: %s", error)
        return 2
    run(settings, client, stop)
    return 0

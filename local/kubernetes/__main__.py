"""Run one for people: ``python -m local.kubernetes [--port N]`` prints a kubeconfig and serves until interrupted."""

from __future__ import annotations

import argparse
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store


def main() -> None:
    """Serve an empty cluster."""
    parser = argparse.ArgumentParser(prog="python -m local.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0 picks a free port")
    parser.add_argument("--kubeconfig", type=Path, help="a file to write the kubeconfig to, instead of printing it")
    given = parser.parse_args()
    store = Store(now=lambda: datetime.now(UTC))
    with Server(store, port=given.port) as server:
        if given.kubeconfig:
            given.kubeconfig.touch(mode=0o600)
            given.kubeconfig.write_text(server.kubeconfig())
            sys.stderr.write(f"Kubernetes API on {server.url}; KUBECONFIG={given.kubeconfig}\n")
        else:
            sys.stdout.write(server.kubeconfig())
            sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")


if __name__ == "__main__":
    main()

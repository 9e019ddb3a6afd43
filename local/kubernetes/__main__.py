"""``python -m local.kubernetes [--port N]``: serves an empty cluster's API and prints a kubeconfig."""

from __future__ import annotations

import argparse
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store


def main() -> None:
    """Serve an empty cluster until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m local.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port to listen on; 0 picks a free port")
    parser.add_argument("--kubeconfig", type=Path, help="write the kubeconfig to this file instead of printing it")
    options = parser.parse_args()
    store = Store(now=lambda: datetime.now(UTC))
    with Server(store, port=options.port) as server:
        if options.kubeconfig:
            options.kubeconfig.touch(mode=0o600)
            options.kubeconfig.write_text(server.kubeconfig())
            sys.stderr.write(f"Kubernetes API on {server.url}; KUBECONFIG={options.kubeconfig}\n")
        else:
            sys.stdout.write(server.kubeconfig())
            sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")


if __name__ == "__main__":
    main()

"""Runs ``tenon export``: metrics for Prometheus over HTTP or printed once, and the objects that run it in a cluster."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import typer

from cli.cluster import kubeconfig_context, live_reader
from cli.errors import CommandError, UsageError
from cli.export import manifests
from cli.export.exporter import Exporter
from cli.export.exposition import Exposition
from cli.export.polling import OK
from cli.export.server import serve
from cli.printable import echo
from infra import installation
from infra.cluster.kubernetes.cluster_manifests import to_yaml

if TYPE_CHECKING:
    from cli.cluster.cluster_reference import ClusterReference
    from cli.export.exporter import ExportOptions


def print_manifests(reference: ClusterReference, *, image: str, role_arn: str) -> None:
    """Print the objects that run the export in the cluster."""
    reference = kubeconfig_context.resolve_named(reference)
    if not image or not reference.region:
        raise UsageError("--manifests needs --image, and --region or a context that names it")
    objects = manifests.in_cluster(cluster=reference.cluster, region=reference.region, image=image, role_arn=role_arn)
    echo(to_yaml(objects), nl=False)


def run(reference: ClusterReference, options: ExportOptions, *, listen: str, port: int, once: bool) -> None:
    """Serve the metrics, or print them once."""
    reference = kubeconfig_context.resolve_named(reference)
    with live_reader.read_only_aws(reference):
        exporter = Exporter(reference, options, version=installation.version(), log=_log)
        if once:
            exporter.connect()
            _print_once(exporter)
        else:
            _serve(exporter, listen=listen, port=port)


def _log(line: str) -> None:
    echo(f"tenon export: {line}", err=True)


def _print_once(exporter: Exporter) -> None:
    exporter.poll()
    echo(Exposition(lambda: exporter.samples(with_running=False)).text(), nl=False)
    if exporter.cluster.outcome != OK:
        raise typer.Exit(1)


def _serve(exporter: Exporter, *, listen: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; both end it with exit code 0."""
    stop = threading.Event()
    try:
        with serve(exporter.exposition, address=listen, port=port, stuck=exporter.stuck) as url:
            exporter.connect()  # a command of the kubeconfig that gets a token may take its time
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            exporter.start(stop)
            _log(f"serving {url}")
            stop.wait()
    except OSError as error:
        raise CommandError(
            f"can't listen on {listen} port {port}: {error.strerror or error}; give --port or --listen"
        ) from error
    finally:
        stop.set()

"""Runs ``tenon report``: an HTML page of a recorded run, or of a cluster by its decision log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli.cluster.reader import open_cluster
from cli.printable import echo
from cli.report import cluster_recording, page
from cli.report import recording as recordings
from shared.base.plurals import plural

if TYPE_CHECKING:
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference


def run(recording: Path | None, reference: ClusterReference, *, output: Path, days: float) -> None:
    """Write the page of the recording, or of the cluster's last days."""
    if recording is not None:
        recorded = recordings.read(recording)
    else:
        with open_cluster(None, reference) as observed:
            recorded = cluster_recording.recording(observed, period=timedelta(days=days))
    counts = f"{plural(len(recorded.spans), 'node')}, {plural(len(recorded.decisions), 'decision')}"
    echo(f"{page.save(recorded, output)}: {counts}")

"""Runs ``tenon report``: an HTML page of a recorded run, or of a cluster by its decision log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli import json_output
from cli.cluster.reader import open_cluster
from cli.errors import UsageError
from cli.printable import echo
from cli.report import cluster_recording, costs, json_report, moves, page
from cli.report import recording as recordings
from cli.terminal import console
from shared.base.plurals import plural

if TYPE_CHECKING:
    from pathlib import Path

    from cli.cluster.cluster_reference import ClusterReference


def run(
    recording: Path | None,
    reference: ClusterReference,
    *,
    output: Path,
    days: float,
    cost_label: str = "",
    as_json: bool = False,
) -> None:
    """Write the page of the recording, or of the cluster's last days, and print what namespaces cost.

    Raises:
        UsageError: the recording can't be read, the page can't be written, or a recording has no labels of pods.
    """
    if recording is not None and cost_label:
        raise UsageError("--cost-label needs a live cluster: a recording doesn't have the labels of pods")
    if recording is not None:
        recorded = recordings.read(recording)
    else:
        with open_cluster(None, reference) as observed:
            recorded = cluster_recording.recording(observed, period=timedelta(days=days), cost_label=cost_label)
    written = page.save(recorded, output)
    if as_json:
        echo(json_output.text("report", json_report.output(recorded, written)))
        return
    counts = f"{plural(len(recorded.spans), 'node')}, {plural(len(recorded.decisions), 'decision')}"
    echo(f"{written}: {counts}")
    figures = moves.recorded_moves(recorded)
    if figures.commands or figures.refused:
        echo(moves.summary(figures))
    if recorded.costs is not None:
        costs.show(console(), recorded.costs)
